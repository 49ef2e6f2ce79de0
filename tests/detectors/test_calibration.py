"""How much evidence is too much: measured on the reference, and true on what follows it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.calibration import calibrate, threshold_nats
from detectors.evidence import Evidence, learn_reference, scan
from detectors.histogram import SparseCounts, bin_index
from detectors.ranks import BODY, INSIDE, SAMPLES, rank_among
from tests.detectors.feeding import ar1

FEW = settings(max_examples=40, derandomize=True, deadline=None)
PANE_SAMPLES = 20
REFERENCE_PANES = 360
CONFIRM_PANES = 2
LOG_RATES = st.floats(-5.0, 3.0)
INTERVALS = st.floats(50.0, 1e7)


def counts_of(values):
    return SparseCounts.of_cells(bin_index(np.asarray(values, np.float32)))


def reference_of(values):
    """Return the ranks and the rows of a reference, ``values`` a pane each."""
    ranks = rank_among(counts_of(values.ravel()))
    rows = np.array([ranks.scores(counts_of(pane)) for pane in values])
    rows[:, INSIDE] = rows[:, SAMPLES]
    return ranks, rows


def latencies(seed, panes, rho=0.0):
    path = ar1(np.random.default_rng(seed), rho, panes * PANE_SAMPLES)
    return np.exp(0.5 * path).reshape(panes, PANE_SAMPLES)


# The threshold


@FEW
@given(log_rate=LOG_RATES, interval_panes=INTERVALS)
def test_at_the_threshold_there_is_one_alarm_in_the_interval(log_rate, interval_panes):
    level = threshold_nats(log_rate, interval_panes)

    alarms = interval_panes * math.exp(log_rate + 0.5 * math.log(level) - level)
    assert level == 1.0 or alarms == pytest.approx(1.0, rel=0.02)


@FEW
@given(log_rate=LOG_RATES, interval_panes=st.floats(1e3, 1e7))
def test_ten_times_rarer_alarms_cost_little_more_than_ln_10(log_rate, interval_panes):
    level, rarer = (threshold_nats(log_rate, n * interval_panes) for n in (1.0, 10.0))

    assert level == 1.0 or math.log(10.0) <= rarer - level < math.log(10.0) + 1.5


@FEW
@given(log_rate=LOG_RATES, more=st.floats(0.0, 5.0), interval_panes=INTERVALS)
def test_the_more_evidence_comes_by_chance_the_higher_the_threshold(log_rate, more, interval_panes):
    assert threshold_nats(log_rate, interval_panes) <= threshold_nats(
        log_rate + more, interval_panes
    )


# The calibration


def test_the_same_rows_give_the_same_rate_whatever_is_drawn_elsewhere():
    ranks, rows = reference_of(latencies(1, 120))
    before = rows.copy()

    first = calibrate(rows, ranks, CONFIRM_PANES)
    np.random.default_rng(0).random(1_000)

    assert calibrate(rows.copy(), ranks, CONFIRM_PANES) == first
    np.testing.assert_array_equal(before, rows)


def test_evidence_that_must_hold_for_longer_comes_more_rarely():
    ranks, rows = reference_of(latencies(2, 240))

    rates = [calibrate(rows, ranks, panes) for panes in (1, 2, 4, 8)]

    assert rates == sorted(rates, reverse=True)


def test_rows_of_equal_values_have_a_rate_too():
    ranks, rows = reference_of(np.full((60, PANE_SAMPLES), 0.3))

    assert rows[:, BODY].tolist() == [0.0] * 60
    assert math.isfinite(calibrate(rows, ranks, CONFIRM_PANES))


def alarms(values, interval_panes):
    """Count alarms on what follows the reference; return it and the number of panes judged."""
    ranks, rows = reference_of(values[:REFERENCE_PANES])
    evidence = Evidence(rows=rows)
    learn_reference(evidence, ranks)
    threshold = threshold_nats(calibrate(rows, ranks, CONFIRM_PANES), interval_panes)
    evidence.rows, held, found, quiet_until = rows[:0], 0, 0, 0
    for number, pane in enumerate(values[REFERENCE_PANES:]):
        evidence.take(ranks.scores(counts_of(pane)))
        held = held + 1 if scan(evidence, ranks).nats.max() >= threshold else 0
        if held >= CONFIRM_PANES and number >= quiet_until:
            found += 1
        if held >= CONFIRM_PANES:
            # Alarms nearer to one another than this are one.
            quiet_until = number + 32
    return found, len(values) - REFERENCE_PANES


@pytest.mark.parametrize("rho", [0.0, 0.9, 0.97], ids=["independent", "AR(1) 0.9", "AR(1) 0.97"])
def test_alarms_come_about_as_rarely_as_was_asked_for(rho):
    # Dependence within panes and across their ends must not make them more frequent.
    interval_panes, seeds, panes = 400.0, 5, 1_600

    counted = [
        alarms(latencies(seed, REFERENCE_PANES + panes, rho), interval_panes)
        for seed in range(seeds)
    ]

    found, judged = (sum(numbers) for numbers in zip(*counted, strict=True))
    assert 0.2 < found / (judged / interval_panes) < 2.5
