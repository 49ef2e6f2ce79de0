"""``daom evaluate`` as a user meets it: what it prints, where, and how it exits."""

import json
import re
from functools import partial

import pytest

from connectors.recordings import write_recording
from daom.codec import encode_json
from tests.daom.conftest import Done
from tests.daom.stories import calm, chapter, slower, story
from tests.fleet import LIGHT, OVERLOAD
from tests.kafka_servers import REPOSITORY

PAGE = REPOSITORY / "docs" / "evaluate.md"
BEGIN, END = "<!-- begin output -->", "<!-- end output -->"
OVERLOAD_LABELS = OVERLOAD.with_name("light_to_overload.labels.yaml")
LEARNING_MIN = 18
SLOW_MIN = 8


@pytest.fixture
def evaluate(daom):
    """Run ``daom evaluate`` in this process."""
    return partial(daom, "evaluate")


@pytest.fixture(scope="module")
def slowdown(tmp_path_factory):
    """Two engines, one of which takes three times as long for eight minutes."""
    path = tmp_path_factory.mktemp("evaluate") / "slowdown.jsonl.gz"
    told = story(
        calm(LEARNING_MIN), chapter(SLOW_MIN, e2=slower(3.0)), calm(7), engines=("e1", "e2")
    )
    write_recording(path, map(encode_json, told))
    return path


@pytest.fixture
def labels(tmp_path):
    """Write a label file; return its path."""

    def write(*entries):
        path = tmp_path / "labels.json"
        path.write_text(json.dumps(entries))
        return path

    return write


def degradation(**fields):
    start, end = f"+{LEARNING_MIN}m", f"+{LEARNING_MIN + SLOW_MIN}m"
    return {"start": start, "end": end, "kind": "degradation", "engine": "e2", **fields}


def score_of(done, preset, alarms):
    assert done.code == 0
    scores = json.loads(done.out)["scores"]
    return next(s for s in scores if (s["preset"], s["alarms"]) == (preset, alarms))


# What it says


def test_a_slow_engine_is_found_by_the_alert_and_before_it_by_the_verdict(
    evaluate, slowdown, labels
):
    done = evaluate(slowdown, "--labels", labels(degradation()), "--json")

    alert, verdict = (score_of(done, "default", kind) for kind in ("alerts", "verdicts"))
    assert (alert["missed"], verdict["missed"]) == (0, 0)
    assert 0.0 < verdict["delays"][0]["delay_s"] <= alert["delays"][0]["delay_s"] < 600.0
    assert done.err == ""


def test_without_a_label_the_same_alarms_are_false(evaluate, slowdown, labels):
    known = evaluate(slowdown, "--labels", labels(degradation()), "--json")
    unknown = evaluate(slowdown, "--labels", labels(), "--json")

    false = score_of(unknown, "default", "alerts")["false_alarms"]
    assert false == score_of(unknown, "default", "alerts")["count"] > 0
    assert score_of(known, "default", "alerts")["false_alarms"] < false


def test_a_page_for_what_is_labelled_as_traffic_is_false(evaluate, slowdown, labels):
    done = evaluate(slowdown, "--labels", labels(degradation(kind="workload")), "--json")

    alerts = score_of(done, "default", "alerts")
    assert alerts["delays"] == []
    assert alerts["misread"] > 0
    assert score_of(done, "default", "verdicts")["missed"] == 1


def test_only_the_default_is_held_to_a_promise_and_the_promise_is_the_configured_one(
    evaluate, slowdown, labels, monkeypatch
):
    monkeypatch.setenv("DAOM_DETECTOR__FALSE_ALARM_INTERVAL_S", "86400")

    done = evaluate(
        slowdown,
        "--labels",
        labels(degradation()),
        "--json",
        "--preset",
        "adwin",
        "--preset=default",
    )

    assert score_of(done, "adwin", "verdicts")["achieved_over_target_interval"] is None
    promised = score_of(done, "default", "verdicts")
    assert promised["target_s"] == 86_400.0
    limits_s = promised["mtbfa_interval_s"]
    assert promised["achieved_over_target_interval"][0] == pytest.approx(limits_s[0] / 86_400.0)


def test_each_preset_stands_beside_a_clock_and_beside_silence(evaluate, slowdown, labels):
    done = evaluate(
        slowdown, "--labels", labels(degradation()), "--preset", "default", "--preset", "adwin"
    )

    assert done.code == 0
    for row in (
        r"degradation e2 +. alert \d",
        r"default +. alerts: \d",
        r"default +. verdicts: \d.* over .*. over \d",
        r"adwin +. verdicts: \d",
        r"each \d+(\.\d)?[smh] +. .*%",
        r"\(silence\) . alerts: 0 +. +- . 1 of 1 . +0 . never",
    ):
        assert re.search(row, done.out), row


def test_one_signal_can_be_judged_alone(evaluate, slowdown, labels):
    every = evaluate(slowdown, "--labels", labels(degradation()), "--json")
    one = evaluate(slowdown, "--labels", labels(degradation()), "--json", "--signal", "itl_s")

    assert json.loads(one.out)["signal"] == "itl_s"
    counts = [score_of(done, "default", "verdicts")["count"] for done in (one, every)]
    assert 0 < counts[0] < counts[1]


