"""Label files: what they may say, and what is said of those that are wrong."""

import json

import pytest

from daom.errors import ConfigError
from daom.labels import Recorded, place, read_labels
from detectors.evaluation import Episode

T0 = 1_764_000_000.0
"""2025-11-24 16:00 UTC."""
HOUR_S = 3_600.0
RECORDED = Recorded(
    name="runs/monday.jsonl.gz",
    start_s=T0,
    end_s=T0 + HOUR_S,
    engines={"llama": {"e1", "e2"}, "qwen": {"q1"}},
)
TUESDAY = Recorded(
    name="runs/tuesday.jsonl.gz",
    start_s=T0 + 24 * HOUR_S,
    end_s=T0 + 25 * HOUR_S,
    engines={"llama": {"e1"}},
)
SIGNALS = ("ttft_s", "itl_s")


@pytest.fixture
def written(tmp_path):
    """Write a label file and read it."""

    def write(text):
        path = tmp_path / "labels.yaml"
        path.write_text(text)
        return read_labels(path)

    return write


def entry(**fields):
    return {"start": "+10m", "end": "+20m", "kind": "degradation", **fields}


def placed(written, *entries, recordings=(RECORDED,)):
    return place(written(json.dumps(entries)), recordings, SIGNALS)


# Times


@pytest.mark.parametrize(
    "start",
    [
        "+10m",
        "+0h9m60s",
        "2025-11-24T16:10:00Z",
        "2025-11-24 16:10",
        "2025-11-24T17:10:00+01:00",
        T0 + 600.0,
    ],
)
def test_a_time_is_iso_8601_or_unix_seconds_or_since_the_start(written, start):
    (labelled,) = placed(written, entry(start=start)).episodes[0]

    assert labelled.episode == Episode(T0 + 600.0, T0 + 1_200.0)


def test_yaml_times_are_read_as_they_are_written(written):
    """YAML itself would make of the first a date without a zone, of a note a number."""
    (label,) = written(
        "- start: 2025-11-24T16:10:00Z\n  end: +20m\n  kind: workload\n  note: 16:10\n"
    )

    assert (label.start.time_s, label.note) == (T0 + 600.0, "16:10")


def test_an_empty_list_says_that_nothing_happened(written):
    assert written("[]") == []


# What is wrong in a file


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["file without a value", "a list of episodes"]),
        ("start: 1", ["got a map", "a list of episodes"]),
        ("- {", ["not YAML"]),
        ("- soon", ["entry 1", "got a single value", "start, end, kind"]),
        ("- {start: soon, end: +1m, kind: workload}", ["entry 1: start", "'soon'", "+20m"]),
        ("- {start: .nan, end: +1m, kind: workload}", ["entry 1: start", "'.nan'"]),
        ("- {start: nan, end: +1m, kind: workload}", ["entry 1: start", "'nan'"]),
        ("- {end: +1m, kind: workload}", ["entry 1: start: missing"]),
        ("- {start: +1m, end: +2m}", ["entry 1: kind: missing", "degradation, improvement"]),
        ("- {start: +1m, end: +2m, kind: bad}", ["entry 1: kind", "'bad'", "workload"]),
        ("- {start: +1m, end: +2m, kind: [a]}", ["entry 1: kind: got a list"]),
        (
            "- {start: +1m, end: +2m, kind: workload, engines: e1}",
            ["entry 1: engines: unknown", "engine, signal"],
        ),
    ],
)
def test_a_wrong_entry_is_one_line_with_file_entry_field_and_what_is_allowed(written, text, parts):
    with pytest.raises(ConfigError) as raised:
        written(text)

    message = str(raised.value)
    assert message.count("\n") == 0
    assert all(part in message for part in ["labels.yaml: ", *parts])


def test_every_fault_of_a_file_is_told_at_once(written):
    with pytest.raises(ConfigError) as raised:
        written("- {start: a, end: b, kind: c}\n- {}")

    assert [line.split(": ")[1:3] for line in str(raised.value).splitlines()] == [
        ["entry 1", "start"],
        ["entry 1", "end"],
        ["entry 1", "kind"],
        ["entry 2", "start"],
        ["entry 2", "end"],
        ["entry 2", "kind"],
    ]


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        read_labels(tmp_path / "none.yaml")


