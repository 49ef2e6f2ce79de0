from __future__ import annotations

import math

import numpy as np
import pytest

from detectors.sits2026 import (
    Sits2026Detector,
    sits2026_kl_nats,
    sits2026_root_cause_due,
    sits2026_threshold_s,
)

WINDOW_S = 100.0
EVEN, SKEWED = 150, 285


def window(fast):
    """300 samples, so many of them 1 s, the others 2 s: two bins."""
    return np.repeat([1.0, 2.0], [fast, 300 - fast])


def scores(windows, *, window_s=WINDOW_S, state=None, start_s=0.0):
    """Feed one window a pane; its last sample is at the pane's end."""
    detector = Sits2026Detector()
    state = detector.initial() if state is None else state
    found = []
    for number, values in enumerate(windows):
        begin_s = start_s + number * window_s
        times_s = begin_s + window_s * np.arange(1, len(values) + 1) / len(values)
        pane = detector.new_pane()
        pane.add(np.asarray(values, np.float32), times_s, None)
        found.extend(detector.update(state, pane, begin_s + window_s))
    return found


def cycles(found):
    return [int(score.evidence["drifting_cycles"]) for score in found if score.evidence]


def recalibrated(found):
    return [n for n, s in enumerate(found) if s.learned and s.learned.startswith("recalibrated")]


def test_kl_by_hand():
    """One is added to each count: the base is 151 and 151 of 302, the current 271 and 31.

    KL = 1/2 ln(151/271) + 1/2 ln(151/31) = -0.292419 + 0.791646 = 0.499227.
    """
    base, now = scores([window(150), window(270)])

    assert base.kl_nats is None
    assert now.kl_nats == pytest.approx(0.499227, abs=1e-6)
    assert (now.drifting, now.samples, now.end_s) == (True, 300, 200.0)


def test_kl_is_that_of_the_base_from_the_current_and_not_the_other_way():
    """The other way: 271/302 ln(271/151) + 31/302 ln(31/151) = 0.524806 - 0.162523 = 0.362282."""
    assert sits2026_kl_nats(np.array([150, 150]), np.array([270, 30])) == pytest.approx(
        0.499227, abs=1e-6
    )
    assert sits2026_kl_nats(np.array([270, 30]), np.array([150, 150])) == pytest.approx(
        0.362282, abs=1e-6
    )


def test_a_bin_that_the_current_window_left_counts_and_one_that_nobody_occupies_does_not():
    """Base 151 and 151 of 302, current 301 and 1.

    KL = 1/2 ln(151/301) + 1/2 ln 151 = -0.344915 + 2.508640 = 2.163725.
    """
    kl_nats = sits2026_kl_nats(np.array([0, 150, 0, 150]), np.array([0, 300, 0, 0]))

    assert kl_nats == pytest.approx(2.163725, abs=1e-6)


def test_all_samples_before_the_window_are_the_base_drifting_ones_too():
    """The base is a calm and a drifting window: 420 and 180.

    Base 421 and 181 of 602, current 271 and 31 of 302:
    421/602 ln(421/602 * 302/271) + 181/602 ln(181/602 * 302/31) = -0.174356 + 0.323118 = 0.148762.
    """
    found = scores([window(150), window(270), window(270)])

    assert found[-1].kl_nats == pytest.approx(0.148762, abs=1e-6)


@pytest.mark.parametrize(
    ("kl_nats", "threshold_s"),
    [(0.0, 2.0), (0.05, 2.25), (0.12, 2.6), (0.15, 2.75), (0.5, 2.75), (math.inf, 2.75)],
)
def test_the_threshold_rises_with_kl_by_37_percent_and_a_half_at_most(kl_nats, threshold_s):
    assert sits2026_threshold_s(2.0, kl_nats) == pytest.approx(threshold_s)


@pytest.mark.parametrize("base_slo_s", [0.0, -1.0, math.nan])
def test_a_base_slo_that_is_no_duration_is_refused(base_slo_s):
    with pytest.raises(ValueError, match="base_slo_s must be positive"):
        sits2026_threshold_s(base_slo_s, 0.1)


@pytest.mark.parametrize("kl_nats", [-0.01, math.nan])
def test_a_kl_that_is_none_is_refused(kl_nats):
    with pytest.raises(ValueError, match="kl_nats must be 0 or more"):
        sits2026_threshold_s(1.0, kl_nats)


@pytest.mark.parametrize(
    ("lasted_s", "due"), [(0.0, False), (299.0, False), (300.0, False), (300.1, True)]
)
def test_root_cause_analysis_is_due_after_longer_than_five_minutes(lasted_s, due):
    assert sits2026_root_cause_due(lasted_s) is due


def test_drift_lasts_from_the_end_of_its_first_cycle_to_the_end_of_its_newest():
    found = scores([window(EVEN)] * 20 + [window(SKEWED)] * 3, window_s=300.0)
    lasted_s = [score.evidence["drift_lasted_s"] for score in found[-3:]]

    assert lasted_s == [0.0, 300.0, 600.0]
    assert [sits2026_root_cause_due(s) for s in lasted_s] == [False, False, True]


