"""``daom tune`` as a user meets it: what it prints and writes, and how it ends."""

import contextlib
import gzip
import json
import re
import resource
import shutil
import signal
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from connectors.recordings import write_recording
from daom.codec import encode_json
from daom.config import Config, load_config
from tests.daom.stories import Load, chapter, story
from tests.fleet import Fleet, several_cells
from tests.kafka_servers import REPOSITORY
from tests.processes import running
from tests.servers import eventually

PAGE = REPOSITORY / "docs" / "tune.md"
BEGIN, END = "<!-- begin output -->", "<!-- end output -->"
INCIDENTS = [
    {"start": "+21m", "end": "+24m", "kind": "degradation"},
    {"start": "+35m", "end": "+38m", "kind": "degradation"},
]
COMMAND = (
    *("tune", "hour.jsonl.gz", "--incidents", "incidents.yaml", "--space", "space.yaml"),
    *("--catch-within", "3m", "--grace", "1m", "--config", "base.yaml"),
)
STUDY = Path("tuned.yaml.study.jsonl")
SPACE = "alerts.min_slowdown: [0.1, 0.6]\nalerts.pending_s: [30, 60]\n"
QUIET = Load(requests=20.0, steps=0)
ENDS_WITHIN_S = 60.0


def times_slower(minutes, factor):
    return chapter(minutes, replace(QUIET, ttft=factor, itl=factor))


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A folder in which a search is done, so that other searches need no replays of their own.

    An engine is a third slower twice, which nobody minds, and far slower twice.
    """
    folder = tmp_path_factory.mktemp("searched")
    calm, slow, broken = (times_slower(4, 1.0), times_slower(3, 1.33), times_slower(3, 2.5))
    start = times_slower(14, 1.0)
    told = story(start, slow, calm, broken, calm, slow, calm, broken, calm, engines=("e1",))
    write_recording(folder / "hour.jsonl.gz", map(encode_json, told))
    (folder / "incidents.yaml").write_text(json.dumps(INCIDENTS))
    (folder / "space.yaml").write_text(SPACE)
    (folder / "base.yaml").write_text("alerts: {cooldown_s: 0}\n")
    with contextlib.chdir(folder), running(*COMMAND, "--jobs", "1") as process:
        _, said = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 0, said
    (folder / "tuned.yaml").unlink()
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch, searched):
    """A folder with all that a search needs, to be in."""
    monkeypatch.chdir(shutil.copytree(searched, tmp_path / "here"))
    return Path.cwd()


@pytest.fixture
def tune(daom, folder):
    """Run ``daom tune hour.jsonl.gz`` with its incidents and space, and further options."""

    def command(*options, source="hour.jsonl.gz"):
        return daom("tune", source, *COMMAND[2:], "--jobs", "1", *options)

    return command


# What it finds


def test_it_writes_a_configuration_that_pages_less_and_catches_all_on_what_it_was_not_chosen_on(
    tune,
):
    done = tune("--json")

    found = json.loads(done.out, parse_constant=pytest.fail)
    choice, default = (found[name]["judged_on"] for name in ("choice", "default"))
    assert done.code == 0
    assert found["beats_default"]
    assert choice["caught_in_time"] == choice["incidents"] == 1
    assert choice["alerts"] < default["alerts"]
    config = load_config(Path("tuned.yaml"), {})
    assert config.alerts.min_slowdown == 0.6
    assert config.alerts.cooldown_s == 0.0
    others = {"alerts": Config().alerts}
    assert config.model_copy(update=others) == Config()


def test_processes_find_what_one_process_found(tune, folder):
    Path("space.yaml").write_text(SPACE + "detector.confirm_panes: [2, 1]\n")

    tune("--study", "two", "--jobs", "2")

    [alone] = replays(STUDY)
    by_panes = {r["judging"]["detector.confirm_panes"]: r["found"] for r in replays(Path("two"))}
    assert by_panes.keys() == {1, 2}
    assert by_panes[2] == alone["found"]


def replays(study):
    return [json.loads(line) for line in study.read_bytes().splitlines()[1:]]


def test_the_tables_say_what_is_recommended_and_how_little_a_short_part_proves(tune):
    done = tune()

    assert re.search(r"choice +. 1 of 1 \(.*%\.\.100%\)", done.out)
    assert "Recommended: alerts.min_slowdown=0.6" in done.out
    assert "daom worker --config tuned.yaml" in done.out


def test_a_directory_and_a_range_of_times_are_sources_too(tune, folder):
    Path("days").mkdir()
    shutil.move("hour.jsonl.gz", "days/hour.jsonl.gz")

    whole = tune("--json", source="days")
    late = tune("--since", "5m", source="days")

    assert whole.code == 0
    assert late.code == 2
    assert "incidents.yaml: entry 1: start: " in late.err


def test_processes_read_the_partitions_of_a_topic_each_for_itself(
    daom, folder, embedded_broker, topic_prefix
):
    """Two cells of two minutes, of which nothing can be judged: so it says, and keeps that."""
    Path("space.yaml").write_text("detector.confirm_panes: [2, 1]\n")
    Path("none.yaml").write_text("[]")
    lines = several_cells(["m-1", "m-2"], until_s=1_764_000_120.0)
    write_recording(Path("cells.jsonl"), [line.value for line in lines])
    usual = ("--incidents", "none.yaml", "--space", "space.yaml")

    with Fleet(embedded_broker.bootstrap_servers, topic_prefix) as fleet:
        fleet.play(lines)
        source = ("--brokers", fleet.brokers, f"topic:{fleet.topics.telemetry}")
        topic = daom("tune", *source, *usual, "--jobs", "2", "--study", "topic")
    file = daom("tune", "cells.jsonl", *usual, "--jobs", "1", "--study", "file")

    assert (topic.code, file.code) == (3, 3)
    known = [sorted(map(json.dumps, replays(Path(name)))) for name in ("topic", "file")]
    assert known[0] == known[1]
    assert len(known[0]) == 2


def test_where_an_incident_is_not_caught_in_time_it_says_no(tune):
    done = tune("--catch-within", "1s")

    assert done.code == 1
    assert "It does not catch every incident in time" in done.out
    assert "NOT MET" in Path("tuned.yaml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_walk_through_runs_as_written_and_beats_the_default_where_it_was_not_chosen(
    daom, golden, tmp_path, monkeypatch
):
    """Its numbers are nobody's: ``--update-golden`` writes them."""
    (tmp_path / "tests").symlink_to(REPOSITORY / "tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    text = PAGE.read_text("utf-8")
    search, check = re.findall(r"^daom (tune|config check) (.*)$", text, re.MULTILINE)[:2]

    done = daom("tune", *search[1].split())
    valid = daom("config", "check", *check[1].split())
    known = daom("tune", *search[1].split(), "--json")

    assert (done.code, valid.code) == (0, 0)
    found = json.loads(known.out, parse_constant=pytest.fail)
    choice, default = (found[name]["judged_on"] for name in ("choice", "default"))
    assert choice["caught_in_time"] == choice["incidents"] == default["incidents"] >= 2
    assert choice["caught_in_time"] >= default["caught_in_time"]
    assert choice["alerts"] < default["alerts"]
    config = load_config(Path("tuned.yaml"), {})
    assert found["recommended"] == found["choice"]["setting"]
    assert config.alerts.min_slowdown == found["recommended"]["alerts.min_slowdown"]
    lines = "\n".join(line.rstrip() for line in done.out.splitlines())
    shown = f"{BEGIN}\n\n```\n{lines}\n```\n\n{END}"
    page = re.sub(f"{BEGIN}.*{END}", lambda _: shown, text, flags=re.DOTALL)
    if golden.update:
        PAGE.write_text(page, "utf-8")
    assert PAGE.read_text("utf-8") == page


# Stopped, and gone on with


def test_another_deadline_needs_no_new_replays(tune):
    before = STUDY.read_bytes()

    tune("--catch-within", "1s")

    assert STUDY.read_bytes() == before


def test_after_ctrl_c_the_same_command_goes_on(folder, daom):
    STUDY.unlink()
    Path("space.yaml").write_text(SPACE + "detector.confirm_panes: [1, 2, 3]\n")
    command = (*COMMAND, "--jobs", "1")

    with running(*command) as process:
        eventually(lambda: STUDY.exists() and len(replays(STUDY)) == 1, ENDS_WITHIN_S)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=ENDS_WITHIN_S)
    kept = STUDY.read_bytes()
    resumed = daom(*command)

    assert process.returncode == 130
    assert re.search(r"\d replays are kept in tuned\.yaml\.study\.jsonl; to go on, run", said)
    assert resumed.code == 0
    assert STUDY.read_bytes().startswith(kept)
    assert 1 <= kept.count(b"\n") - 1 < len(replays(STUDY)) == 3