# What does not fit a recording


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"end": "+10m"}, ["end: 2025-11-24 16:10:00 is not after start"]),
        ({"end": "+5m"}, ["end: 2025-11-24 16:05:00 is not after start"]),
        ({"start": "+2h", "end": "+3h"}, ["start: 2025-11-24 18:00:00 is outside", "17:00:00"]),
        ({"start": 5, "end": "+3m"}, ["start: 1970-01-01 00:00:05 is outside runs/monday"]),
        ({"engine": "e9"}, ["engine: 'e9' is not in", "e1, e2, q1"]),
        ({"model": "qwen", "engine": "e1"}, ["engine: 'e1' is not in", "it has q1"]),
        ({"model": "gpt"}, ["model: 'gpt' is not in", "llama, qwen"]),
        ({"signal": "ttft"}, ["signal: 'ttft' is not monitored", "itl_s, ttft_s"]),
    ],
)
def test_a_label_that_fits_no_recording_says_why(written, fields, parts):
    with pytest.raises(ConfigError) as raised:
        placed(written, entry(**fields))

    assert all(part in str(raised.value) for part in ["labels.yaml: entry 1: ", *parts])


def test_episodes_of_one_series_must_not_overlap(written):
    both = [entry(engine="e1"), entry(start="+15m", end="+30m", signal="ttft_s")]

    with pytest.raises(ConfigError, match=r"entry 2: overlaps entry 1 from .* 16:15:00 to .*16:20"):
        placed(written, *both)


@pytest.mark.parametrize(
    "second",
    [{"engine": "e2"}, {"engine": "e1", "start": "+20m", "end": "+30m"}],
    ids=["of another engine", "one after the other"],
)
def test_episodes_that_share_no_moment_of_a_series_may(written, second):
    (episodes,) = placed(written, entry(engine="e1"), entry(**second)).episodes

    assert len(episodes) == 2


def test_an_end_after_the_recording_is_cut_to_it_and_told(written):
    found = placed(written, entry(end="+2h"))

    assert found.episodes[0][0].episode.end_s == RECORDED.end_s
    assert "entry 1: end: 2025-11-24 18:00:00 is after the end" in found.warnings[0]


# Several recordings


BOTH = (RECORDED, TUESDAY)


def counts(found):
    return [len(episodes) for episodes in found.episodes]


def test_a_relative_label_is_of_every_recording_unless_it_names_one(written):
    assert counts(placed(written, entry(), recordings=BOTH)) == [1, 1]
    named = entry(recording="tuesday.jsonl.gz")
    assert counts(placed(written, named, recordings=BOTH)) == [0, 1]


def test_a_label_at_a_time_of_day_is_of_the_recording_that_it_is_in(written):
    at_ten = entry(start="2025-11-25T16:10:00Z", end="2025-11-25T16:20:00Z")

    assert counts(placed(written, at_ten, recordings=BOTH)) == [0, 1]


def test_a_label_of_a_recording_that_is_not_judged_is_left_out_and_told(written):
    found = placed(written, entry(recording="sunday.jsonl"))

    assert counts(found) == [0]
    assert "entry 1: left out: its recording 'sunday.jsonl'" in found.warnings[0]


# What an episode is about


@pytest.mark.parametrize(
    ("fields", "series", "concerned"),
    [
        ({}, ("llama", "e1", "ttft_s"), True),
        ({}, ("llama", None, "ttft_s"), True),
        ({"engine": "e1"}, ("llama", "e1", "itl_s"), True),
        ({"engine": "e1"}, ("llama", None, "itl_s"), True),
        ({"engine": "e1"}, ("llama", "e2", "itl_s"), False),
        ({"engine": "e1"}, ("llama", "e1", None), True),
        ({"signal": "itl_s"}, ("llama", "e1", "ttft_s"), False),
        ({"signal": "itl_s"}, ("llama", "e1", None), True),
        ({"model": "qwen"}, ("llama", "e1", "ttft_s"), False),
    ],
)
def test_an_episode_concerns_its_engine_and_the_fleet(written, fields, series, concerned):
    (labelled,) = placed(written, entry(**fields)).episodes[0]

    assert labelled.concerns(*series) is concerned
