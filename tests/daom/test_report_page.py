"""The page: one file that holds all it shows, and lets nothing out and nothing in."""

import base64
import hashlib
import re

import pytest

from daom.cli.report import page_pieces
from daom.config import Config
from daom.events import Series
from daom.labels import Recorded
from daom.report.contest import Contest, line_up
from daom.report.document import Replayed, document
from daom.report.page import Pieces, page, unpacked
from tests.report_outputs import T0, fleet_says, replayed, verdict

HOUR_S = 3_600.0
HOSTILE = "</script><script>alert(1)</script>{{data}}<img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def told():
    return document(replayed(fleet_says(3, 1 / 24, 60.0), T0 + HOUR_S, 60.0))


@pytest.fixture(scope="module")
def pieces():
    return page_pieces()


def test_a_page_holds_the_whole_report(told, pieces):
    assert unpacked(page(told, pieces)) == told


def test_the_same_report_makes_the_same_bytes(told, pieces):
    assert page(told, pieces) == page(told, pieces)


def test_the_policy_of_a_page_allows_its_own_script_and_no_connection(told, pieces):
    text = page(told, pieces)

    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}' blob:" in policy
    assert policy.startswith("default-src 'none'")


def test_a_page_names_no_address_but_those_of_xml(told):
    """Plotly is packed and may name what it likes: the policy lets it reach nothing."""
    bare = page_pieces()
    text = page(told, Pieces(html=bare.html, css=bare.css, script=bare.script, plotly=""))

    assert set(re.findall(r"https?://[\w./-]+", text)) == {"http://www.w3.org/2000/svg"}


def test_what_a_producer_wrote_is_never_markup(pieces):
    contest = Contest(line_up(Config(), []))
    series = Series(model=HOSTILE, engine=HOSTILE, signal="ttft_s")
    contest.note(contest.base, [verdict(T0 + 10.0, cell=HOSTILE, series=series)])
    recorded = Recorded(name=HOSTILE, start_s=T0, end_s=T0 + 10.0, engines={HOSTILE: {HOSTILE}})

    text = page(document(Replayed(contest=contest, recorded=recorded)), pieces)

    assert "alert(1)" in text, "the title names the source"
    assert "<script>alert" not in text
    assert "<img" not in text
    assert unpacked(text)["streams"][0]["engine"] == HOSTILE
