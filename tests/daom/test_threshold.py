"""The threshold follows the traffic, never a degradation of the service."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.threshold import (
    ExpectedP99Threshold,
    FixedThreshold,
    NoThreshold,
    Sits2026Threshold,
)
from detectors.protocol import DriftScore
from detectors.sits2026 import sits2026_threshold_s

POLICY = ExpectedP99Threshold(headroom=0.25, min_change=0.05)


def score(**fields):
    return DriftScore(**{"end_s": 0.0, "samples": 300, "drifting": False} | fields)


def suspected(attribution, expected_p99_s=2.0):
    return score(suspected=True, attribution=attribution, expected_p99_s=expected_p99_s)


CASES = {
    # score, in force, threshold called for, why
    "nothing known yet": (score(), None, None, None),
    "learned: the first threshold": (
        score(expected_p99_s=1.0, learned="learned"),
        None,
        1.25,
        "learned",
    ),
    "not learned yet: none": (score(expected_p99_s=1.0), None, None, None),
    "adopted: the new normal, looser": (
        score(expected_p99_s=2.0, learned="adopted"),
        1.25,
        2.5,
        "adopted",
    ),
    "a trifle": (score(expected_p99_s=1.03), 1.25, None, None),
    "the calm reference grew": (
        score(expected_p99_s=1.1),
        1.25,
        1.375,
        "the reference learned",
    ),
    "the calm reference shrank": (
        score(expected_p99_s=0.8),
        1.25,
        1.0,
        "the reference learned",
    ),
    "heavier traffic loosens": (suspected("workload"), 1.25, 2.5, "the workload shifted"),
    "lighter traffic tightens": (
        suspected("workload", 0.8),
        1.25,
        1.0,
        "the workload shifted",
    ),
    "a slower service does not loosen": (suspected("service"), 1.25, None, None),
    "a mixture does not loosen": (suspected("mixed"), 1.25, None, None),
    "a suspicion does not loosen": (suspected("none"), 1.25, None, None),
    "a P99 above the threshold does not loosen it": (
        score(expected_p99_s=1.1, p99_s=1.3),
        1.25,
        None,
        None,
    ),
    "a P99 at the threshold is no excess": (
        score(expected_p99_s=1.1, p99_s=1.25),
        1.25,
        1.375,
        "the reference learned",
    ),
    "a P99 above the threshold may tighten it": (
        score(expected_p99_s=0.8, p99_s=1.3),
        1.25,
        1.0,
        "the reference learned",
    ),
    "a P99 that the traffic explains loosens": (
        score(suspected=True, attribution="workload", expected_p99_s=2.0, p99_s=2.1),
        1.25,
        2.5,
        "the workload shifted",
    ),
    "a suspicion may tighten": (suspected("service", 0.8), 1.25, 1.0, "the reference learned"),
}


@pytest.mark.parametrize(("found", "in_force_s", "called_s", "why"), CASES.values(), ids=CASES)
def test_the_threshold_moves_as_the_traffic_explains(found, in_force_s, called_s, why):
    move = POLICY(found, in_force_s)

    assert (move.threshold_s if move else None) == (called_s and pytest.approx(called_s))
    assert (move.why if move else None) == why


scores = st.builds(
    score,
    drifting=st.sampled_from([True, False, None]),
    suspected=st.just(True),
    attribution=st.sampled_from(["service", "mixed", "none"]),
    expected_p99_s=st.none() | st.floats(1e-3, 1e3),
    p99_s=st.floats(1e-3, 1e4),
    slowdown=st.floats(0.0, 100.0),
    kl_nats=st.floats(0.0, 10.0),
)


@given(found=scores, in_force_s=st.floats(1e-3, 1e3))
def test_while_the_service_is_suspected_the_threshold_never_loosens(found, in_force_s):
    move = POLICY(found, in_force_s)

    assert move is None or move.threshold_s < in_force_s


@given(expected_p99_s=st.floats(1e-3, 1e3), in_force_s=st.floats(1e-3, 1e3))
def test_while_p99_is_above_it_nothing_but_traffic_loosens_the_threshold(
    expected_p99_s, in_force_s
):
    calm = score(expected_p99_s=expected_p99_s, p99_s=1.01 * in_force_s)

    move = POLICY(calm, in_force_s)

    assert move is None or move.threshold_s < in_force_s


@given(found=scores, in_force_s=st.floats(1e-3, 1e3), p99_s=st.floats(1e-3, 1e4))
def test_what_is_measured_now_does_not_enter_the_threshold(found, in_force_s, p99_s):
    slower = score(
        suspected=True,
        attribution=found.attribution,
        expected_p99_s=found.expected_p99_s,
        p99_s=p99_s,
    )

    assert POLICY(found, in_force_s) == POLICY(slower, in_force_s)


# The document's rule, and the static ones


@pytest.mark.parametrize(
    ("kl_nats", "called_s"), [(0.0, 2.0), (0.04, 2.2), (0.15, 2.75), (9.0, 2.75)]
)
def test_the_documents_rule_scales_the_base_slo_by_kl(kl_nats, called_s):
    move = Sits2026Threshold(2.0)(score(kl_nats=kl_nats), 1.0)

    assert move.threshold_s == pytest.approx(called_s)
    assert move.why == f"KL {kl_nats:.3f} nats"


def test_the_documents_rule_begins_with_the_base_slo_and_waits_for_a_kl():
    rule = Sits2026Threshold(2.0)

    assert rule(score(), None).threshold_s == 2.0
    assert rule(score(), 2.0) is None


@given(kl_nats=st.floats(0.0, 100.0))
def test_the_documents_rule_says_nothing_twice(kl_nats):
    in_force_s = sits2026_threshold_s(2.0, kl_nats)

    assert Sits2026Threshold(2.0)(score(kl_nats=kl_nats), in_force_s) is None


def test_a_fixed_threshold_is_said_once():
    rule = FixedThreshold(0.5)

    assert rule(score(kl_nats=3.0), None).threshold_s == 0.5
    assert rule(score(kl_nats=3.0), 0.5) is None


def test_without_a_reference_or_an_slo_there_is_no_threshold():
    assert NoThreshold()(score(kl_nats=3.0, expected_p99_s=1.0), None) is None
