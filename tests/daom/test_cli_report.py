"""``daom replay --report`` as a user meets it: the file, what is printed, and how it exits."""

import gzip
import json
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from daom.report.page import unpacked
from tests.fleet import LIGHT, OVERLOAD

LABELS = OVERLOAD.with_name("light_to_overload.labels.yaml")
FEW_LINES = 400
MANY_LINES = 4_000
LARGEST_BYTES = 50_000
ENDED_WITHIN_S = 60.0


@pytest.fixture
def report(daom, tmp_path):
    """Run ``daom replay``; what it writes goes to a directory of the test's own."""
    return partial(daom, "replay")


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """The beginning of a recording: enough to be read, not enough to be judged."""
    path = tmp_path_factory.mktemp("few") / "few.jsonl"
    path.write_bytes(b"".join(lines_of(LIGHT)[:FEW_LINES]))
    return path


def lines_of(recording):
    return gzip.decompress(recording.read_bytes()).splitlines(keepends=True)


@pytest.fixture(scope="module")
def overload(tmp_path_factory):
    """The reports of the recording that DAOM ships: the object, and what was printed."""
    path = tmp_path_factory.mktemp("overload") / "overload.html"
    done = subprocess.run(
        [sys.executable, "-m", "daom", "replay", OVERLOAD, "--report", path, "--labels", LABELS],
        capture_output=True,
        text=True,
        check=True,
        timeout=ENDED_WITHIN_S,
    )
    return unpacked(path.read_text("utf-8")), done.stdout


def setting(told, name):
    return next(s for s in told["settings"] if s["name"] == name)


def test_the_shipped_overload_is_found_and_sits2026_is_later(overload):
    told, _ = overload

    delays_s = {s["name"]: s["scores"]["alerts"]["delay_s"] for s in told["settings"]}
    assert setting(told, "default")["scores"]["alerts"]["missed"] == 0
    assert delays_s["default"] < delays_s["sits2026"]
    assert [s["name"] for s in told["settings"]] == ["default", "sits2026", "static threshold"]


def test_what_was_muted_is_told_with_the_rule_and_why(overload):
    told, _ = overload

    assert len(told["muted"]) == sum(setting(told, "default")["muted"].values())
    assert {m["rule"] for m in told["muted"]} == set(setting(told, "default")["muted"])
    assert all(m["why"] for m in told["muted"])


def test_the_end_says_how_the_settings_compare_and_where_the_report_is(overload):
    told, printed = overload

    for each in told["settings"]:
        assert each["name"].split()[0] in printed
    assert "0 of 1" in printed
    assert printed.rstrip().endswith("overload.html")


def test_html_and_json_hold_the_same(report, few, tmp_path):
    for name in ("r.html", "r.json"):
        assert report(few, "--report", tmp_path / name).code == 0

    page = unpacked((tmp_path / "r.html").read_text("utf-8"))
    assert page == json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert {path.name for path in tmp_path.iterdir()} == {"r.html", "r.json"}


def test_settings_of_ones_own_stand_beside_with_what_differs(report, few, tmp_path):
    quieter = tmp_path / "quieter.yaml"
    quieter.write_text("alerts: {pending_s: 5m}\n")

    done = report(few, "--report", tmp_path / "r.json", "--against", quieter)

    told = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert done.code == 0
    assert setting(told, str(quieter))["differs"] == [
        {"field": "alerts.pending_s", "here": 300.0, "there": 60.0}
    ]


# Wrong usage


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--report", "r.pdf"], "a name that ends in .html or .json is needed"),
        (["--report", "r.html", "--json"], "--report FILE.json is the report as JSON"),
        (["--labels", LABELS], "give --report, too"),
        (["--compare-preset", "adwin"], "give --report, too"),
        (["--report", "r.html", "--against", "none.yaml"], "none.yaml"),
        (["--report", "r.html", "--labels", "none.yaml"], "none.yaml"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_read(report, few, tmp_path, options, said):
    done = report(few, *options)

    assert done.code == 2
    assert said in " ".join(done.err.split())


def test_a_report_that_has_no_place_to_be_is_said_first(report, few, tmp_path):
    done = report(few, "--report", tmp_path / "none" / "r.html")

    assert (done.code, done.out) == (2, "")
    assert "none/r.html: cannot be written: No such file or directory" in done.err


# Incidents that do not fit


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            [("+1m", "+3m"), ("+2m", "+4m")],
            "entry 2: overlaps entry 1 from 2025-11-24 16:02:00 to 2025-11-24 16:03:00",
        ),
        ([("2031-01-01T00:00:00Z", "2031-01-01T01:00:00Z")], "2031-01-01 00:00:00 is outside"),
    ],
)
def test_incidents_that_do_not_fit_are_an_error_and_the_rest_is_reported(
    report, few, tmp_path, entries, said
):
    path = tmp_path / "incidents.json"
    path.write_text(json.dumps([{"start": a, "end": b, "kind": "degradation"} for a, b in entries]))

    done = report(few, "--report", tmp_path / "r.json", "--incidents", path)

    told = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert done.code == 2
    assert said in done.err
    assert not told["labels"]
    assert [w.startswith("The labels were not used") and said in w for w in told["warnings"]] == [
        True
    ]


# Sources that end early


def test_of_an_empty_source_there_is_no_report(report, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()

    done = report(empty, "--report", tmp_path / "r.html")

    assert done.code == 3
    assert "holds no record" in done.err
    assert list(tmp_path.iterdir()) == [empty]


def test_a_recording_that_breaks_off_is_reported_as_far_as_it_goes(report, tmp_path):
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(LIGHT.read_bytes()[:20_000])

    done = report(cut, "--report", tmp_path / "r.json")

    told = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert done.code == 2
    assert "cut.jsonl.gz" in done.err
    assert told["source"]["records"] > 0
    assert told["warnings"][0].startswith("The source could not be read to its end")


def test_ctrl_c_leaves_a_report_of_what_was_read(tmp_path):
    path = tmp_path / "r.json"
    command = [sys.executable, "-m", "daom", "replay", "-", "--report", str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        # A pipe holds 64 kB: once so much is written, most of it has been read.
        process.stdin.write(b"".join(lines_of(OVERLOAD)[:MANY_LINES]))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=ENDED_WITHIN_S)

    told = json.loads(path.read_text("utf-8"))
    assert process.returncode == 130
    assert b"Traceback" not in said
    assert 0 < told["source"]["records"] <= MANY_LINES
    assert told["warnings"][0].startswith("The replay was stopped before its end: partial result")


# Disks


def test_a_full_disk_is_said_and_exits_as_not_judged(report, few, tmp_path):
    full = tmp_path / "full.html"
    full.symlink_to("/dev/full")

    done = report(few, "--report", full)

    assert done.code == 3
    assert "full.html: cannot be written: No space left on device" in done.err
    assert Path("/dev/full").is_char_device()


def test_a_disk_that_fills_up_leaves_the_report_of_before(few, tmp_path):
    path = tmp_path / "r.html"
    path.write_text("the report of yesterday")

    done = subprocess.run(
        [sys.executable, "-m", "daom", "replay", few, "--report", path],
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDED_WITHIN_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_BYTES,) * 2),
    )

    assert done.returncode == 3
    assert "r.html: cannot be written: File too large" in done.stderr
    assert path.read_text() == "the report of yesterday"
    assert list(tmp_path.iterdir()) == [path]
