"""What one cycle says about possible alerts."""

import pytest

from daom.conditions import (
    DriftRules,
    cell_silence_condition,
    silence_condition,
    stall_condition,
)
from daom.engine import EngineState
from detectors.protocol import DriftScore

T0 = 1_766_000_000.0
RULES = DriftRules(min_slowdown=0.1, critical_slowdown=1.0)
LETTER = DriftRules(threshold_alone=True)
THRESHOLD_S = 1.0


def score(**fields):
    known = {"end_s": T0, "samples": 300, "drifting": False, "p99_s": 0.5}
    return DriftScore(**known | fields)


def slow(slowdown=0.5, **fields):
    drift = {"drifting": True, "suspected": True, "direction": "slower", "attribution": "service"}
    return score(slowdown=slowdown, **drift | fields)


def judged(found, rules=RULES):
    return rules.condition("e1", "ttft_s", found, THRESHOLD_S)


SCORES = {
    # score: active, clear, drifting
    "calm": (score(), False, True, False),
    "too little to say": (score(drifting=None), None, True, False),
    "slower": (slow(), True, False, True),
    "slower by a trifle": (slow(0.05), False, True, False),
    "nearly as slow as matters": (slow(0.09), False, False, False),
    "faster": (slow(-0.5, direction="faster"), False, True, False),
    "neither slower nor faster": (slow(0.5, direction="none"), False, True, False),
    "suspected of being slower": (
        score(suspected=True, direction="slower", slowdown=0.5),
        False,
        False,
        False,
    ),
    "above its threshold": (score(p99_s=1.1), True, False, False),
    "at its threshold": (score(p99_s=1.0), False, True, False),
    "slower and above its threshold": (slow(p99_s=1.1), True, False, True),
    "above its threshold, too little to say": (
        score(drifting=None, p99_s=1.1),
        None,
        False,
        False,
    ),
}


@pytest.mark.parametrize(("found", "active", "clear", "drifting"), SCORES.values(), ids=SCORES)
def test_a_score_makes_a_condition(found, active, clear, drifting):
    condition = judged(found)

    assert (condition.active, condition.clear, condition.drifting) == (active, clear, drifting)


@pytest.mark.parametrize(
    ("found", "severity"),
    [
        (slow(0.5), "warning"),
        (slow(0.99), "warning"),
        (slow(1.0), "critical"),
        (slow(5.0), "critical"),
        (slow(5.0, attribution="mixed"), "critical"),
        (slow(5.0, attribution="workload"), "info"),
    ],
)
def test_twice_as_slow_is_critical_and_what_the_traffic_explains_is_information(found, severity):
    assert judged(found).severity == severity


def test_without_a_threshold_only_a_drift_counts():
    condition = RULES.condition("e1", "ttft_s", score(p99_s=9.0), None)

    assert (condition.active, condition.clear) == (False, True)


@pytest.mark.parametrize(("p99_s", "active"), [(1.1, True), (0.9, False)])
def test_to_the_letter_the_threshold_alone_raises(p99_s, active):
    condition = judged(slow(p99_s=p99_s), LETTER)

    assert (condition.active, condition.drifting) == (active, active)


def test_annotations_say_what_was_found_in_words_and_numbers():
    numbers = {"kl_nats": 0.25, "workload_nats": 0.05, "service_nats": 0.2}
    found = slow(0.5, p99_s=1.234_567_89, expected_p99_s=0.8, **numbers)

    assert judged(found).annotations == {
        "summary": "ttft_s of engine e1 is 50% above its reference",
        "p99_s": "1.23457",
        "threshold_s": "1",
        "kl_nats": "0.25",
        "workload_nats": "0.05",
        "service_nats": "0.2",
        "attribution": "service",
        "samples": "300",
        "tail": "P99 1.23 s, expected 0.8 s",
    }


def test_annotations_tell_the_body_from_the_tail():
    found = slow(5.0, p99_s=1.4, expected_p99_s=0.083)
    found.evidence.update(p50_s=0.15, expected_p50_s=0.076)

    annotations = judged(found).annotations

    assert annotations["body"] == "P50 0.15 s, expected 0.076 s"
    assert annotations["tail"] == "P99 1.4 s, expected 0.083 s"


def test_a_tail_behind_a_cap_is_said_to_be_unresolved():
    found = slow(5.0, p99_s=60.3, expected_p99_s=0.2)
    found.evidence.update(saturated_share=0.031, saturated_at_s=60.0)

    assert judged(found).annotations["tail"] == (
        "P99 is saturated: 3.1% of the samples are exactly 60 s, the largest: it is that or more"
    )


def test_what_is_measured_otherwise_pages_nobody():
    remarks = {"measurement_change": "requests take what they took"}

    condition = RULES.condition("e1", "itl_s", slow(5.0), THRESHOLD_S, remarks)

    assert (condition.active, condition.severity) == (True, "info")
    assert condition.annotations["measurement_change"] == "requests take what they took"


# Silence and stall


def engine(last_s=0.0, progress_s=0.0, **fields):
    """An engine heard ``last_s`` ago that finished something ``progress_s`` ago."""
    return EngineState(last_s=T0 - last_s, progress_s=T0 - progress_s, **fields)


@pytest.mark.parametrize(
    ("silent_s", "cell_silent", "active"),
    [(0.0, False, False), (60.0, False, False), (61.0, False, True), (61.0, True, None)],
)
def test_an_engine_is_silent_when_others_are_not(silent_s, cell_silent, active):
    condition = silence_condition("e1", engine(silent_s), T0, 60.0, cell_silent=cell_silent)

    assert condition.active == active
    assert condition.clear == (silent_s <= 60.0)


STALLS = {
    # engine, active
    "working": (engine(progress_s=5.0, in_flight=8.0, reports_steps=True), False),
    "idle": (engine(progress_s=5_000.0, in_flight=0.0, reports_steps=True), False),
    "stuck": (engine(progress_s=61.0, in_flight=8.0, reports_steps=True), True),
    "stuck for a moment": (engine(progress_s=60.0, in_flight=8.0, reports_steps=True), False),
    "stuck and silent": (engine(61.0, progress_s=90.0, in_flight=8.0, reports_steps=True), None),
    "without steps, a request may take its time": (engine(progress_s=299.0, in_flight=1.0), False),
    "without steps, for too long": (engine(progress_s=301.0, in_flight=1.0), True),
    "without steps, requests that are long": (
        engine(progress_s=1_000.0, in_flight=1.0, longest_request_s=400.0),
        False,
    ),
    "without steps, longer than three of them": (
        engine(progress_s=1_201.0, in_flight=1.0, longest_request_s=400.0),
        True,
    ),
}


@pytest.mark.parametrize(("state", "active"), STALLS.values(), ids=STALLS)
def test_an_engine_is_stalled_when_it_has_work_and_finishes_none(state, active):
    condition = stall_condition("e1", state, T0, 60.0)

    assert condition.active == active


@pytest.mark.parametrize(("silent_s", "active"), [(60.0, False), (61.0, True)])
def test_a_cell_is_silent_when_nobody_has_been_heard(silent_s, active):
    condition = cell_silence_condition(T0 - silent_s, T0, 60.0)

    assert (condition.active, condition.clear) == (active, not active)
    assert (condition.engine, condition.severity) == (None, "critical")