def test_several_recordings_are_judged_together(evaluate, slowdown, labels):
    label = degradation(recording=slowdown.name)

    together = evaluate(slowdown, LIGHT, "--labels", labels(label), "--json")
    alone = evaluate(slowdown, "--labels", labels(label), "--json")

    assert [r["name"] for r in json.loads(together.out)["recordings"]] == [
        str(slowdown),
        str(LIGHT),
    ]
    both, one = (score_of(done, "default", "alerts") for done in (together, alone))
    assert both["delays"] == one["delays"]
    assert both["at_risk_s"] >= one["at_risk_s"]


def test_the_overload_that_comes_along_is_found(evaluate):
    done = evaluate(OVERLOAD, "--labels", OVERLOAD_LABELS, "--json")

    (episode,) = json.loads(done.out)["episodes"]
    assert (episode["engine"], episode["end_s"] - episode["start_s"]) == ("gpu-0", 138.0)
    alerts = score_of(done, "default", "alerts")
    assert (alerts["missed"], alerts["false_alarms"]) == (0, 0)


# What it refuses


def test_a_wrong_label_is_refused_before_anything_is_replayed(evaluate, labels):
    path = labels(degradation(engine="gpu-9", signal="ttft"), degradation(kind="worse"))

    first = evaluate(LIGHT, "--labels", path)
    path.write_text(json.dumps([degradation(start="+1m", end="+2m", engine="gpu-9")]))
    second = evaluate(LIGHT, "--labels", path)

    assert first == Done(
        2,
        "",
        f"daom: {path}: entry 2: kind: got 'worse'; allowed: degradation, improvement, workload\n",
    )
    assert second == Done(
        2, "", f"daom: {path}: entry 1: engine: 'gpu-9' is not in {LIGHT}; it has gpu-0\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([LIGHT], "Missing option '--labels'"),
        ([LIGHT, LIGHT, "--labels", OVERLOAD_LABELS], "is given twice"),
        (["-", "--labels", OVERLOAD_LABELS], "can be read once only"),
        (
            [LIGHT, "--labels", OVERLOAD_LABELS, "--signal", "ttft"],
            "'ttft'; the signals are ttft_s",
        ),
        ([LIGHT, "--labels", OVERLOAD_LABELS, "--grace", "5"], "'5'; such as 90s, 5m"),
        ([LIGHT, "--labels", OVERLOAD_LABELS, "--preset", "best"], "'best' is not one of"),
        ([LIGHT, "--labels", OVERLOAD_LABELS, "--preset", "sits2026"], "slo_s is not set"),
        ([LIGHT, "--labels", OVERLOAD_LABELS], "entry 1: start: 2025-11-24 16:21:03 is outside"),
        (["none.jsonl", "--labels", OVERLOAD_LABELS], "none.jsonl: No such file"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_why(evaluate, arguments, says):
    done = evaluate(*arguments)

    assert (done.code, done.out) == (2, "")
    assert says in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_what_no_preset_came_to_judge_exits_with_3(evaluate, labels, tmp_path):
    short = tmp_path / "short.jsonl"
    write_recording(short, map(encode_json, story(calm(1))))

    done = evaluate(short, "--labels", labels())

    assert (done.code, done.out) == (3, "")
    assert done.err == "daom: default came to judge nothing: a longer recording is needed\n"


def test_a_recording_without_telemetry_exits_with_3(evaluate, labels, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"schema": "Other/1"}\n')

    done = evaluate(empty, "--labels", labels())

    assert done == Done(3, "", f"daom: {empty} holds no record that could be judged\n")


def test_what_could_not_be_found_and_what_could_not_be_used_is_told(
    evaluate, slowdown, labels, tmp_path
):
    longer = tmp_path / "longer.jsonl"
    told = story(calm(LEARNING_MIN), engines=("e1", "e2"))
    write_recording(longer, [b'{"schema": "Other/1"}', *map(encode_json, told)])
    early = degradation(start="+1m", end="+5m")

    done = evaluate(longer, "--labels", labels(early))

    assert done.code == 0
    assert done.err.splitlines() == [
        "could not be used: 1 x unknown_schema",
        "daom: default had judged nothing yet when 1 of 1 episodes began",
    ]


# The documentation


def test_the_documentation_shows_what_its_command_prints(evaluate, golden, monkeypatch):
    """Its numbers are nobody's: ``--update-golden`` writes them."""
    monkeypatch.chdir(REPOSITORY)
    text = PAGE.read_text("utf-8")
    command = re.search(r"^daom evaluate (.*)$", text, re.MULTILINE).group(1)
    monkeypatch.setenv("COLUMNS", "100")

    done = evaluate(*command.split())

    lines = "\n".join(line.rstrip() for line in done.out.splitlines())
    shown = f"{BEGIN}\n\n```\n{lines}\n```\n\n{END}"
    page = re.sub(f"{BEGIN}.*{END}", lambda _: shown, text, flags=re.DOTALL)
    if golden.update:
        PAGE.write_text(page, "utf-8")
    assert done.code == 0
    assert PAGE.read_text("utf-8") == page
