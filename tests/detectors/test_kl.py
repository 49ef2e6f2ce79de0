"""What the default detector finds, how soon, and whose doing it says it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from detectors.kl import KlDetector
from tests.detectors.feeding import (
    WINDOW_PANES,
    ar1,
    drifting,
    lognormal,
    onsets,
    prompts,
    scores,
    steady,
)

CALM_PANES = 300


class Change(NamedTuple):
    """A pane after the change, in how many panes it is to be found, and what is to be said."""

    draw: object
    within_panes: int
    direction: str


def modes(rng):
    """As wide as before, and with the same median, but in two modes."""
    return np.where(rng.random(50) < 0.5, 0.65, 1.55) * lognormal(rng, sigma=0.2)


CHANGES = {
    "10 % slower": Change(lambda rng: lognormal(rng, factor=1.1), 180, "slower"),
    "20 % slower": Change(lambda rng: lognormal(rng, factor=1.2), 20, "slower"),
    "half slower": Change(lambda rng: lognormal(rng, factor=1.5), 4, "slower"),
    "10 times slower": Change(lambda rng: lognormal(rng, factor=10.0), 2, "slower"),
    "10 % faster": Change(lambda rng: lognormal(rng, factor=0.9), 120, "faster"),
    "20 % faster": Change(lambda rng: lognormal(rng, factor=0.8), 20, "faster"),
    "40 % faster": Change(lambda rng: lognormal(rng, factor=0.6), 4, "faster"),
    "2 % of samples 8 times slower": Change(
        lambda rng: lognormal(rng) * np.where(rng.random(50) < 0.02, 8.0, 1.0), 60, "slower"
    ),
    "10 % of samples 8 times slower": Change(
        lambda rng: lognormal(rng) * np.where(rng.random(50) < 0.1, 8.0, 1.0), 6, "slower"
    ),
    "wider": Change(lambda rng: lognormal(rng, sigma=0.8), 10, "slower"),
    "narrower": Change(lambda rng: lognormal(rng, sigma=0.3), 10, "none"),
    "two modes": Change(modes, 12, "none"),
}


def calm_and(change, seed, panes):
    rng = np.random.default_rng(seed)
    return steady(rng, CALM_PANES) + [change(rng) for _ in range(panes)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_found_in_time_and_is_the_services_doing(change, seed):
    panes = change.within_panes + 5

    found = scores(KlDetector(), calm_and(change.draw, seed, panes))

    first = drifting(found)[0]
    assert CALM_PANES <= first < CALM_PANES + change.within_panes
    assert {score.attribution for score in found if score.drifting} == {"service"}
    assert found[drifting(found)[-1]].direction == change.direction


@pytest.mark.parametrize("samples", [20, 100])
@pytest.mark.parametrize("seed", range(3))
def test_a_stationary_stream_raises_nothing(seed, samples):
    rng = np.random.default_rng(seed)

    found = scores(KlDetector(), steady(rng, 500, samples))

    assert drifting(found) == []
    assert all(score.drifting is False for score in found[-400:])
    assert {score.attribution for score in found} == {"none"}


# How much, and since when


@pytest.mark.parametrize("factor", [1.2, 1.5, 3.0])
def test_the_slowdown_is_told_about_right(factor):
    found = scores(KlDetector(), calm_and(lambda rng: lognormal(rng, factor=factor), 1, 30))

    told = np.median([score.slowdown for score in found[-20:]])
    assert 1.0 + told == pytest.approx(factor, rel=0.2)
    assert found[-1].evidence["p50_s"] == pytest.approx(
        factor * found[-1].evidence["expected_p50_s"], rel=0.15
    )


@pytest.mark.parametrize("factor", [0.6, 0.8])
def test_an_improvement_is_no_slowdown(factor):
    found = scores(KlDetector(), calm_and(lambda rng: lognormal(rng, factor=factor), 1, 30))

    told = [score.slowdown for score in found[-20:]]
    assert max(told) < 0.0
    assert found[-1].p99_s < found[-1].expected_p99_s


def test_a_drift_says_how_strong_the_evidence_is_and_in_which_window():
    found = scores(KlDetector(), calm_and(lambda rng: lognormal(rng, factor=1.5), 1, 12))

    evidence = found[-1].evidence
    assert evidence["evidence_nats"] > evidence["threshold_nats"] > 1.0
    assert 60.0 <= evidence["evidence_window_s"] <= 160.0
    assert evidence["body_shift"] > 0.1
    assert evidence["judged_share"] == 1.0
    assert found[-1].kl_nats > found[-1].workload_nats == 0.0


def test_a_tail_that_explodes_is_told_by_its_share():
    found = scores(KlDetector(), calm_and(CHANGES["10 % of samples 8 times slower"].draw, 1, 20))

    assert found[-1].evidence["tail_share"] > 2.0 * found[-1].evidence["expected_tail_share"]
    assert found[-1].slowdown > 1.0


# One drift a shift


@pytest.mark.parametrize("factor", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("seed", range(2))
def test_a_shift_is_one_drift_that_lasts_as_long_as_the_shift(seed, factor):
    shifted = 120

    found = scores(KlDetector(), calm_and(lambda rng: lognormal(rng, factor=factor), seed, shifted))

    (onset,) = onsets(found)
    assert CALM_PANES <= onset < CALM_PANES + 4
    assert len(drifting(found)) == CALM_PANES + shifted - onset


@pytest.mark.parametrize("factor", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("seed", range(2))
def test_a_shift_that_is_over_is_soon_no_drift_any_more(seed, factor):
    rng = np.random.default_rng(seed)
    shifted = [steady(rng, CALM_PANES), steady(rng, 60, factor=factor), steady(rng, 60)]

    found = scores(KlDetector(), [pane for part in shifted for pane in part])

    after = [score.drifting for score in found[CALM_PANES + 60 :]]
    assert after[0]
    assert set(after[2 * WINDOW_PANES :]) == {False}


# How many series share the false alarms


def test_the_more_series_share_the_false_alarms_the_more_each_needs_to_say():
    rng = np.random.default_rng(3)
    panes = steady(rng, 150)

    alone, fleet = (scores(KlDetector(), panes, series=series)[-1] for series in (1, 1_000))

    more = fleet.evidence["threshold_nats"] - alone.evidence["threshold_nats"]
    assert more == pytest.approx(np.log(1_000.0), abs=0.5)


def test_one_slow_engine_of_a_hundred_is_found_none_the_less():
    found = scores(
        KlDetector(), calm_and(lambda rng: lognormal(rng, factor=1.5), 4, 10), series=100
    )

    assert CALM_PANES <= drifting(found)[0] < CALM_PANES + WINDOW_PANES


# Service or traffic


@pytest.mark.parametrize("seed", range(3))
def test_longer_prompts_are_the_traffics_doing(seed):
    rng = np.random.default_rng(seed)
    usual = [prompts(rng, 0.2) for _ in range(CALM_PANES)]
    longer = [prompts(rng, 0.6) for _ in range(30)]

    found = scores(KlDetector(strata_base=32.0), usual + longer)
    first = drifting(found)[0]

    assert CALM_PANES <= first < CALM_PANES + WINDOW_PANES
    assert {score.attribution for score in found[first:] if score.drifting} == {"workload"}
    assert found[-1].workload_nats > 10.0 * found[-1].service_nats
    # By how it was, requests take far longer; by what is expected of such prompts, they do not.
    assert found[-1].direction == "slower"
    assert found[-1].slowdown > 1.0
    assert found[-1].p99_s == pytest.approx(found[-1].expected_p99_s, rel=0.2)


def test_the_same_prompts_served_slower_are_the_services_doing():
    rng = np.random.default_rng(1)
    usual = [prompts(rng, 0.2) for _ in range(CALM_PANES)]
    slower = [prompts(rng, 0.2, factor=1.5) for _ in range(30)]

    found = scores(KlDetector(strata_base=32.0), usual + slower)
    first = drifting(found)[0]

    assert CALM_PANES <= first < CALM_PANES + WINDOW_PANES
    assert {(s.direction, s.attribution) for s in found[first:]} == {("slower", "service")}


def test_longer_prompts_served_slower_are_both():
    rng = np.random.default_rng(2)
    usual = [prompts(rng, 0.2) for _ in range(CALM_PANES)]
    both = [prompts(rng, 0.6, factor=1.5) for _ in range(30)]

    last = scores(KlDetector(strata_base=32.0), usual + both)[-1]

    assert last.direction == "slower"
    assert last.attribution in {"mixed", "service"}
    assert min(last.workload_nats, last.service_nats) > 0.1


@pytest.mark.parametrize("seed", range(2))
def test_a_slowdown_is_found_while_the_traffic_moves(seed):
    rng = np.random.default_rng(seed)
    shares = 0.3 + 0.2 * np.sin(np.arange(400) / 30.0)
    usual = [prompts(rng, share) for share in shares]
    slower = [prompts(rng, share, factor=1.3) for share in shares[:60]]

    found = scores(KlDetector(strata_base=32.0), usual + slower)

    blamed = [n for n, s in enumerate(found) if s.attribution in {"service", "mixed"}]
    assert 400 <= blamed[0] < 420
    assert {found[n].direction for n in blamed} == {"slower"}


def wandering(rng, panes, factor=1.0):
    """Prompts whose length wanders from pane to pane, served as ever."""
    walk = np.exp(0.5 * ar1(rng, 0.8, panes))
    drawn = [600.0 * factor * w * rng.lognormal(0.0, 0.8, 25) for w in walk]
    return [((0.05 + 0.0004 * t) * rng.lognormal(0.0, 0.15, t.size), t) for t in drawn]


@pytest.mark.parametrize("seed", range(6))
def test_traffic_that_always_wanders_and_then_moves_is_never_the_services_doing(seed):
    rng = np.random.default_rng(seed)

    found = scores(KlDetector(strata_base=128.0), wandering(rng, 360) + wandering(rng, 180, 1.8))

    assert {score.attribution for score in found} <= {"none", "workload"}


def rows(rng, count, tokens):
    """Latency in proportion to the prompt: the service never changes here."""
    tokens = rng.choice(tokens, count)
    return tokens / 1_000.0 * rng.lognormal(-1.0, 0.3, count), tokens


def judge_mixes(mixes, seed=7):
    """Score panes of 20 rows whose prompts come from ``mixes``, one mix a pane."""
    rng = np.random.default_rng(seed)
    return scores(KlDetector(strata_base=32.0), [rows(rng, 20, mix) for mix in mixes])


def test_prompts_longer_than_any_before_are_a_change_of_the_workload():
    short, mixed = np.array([100]), np.array([100, 2_000])

    found = judge_mixes([short] * 200 + [mixed] * 40)

    assert drifting(found)[0] >= 200
    assert {score.attribution for score in found if score.drifting} == {"workload"}


def test_prompts_that_return_after_a_long_night_are_a_change_of_the_workload():
    day, night = np.array([100, 2_000]), np.array([100])

    found = judge_mixes([day] * 300 + [night] * 1_200 + [day] * 60)

    assert {score.attribution for score in found[1_500:]} <= {"none", "workload"}