def test_another_search_does_not_go_on_with_it(tune):
    done = tune("--holdout", "0.5")

    assert done.code == 2
    assert "differs in: parts; remove it" in done.err


def test_a_full_disk_is_named_and_the_search_can_go_on(tune):
    """The limit on a file's size stands for the disk: it fails alike, in the middle of a line."""
    kept = STUDY.read_bytes()
    STUDY.write_bytes(kept[: kept.index(b"\n") + 1])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (STUDY.stat().st_size + 100, unlimited[1]))
    try:
        done = tune()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    again = tune()

    assert done.code == 2
    assert f"{STUDY}: File too large" in done.err
    assert again.code == 0
    assert STUDY.read_bytes() == kept


# Bad input


def entries(*spans):
    return [{"start": a, "end": b, "kind": "degradation"} for a, b in spans]


@pytest.mark.parametrize(
    ("incidents", "said"),
    [
        (entries(("+20m", "+30m"), ("+25m", "+35m")), "entry 2: overlaps entry 1"),
        (entries(("2040-01-01T00:00Z", "2040-01-01T01:00Z")), "2040-01-01 00:00:00 is outside"),
        (entries(("+9h", "+10h")), "is outside hour.jsonl.gz"),
        ({"start": "+1m"}, "got a map; a list of episodes is needed"),
    ],
)
def test_incidents_that_cannot_be_are_refused(tune, incidents, said):
    Path("incidents.yaml").write_text(json.dumps(incidents))

    done = tune()

    assert done.code == 2
    assert said in done.err
    assert not Path("tuned.yaml").exists()


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("", "space.yaml: got nothing"),
        ("alerts.pendng_s: [1]", "alerts.pendng_s: unknown; near it are alerts.pending_s"),
        ("alerts.fleet_share: [2.0]", "alerts.fleet_share: got 2.0"),
        ("preset: [sits2026]", "slo_s is not set"),
    ],
)
def test_a_space_that_cannot_be_is_refused_before_anything_is_read(tune, space, said):
    Path("space.yaml").write_text(space)

    done = tune(source="none.jsonl")

    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"", 3, "cut.jsonl holds no record"),
        (b"noise\n", 3, "cut.jsonl holds no telemetry to judge"),
        (b'{"schema":"Tele', 2, "breaks off in the middle of line 1"),
    ],
)
def test_a_source_that_holds_nothing_or_not_all_is_said_to(tune, content, code, said):
    Path("cut.jsonl").write_bytes(content)

    done = tune(source="cut.jsonl")

    assert done.code == code
    assert said in done.err
    assert not Path("tuned.yaml").exists()


def test_without_an_incident_it_says_what_settings_are_told_apart_by(tune):
    Path("incidents.yaml").write_text("[]")
    with gzip.open("hour.jsonl.gz") as lines:
        Path("short.jsonl").write_bytes(b"".join(islice(lines, 20)))

    done = tune("--study", "short", source="short.jsonl")

    assert done.code == 3
    assert "no incident to be caught began in the part that chooses" in done.err
    assert "nothing came to be judged: a longer recording is needed" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--output", "hour.jsonl.gz"), "hour.jsonl.gz is read, too"),
        (("--study", "incidents.yaml"), "incidents.yaml is read, too"),
        (("--output", "a", "--study", "a"), "is the output, too"),
        (("--output", "no/tuned.yaml"), "there is no directory no"),
    ],
)
def test_nothing_that_is_read_is_written_over(tune, folder, options, said):
    before = {path: path.read_bytes() for path in folder.iterdir()}

    done = tune(*options)

    assert done.code == 2
    assert said in done.err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_standard_input_is_refused(tune):
    done = tune(source="-")

    assert done.code == 2
    assert "can be read once only" in done.err
