"""The report in a real browser: it opens without an error and without a network, and answers."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, FloatRect, Locator, Page, expect, sync_playwright

from daom.cli.report import page_pieces
from daom.report.document import document
from daom.report.page import page
from tests.conftest import find_chromium
from tests.fleet import OVERLOAD
from tests.report_outputs import DAY_S, T0, fleet_says, replayed
from tests.servers import eventually

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

LABELS = OVERLOAD.with_name("light_to_overload.labels.yaml")
DAYS, ENGINES, SIGNALS = 30.0, 100, 2
PANE_S = 2_400.0
"""So that a stream has about as many buckets as the file holds for a month of panes of 10 s."""
LARGEST_BYTES = 12_000_000
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
OPENED_WITHIN_MS = 90_000
READY = 'html[data-ready="yes"]'
MOST_ROWS = 40
"""Of 200 streams so many are in the page at once, at most."""


@dataclass
class Opened:
    """A report that is open, and what the browser has to say of it."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked_for.append(request.url))

    def range_of_the_strips(self) -> str:
        """Return the words along the axis of the strips: a canvas, told by its pixels."""
        return self.page.evaluate("document.getElementById('axis').toDataURL()")

    def range_of_the_chart(self) -> list[str]:
        return self.page.evaluate("document.getElementById('chart').layout.xaxis.range.map(String)")

    def comes_to(self, condition: str) -> None:
        """Wait for ``condition``; the page's own policy forbids Playwright to wait for it there."""
        eventually(lambda: self.page.evaluate(condition))

    def check(self) -> None:
        """Nothing was wrong, and nothing but the file itself was asked for."""
        assert self.said == []
        assert self.asked_for[0].startswith("file://")
        assert {url.partition(":")[0] for url in self.asked_for[1:]} <= {"blob", "data"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def overload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the recording that DAOM ships, as a user makes it."""
    path = tmp_path_factory.mktemp("overload") / "overload.html"
    command = [sys.executable, "-m", "daom", "replay", OVERLOAD, "--report", path]
    subprocess.run([*command, "--labels", LABELS], check=True, capture_output=True, timeout=120)
    return path


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty days of 200 streams."""
    path = tmp_path_factory.mktemp("month") / "month.html"
    said = fleet_says(ENGINES, DAYS, PANE_S)
    told = document(replayed(said, T0 + DAYS * DAY_S, PANE_S))
    assert len(told["streams"]) == SIGNALS * ENGINES
    path.write_text(page(told, page_pieces()), "utf-8")
    return path


@pytest.fixture
def opened(browser: Browser) -> Iterator[Any]:
    """Open a report; at the end nothing may have been wrong."""
    pages: list[Opened] = []

    def open_it(path: Path, **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": 1_440, "height": 1_000}, **options)
        context.set_offline(True)
        one = Opened(context.new_page())
        one.listen()
        pages.append(one)
        one.page.goto(path.as_uri())
        one.page.wait_for_selector(READY, timeout=OPENED_WITHIN_MS)
        return one

    yield open_it
    for one in pages:
        one.check()
        one.page.context.close()


def in_view(locator: Locator) -> FloatRect:
    """Return where something is on the screen, once it is there."""
    locator.scroll_into_view_if_needed()
    box = locator.bounding_box()
    assert box is not None
    return box


def test_the_report_shows_what_was_found(opened, overload):
    page = opened(overload).page

    expect(page.locator("h1")).to_have_text(OVERLOAD.name)
    expect(page.locator("#cards")).to_contain_text("1 of 1")
    settings = page.locator("#settings tbody tr .name")
    expect(settings).to_have_text(["default (this report)", "sits2026", "static threshold"])
    expect(page.locator("#alerts tbody tr")).to_have_count(1)
    expect(page.locator("#muted")).to_contain_text("their own alerts say which")
    expect(page.locator("#warnings")).to_be_hidden()


def test_what_matters_most_comes_first_and_is_open(opened, overload):
    page = opened(overload).page

    expect(page.locator(".row").first).to_contain_text("ttft_s of gpu-0")
    expect(page.locator("#stream-title")).to_have_text("ttft_s of gpu-0")
    expect(page.locator("#chart .main-svg").first).to_be_visible()
    expect(page.locator("#stream-lists")).to_contain_text("traffic surge")


def test_hovering_a_stream_tells_its_values_with_units(opened, overload):
    page = opened(overload).page
    strip = in_view(page.locator(".row canvas").first)

    page.mouse.move(strip["x"] + 0.63 * strip["width"], strip["y"] + 9)

    tip = page.locator("#tip")
    expect(tip).to_contain_text(re.compile(r"P99 [\d.]+ s, threshold [\d.]+ s"))
    expect(tip).to_contain_text(re.compile(r"KL [\d.]+ nats \(service [\d.]+, workload [\d.e-]+\)"))
    expect(tip).to_contain_text("critical LatencyDrift since 2025-11-24 16:23:10")


def test_hovering_the_chart_tells_all_values_at_that_time(opened, overload):
    page = opened(overload).page
    panel = in_view(page.locator("#chart .nsewdrag").nth(1))

    page.mouse.move(panel["x"] + 0.63 * panel["width"], panel["y"] + panel["height"] / 2)

    words = page.locator("#chart .hoverlayer")
    for name in ("P99", "threshold in force", "KL", "evidence"):
        expect(words).to_contain_text(name)


def test_dragging_over_a_strip_zooms_every_strip_and_the_chart(opened, overload):
    report = opened(overload)
    page = report.page
    whole = report.range_of_the_strips()
    box = in_view(page.locator(".row canvas").first)
    middle_y = box["y"] + 9

    page.mouse.move(box["x"] + 0.5 * box["width"], middle_y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], middle_y, steps=4)
    page.mouse.up()

    expect(page.locator("#whole")).to_be_enabled()
    report.comes_to(
        "document.getElementById('chart').layout.xaxis.range[1]"
        " - document.getElementById('chart').layout.xaxis.range[0] < 600_000"
    )
    assert report.range_of_the_strips() != whole
    page.locator("#whole").click()
    expect(page.locator("#whole")).to_be_disabled()
    assert report.range_of_the_strips() == whole


def test_zooming_the_chart_zooms_the_strips(opened, overload):
    report = opened(overload)
    page = report.page
    whole = report.range_of_the_strips()
    panel = in_view(page.locator("#chart .nsewdrag").nth(1))
    y = panel["y"] + panel["height"] / 2

    page.mouse.move(panel["x"] + 0.5 * panel["width"], y)
    page.mouse.down()
    page.mouse.move(panel["x"] + 0.7 * panel["width"], y, steps=4)
    page.mouse.up()

    expect(page.locator("#whole")).to_be_enabled()
    assert report.range_of_the_strips() != whole


def test_everything_can_be_done_by_keyboard(opened, overload):
    report = opened(overload)
    page = report.page
    whole = report.range_of_the_strips()

    page.keyboard.press("j")
    expect(page.locator("#stream-title")).to_have_text("ttft_s of all engines")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#stream-title")).to_have_text("e2e_s of gpu-0")
    page.keyboard.press("k")
    expect(page.locator("#stream-title")).to_have_text("ttft_s of all engines")
    page.keyboard.press("+")
    expect(page.locator("#whole")).to_be_enabled()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("0")
    expect(page.locator("#whole")).to_be_disabled()
    assert report.range_of_the_strips() == whole
    page.keyboard.press("/")
    page.keyboard.type("gpu-1")
    expect(page.locator(".row")).to_have_count(2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_or_dark_is_what_the_system_has_until_it_is_switched(opened, overload, scheme):
    page = opened(overload, color_scheme=scheme).page

    expect(page.locator("html")).to_have_attribute("data-theme", scheme)
    page.keyboard.press("t")
    expect(page.locator("html")).not_to_have_attribute("data-theme", scheme)


def test_a_month_of_200_streams_opens_and_stays_readable(opened, month, capsys):
    began_s = time.monotonic()
    report = opened(month)
    took_s = time.monotonic() - began_s
    size_bytes = month.stat().st_size
    with capsys.disabled():
        sys.stdout.write(
            f"\n200 streams, 30 days: {size_bytes / 1e6:.1f} MB, opened in {took_s:.1f} s\n"
        )
    page = report.page

    assert size_bytes < LARGEST_BYTES
    expect(page.locator("#shown")).to_have_text("200 streams")
    assert page.locator(".row").count() <= MOST_ROWS
    page.locator("#viewport").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    report.comes_to(
        "document.querySelectorAll('.row').length > 5 && "
        "[...document.querySelectorAll('.row')].some((r) => parseFloat(r.style.top) > 4000)"
    )
    assert page.locator(".row").count() <= MOST_ROWS
    page.locator("#search").fill("e2e_s host-10")
    expect(page.locator("#shown")).to_have_text("8 of 200 streams")
    page.locator("#search").fill("")
    page.locator("#only").select_option("alerts")
    expect(page.locator("#shown")).to_have_text("15 of 200 streams")
    page.locator("#alerts tbody tr").first.click()
    expect(page.locator("#stream-lists")).to_contain_text("gpu throttled")
    expect(page.locator("#whole")).to_be_enabled()


def test_on_paper_every_stream_is_there(opened, overload):
    page = opened(overload).page

    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")

    expect(page.locator(".row")).to_have_count(6)
    expect(page.locator("#zoom-in")).to_be_hidden()


def test_without_javascript_the_page_says_how_to_get_the_report(browser, overload):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(overload.as_uri())

    assert "--report FILE.json" in page.locator("body").inner_text()
    context.close()