def test_a_calm_cycle_ends_the_drift_and_a_recalibration_does_not():
    ever_slower = [np.full(300, 2.0**octave) for octave in range(6)]

    found = scores([*ever_slower, np.full(300, 32.0), np.repeat([16.0, 32.0], [100, 200])])

    lasted_s = [score.evidence["drift_lasted_s"] for score in found[1:]]
    assert [score.drifting for score in found[1:]] == [True] * 6 + [False]
    assert lasted_s == [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 0.0]
    assert cycles(found) == [1, 2, 3, 1, 2, 3, 0]


def test_three_consecutive_drifting_cycles_recalibrate():
    found = scores([window(EVEN)] * 20 + [window(SKEWED)] * 4)

    assert recalibrated(found) == [22]
    assert found[22].drifting is True
    assert found[22].learned == "recalibrated after 3 consecutive cycles with kl > 0.12"
    assert cycles(found[20:]) == [1, 2, 3, 0]


def test_the_new_base_is_the_three_windows_and_nothing_before():
    """Base 286 + 285 + 285 = 856 of 902, that is 855 and 45 plus one each; current 286 and 16."""
    found = scores([window(EVEN)] * 20 + [window(SKEWED)] * 4)
    base, now = np.array([856, 46]) / 902, np.array([286, 16]) / 302
    by_hand = float(np.sum(base * np.log(base / now)))

    assert found[-1].kl_nats == pytest.approx(by_hand, abs=1e-9)
    assert found[-1].drifting is False


def test_two_drifting_cycles_do_not_recalibrate():
    found = scores([window(EVEN)] * 20 + [window(SKEWED)] * 2 + [window(EVEN)])

    assert recalibrated(found) == []
    assert cycles(found[20:]) == [1, 2, 0]


def test_two_a_calm_one_and_one_more_do_not_recalibrate():
    found = scores(
        [window(EVEN)] * 20 + [window(SKEWED)] * 2 + [window(EVEN)] + [window(SKEWED)] * 2
    )

    assert recalibrated(found) == []
    assert cycles(found[20:]) == [1, 2, 0, 1, 2]


def test_after_a_recalibration_the_old_normal_is_a_drift():
    found = scores([window(EVEN)] * 20 + [window(SKEWED)] * 3 + [window(EVEN)])

    assert (found[-1].drifting, found[-1].direction) == (True, "slower")


def test_a_window_is_300_samples_whatever_the_panes():
    found = scores([np.ones(299), np.ones(1), np.ones(750), np.ones(0)])

    assert [score.samples for score in found] == [299, 300, 300, 300, 150]
    assert [score.why for score in found] == [
        "299 of 300 samples",
        "the first 300 samples found the base",
        None,
        None,
        "150 of 300 samples",
    ]
    # The pane's 750 samples end at 200 s + k * 100/750 s; the windows at the 300th and 600th.
    assert [score.end_s for score in found] == pytest.approx([100, 200, 240, 280, 400])


def test_where_a_window_ends_inside_a_pane_its_samples_are_taken_by_event_time():
    detector = Sits2026Detector()
    state = detector.initial()
    pane = detector.new_pane()
    late_first = np.arange(400.0)[::-1]
    pane.add((late_first + 1.0).astype(np.float32), late_first, None)

    (score,) = detector.update(state, pane, 400.0)

    assert score.end_s == 299.0
    assert score.p99_s == pytest.approx(np.quantile(np.arange(1.0, 301.0), 0.99))
    assert state.values.tolist() == list(range(301, 401))


def test_the_p99_is_that_of_the_windows_raw_values():
    rng = np.random.default_rng(3)
    values = rng.lognormal(-1.0, 0.5, 300).astype(np.float32)

    (score,) = scores([values])

    assert score.p99_s == pytest.approx(float(np.quantile(values, 0.99)), rel=1e-6)
    assert score.expected_p99_s is None


def test_an_improvement_is_faster_and_loosens_the_threshold_all_the_same():
    """The letter's fault, kept."""
    found = scores([window(EVEN)] * 20 + [window(SKEWED)])

    assert (found[-1].drifting, found[-1].direction) == (True, "faster")
    assert sits2026_threshold_s(1.0, found[-1].kl_nats) > 1.3
    assert {score.attribution for score in found} == {"none"}


@pytest.mark.parametrize("seed", range(5))
def test_a_stationary_stream_seldom_drifts_and_half_slower_is_found_at_once(seed):
    rng = np.random.default_rng(seed)
    calm = [rng.lognormal(-1.0, 0.5, 300) for _ in range(40)]

    found = scores([*calm, 1.5 * rng.lognormal(-1.0, 0.5, 300)])

    assert [score.drifting for score in found[1:]] == [False] * 39 + [True]
    assert found[-1].direction == "slower"


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-9, 0.3, 1e9, math.inf, -math.inf])
def test_a_constant_stream_never_drifts(value):
    found = scores([np.full(300, value)] * 5)

    assert [score.kl_nats for score in found] == [None, 0.0, 0.0, 0.0, 0.0]
    assert all(math.isfinite(score.p99_s) for score in found)


def test_the_state_stays_bounded():
    rng = np.random.default_rng(0)
    detector = Sits2026Detector()
    state = detector.initial()
    for start_s in range(0, 2_000, 20):
        scores([rng.lognormal(size=997)] * 2, window_s=10.0, state=state, start_s=start_s)

    assert state.values.size < 300
    assert state.values.base is None
    assert (state.base.size, state.run.size) == (240, 240)
    assert state.base.dtype == np.int64
