"""Odd streams: thin, ended, constant, in other units, and what is no latency at all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.kl import KlDetector
from tests.detectors.feeding import (
    PANE_S,
    WINDOW_PANES,
    drifting,
    lognormal,
    numbers,
    scores,
    steady,
)

FEW = settings(max_examples=15, derandomize=True, deadline=None)
CALM_PANES = 120
DAY_PANES = 8_640


def assert_finite(found):
    assert all(math.isfinite(number) for score in found for number in numbers(score))


# Values


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="nothing"),
        pytest.param([0.1, 0.2], id="two samples"),
        pytest.param([0.3] * 20, id="all equal"),
        pytest.param([1e-9, 1e9] * 10, id="eighteen orders of magnitude"),
        pytest.param([0.0] * 20, id="zero"),
        pytest.param([-1.0] * 20, id="negative"),
        pytest.param([math.inf] * 20, id="infinite"),
        pytest.param([math.nan] * 20, id="not measured"),
        pytest.param([0.0, -1.0, -math.inf, math.nan, 1e-9, 1e9, 0.3] * 4, id="all of them"),
    ],
)
def test_odd_constant_streams_raise_nothing_and_yield_no_nan(values):
    found = scores(KlDetector(), [values] * 200)

    assert drifting(found) == []
    assert_finite(found)


@pytest.mark.parametrize("value", [0.32, 0.6, 1e9, math.inf])
def test_a_change_from_one_constant_to_a_larger_is_found_in_its_first_window(value):
    found = scores(KlDetector(), [[0.3] * 20] * CALM_PANES + [[value] * 20] * 10)

    assert CALM_PANES <= drifting(found)[0] < CALM_PANES + WINDOW_PANES
    assert found[-1].direction == "slower"
    assert_finite(found)


@pytest.mark.parametrize("value", [0.28, 0.15, 1e-9, 0.0, -1.0])
def test_a_change_from_one_constant_to_a_smaller_is_found_in_its_first_window(value):
    found = scores(KlDetector(), [[0.3] * 20] * CALM_PANES + [[value] * 20] * 10)

    assert CALM_PANES <= drifting(found)[0] < CALM_PANES + WINDOW_PANES
    assert found[-1].direction == "faster"
    assert_finite(found)


@pytest.mark.parametrize("values", [[], [0.1], [math.nan] * 100], ids=["none", "one", "NaN"])
def test_a_stream_of_too_few_samples_is_insufficient_and_says_why(values):
    found = scores(KlDetector(), [values] * 100)

    assert {score.drifting for score in found} == {None}
    assert {score.kl_nats for score in found} == {None}
    assert all(score.why for score in found)


@pytest.mark.parametrize("value", [math.inf, 1e9])
def test_a_fault_that_makes_all_values_huge_is_a_drift_as_long_as_it_lasts(value):
    rng = np.random.default_rng(1)

    found = scores(KlDetector(), steady(rng, CALM_PANES) + [[value] * 50] * 30 + steady(rng, 40))

    assert drifting(found)[0] < CALM_PANES + 4
    assert all(score.drifting for score in found[CALM_PANES + 4 : CALM_PANES + 30])
    assert {score.drifting for score in found[-20:]} == {False}
    assert_finite(found)


def test_values_that_could_not_be_measured_change_nothing():
    rng = np.random.default_rng(2)
    panes = steady(rng, CALM_PANES)
    with_nan = [np.concatenate([values, [math.nan] * 10]) for values in panes]

    assert scores(KlDetector(), panes) == scores(KlDetector(), with_nan)


@pytest.mark.parametrize("unit", [1e3, 1e-3, 1e9, 1e-9])
def test_a_change_of_unit_is_a_drift(unit):
    rng = np.random.default_rng(3)

    found = scores(KlDetector(), steady(rng, CALM_PANES) + steady(rng, 20, factor=unit))

    assert CALM_PANES <= drifting(found)[0] < CALM_PANES + 3
    assert found[-1].direction == ("slower" if unit > 1.0 else "faster")
    assert_finite(found)


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**-10, 2.0**10, 2.0**20])
def test_in_whatever_unit_a_stream_is_kept_it_is_judged_alike(unit):
    rng = np.random.default_rng(4)
    panes = steady(rng, CALM_PANES) + steady(rng, 20, factor=1.3)

    usual, other = (scores(KlDetector(), [u * v for v in panes]) for u in (1.0, unit))

    assert [score.drifting for score in usual] == [score.drifting for score in other]
    assert usual[-1].kl_nats == pytest.approx(other[-1].kl_nats, rel=1e-9)
    assert usual[-1].slowdown == pytest.approx(other[-1].slowdown, rel=1e-6)
    assert usual[-1].expected_p99_s * unit == pytest.approx(other[-1].expected_p99_s)


@pytest.mark.parametrize("seconds", [1e-9, 1e9])
def test_nanoseconds_and_decades_are_judged_too(seconds):
    rng = np.random.default_rng(5)
    panes = steady(rng, CALM_PANES, factor=8.0 * seconds)
    panes += steady(rng, 20, factor=16.0 * seconds if seconds < 1.0 else 4.0 * seconds)

    found = scores(KlDetector(), panes)

    assert CALM_PANES <= drifting(found)[0] < CALM_PANES + 4
    assert_finite(found)


@pytest.mark.parametrize(("left", "direction"), [(0.2, "faster"), (2.0, "slower")])
def test_a_mode_that_is_gone_is_a_drift(left, direction):
    rng = np.random.default_rng(6)
    both = [
        np.where(rng.random(50) < 0.5, 0.2, 2.0) * lognormal(rng, sigma=0.1)
        for _ in range(CALM_PANES)
    ]

    found = scores(KlDetector(), both + steady(rng, 20, factor=left, sigma=0.1))

    assert CALM_PANES <= drifting(found)[0] < CALM_PANES + WINDOW_PANES
    assert found[-1].direction == direction
    assert_finite(found)


odd_values = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-9, 1e9, 0.3])
odd_tokens = st.sampled_from([math.nan, math.inf, -1.0, 0.0, 100.0, 1e9])


@FEW
@given(
    seed=st.integers(0, 1_000),
    odd=st.lists(st.tuples(odd_values, odd_tokens), min_size=1, max_size=20),
    share=st.sampled_from([0.02, 0.5, 1.0]),
    onset=st.integers(0, 100),
)
def test_whatever_comes_no_number_is_nan_or_infinite(seed, odd, share, onset):
    rng = np.random.default_rng(seed)
    panes = []
    for number in range(CALM_PANES):
        values, tokens = lognormal(rng, 20), np.full(20, 100.0)
        chosen = (rng.random(20) < share) & (number >= onset)
        drawn = rng.integers(0, len(odd), 20)
        values[chosen] = np.array([odd[d][0] for d in drawn])[chosen]
        tokens[chosen] = np.array([odd[d][1] for d in drawn])[chosen]
        panes.append((values, tokens))

    found = scores(KlDetector(strata_base=32.0), panes)

    assert_finite(found)
    assert all((score.drifting is None) == (score.why is not None) for score in found)


# Workload


def test_a_single_stratum_is_judged_like_a_stream_without_workload():
    rng = np.random.default_rng(7)
    panes = steady(rng, CALM_PANES) + steady(rng, 20, factor=1.5)
    alike = [(values, np.full(values.size, 100.0)) for values in panes]

    without = scores(KlDetector(), panes)
    found = scores(KlDetector(strata_base=32.0), alike)

    assert [score.drifting for score in found] == [score.drifting for score in without]
    assert {score.workload_nats for score in found if score.workload_nats is not None} == {0.0}


def test_a_workload_of_which_every_row_is_another_is_still_judged():
    rng = np.random.default_rng(8)

    def spread(factor):
        tokens = np.exp(rng.uniform(np.log(32.0), np.log(100_000.0), 50))
        return factor * lognormal(rng), tokens

    panes = [spread(1.0) for _ in range(CALM_PANES)] + [spread(2.0) for _ in range(10)]
    found = scores(KlDetector(strata_base=32.0), panes)

    assert CALM_PANES <= drifting(found)[0] < CALM_PANES + WINDOW_PANES
    assert found[-1].attribution == "service"


def test_a_window_of_which_the_reference_knows_nothing_is_a_change_of_the_workload():
    rng = np.random.default_rng(9)
    panes = [(values, np.full(50, 100.0)) for values in steady(rng, CALM_PANES)]
    panes += [(values, np.full(50, 50_000.0)) for values in steady(rng, 20, factor=4.0)]

    found = scores(KlDetector(strata_base=32.0), panes)

    assert found[-1].evidence["judged_share"] == 0.0
    assert {score.attribution for score in found} <= {"none", "workload"}
    assert_finite(found)


# Streams that end, pause, and were always thin


def test_a_stream_that_has_become_too_thin_is_insufficient_not_calm():
    rng = np.random.default_rng(0)
    busy = steady(rng, CALM_PANES)
    thin = [lognormal(rng, 1 if pane % 10 == 0 else 0) for pane in range(200)]

    last = scores(KlDetector(), busy + thin)[-1]

    assert last.drifting is None
    assert "18 of 60 samples" in last.why


@pytest.mark.parametrize("samples", [1, 5, 50])
def test_a_stream_that_has_ended_is_soon_insufficient_and_not_judged_by_what_it_was(samples):
    rng = np.random.default_rng(8)
    usual = steady(rng, CALM_PANES + 1_000 // samples, samples)

    found = scores(KlDetector(), [*usual, *[[]] * 100])

    assert found[len(usual) - 1].drifting is False
    after = [score.drifting for score in found[len(usual) :]]
    first = after.index(None)
    assert first <= 10
    assert set(after[first:]) == {None}
    assert found[len(usual) + first].why == f"no sample in the last {first + 1} panes"


def test_a_stream_that_goes_on_after_a_pause_is_judged_again_at_once():
    rng = np.random.default_rng(9)
    usual = steady(rng, CALM_PANES, 20)

    found = scores(KlDetector(), [*usual, *[[]] * 20, *usual[:20]])

    assert found[CALM_PANES + 19].drifting is None
    assert [score.drifting for score in found[CALM_PANES + 20 :]] == [False] * 20


@pytest.mark.parametrize(("factor", "is_drift"), [(1.0, False), (1.5, True)])
def test_after_a_day_of_silence_a_stream_is_judged_by_what_it_was(factor, is_drift):
    rng = np.random.default_rng(11)
    detector = KlDetector()
    state = detector.initial()
    scores(detector, steady(rng, CALM_PANES), state)

    # As a series that nobody sends anything for: no panes come at all.
    after = (CALM_PANES + DAY_PANES) * PANE_S
    found = scores(detector, steady(rng, 20, factor=factor), state, after)

    assert found[-1].drifting is is_drift


def test_a_day_of_empty_panes_is_insufficient_and_is_forgotten():
    rng = np.random.default_rng(12)
    usual = steady(rng, CALM_PANES)

    found = scores(KlDetector(), [*usual, *[[]] * DAY_PANES, *steady(rng, 40)])

    assert {score.drifting for score in found[CALM_PANES + 10 : -40]} == {None}
    assert {score.drifting for score in found[-30:]} == {False}


def test_a_drift_of_a_stream_that_has_ended_is_no_drift_any_more():
    rng = np.random.default_rng(10)
    calm, slow = steady(rng, CALM_PANES), steady(rng, 20, factor=1.5)

    found = scores(KlDetector(), [*calm, *slow, *[[]] * 60])

    assert found[CALM_PANES + 19].drifting is True
    assert {score.drifting for score in found[-50:]} == {None}


@pytest.mark.parametrize("seed", range(2))
def test_a_stream_of_one_sample_in_two_panes_is_judged_all_the_time(seed):
    rng = np.random.default_rng(seed)

    found = scores(KlDetector(), (lognormal(rng, rng.poisson(0.5)) for _ in range(3_000)))

    first = next(number for number, score in enumerate(found) if score.drifting is not None)
    judged = [score.drifting for score in found[first:]]
    assert first < 1_700
    assert judged.count(False) > 0.99 * len(judged)
