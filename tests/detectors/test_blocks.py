"""Histograms of blocks of time: nothing is lost, and memory does not grow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from detectors.blocks import MAX_BLOCKS, Blocks, lower_edge, place_of
from detectors.panes import HistogramPane

START_S = 1_764_000_000.0
floats = st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=False)


def filled(values, times, **settings):
    blocks = Blocks(**settings)
    blocks.add(np.asarray(values, np.float32), np.asarray(times, np.float64), None)
    return blocks


@given(arrays(np.float32, 20, elements=floats))
def test_places_are_in_the_order_of_the_values(values):
    ordered = np.sort(values)

    assert (np.diff(place_of(ordered)) >= 0).all()


@given(arrays(np.float32, 20, elements=floats))
def test_a_value_lies_within_its_place_and_the_place_within_a_thousandth(values):
    place = place_of(values)
    low, high = lower_edge(place), lower_edge(place + 1)

    assert (low <= values).all()
    assert (values <= high).all()
    usual = (np.abs(values) > 1e-30) & (high < 3.4e38)
    assert (high - low <= np.abs(values) / 1_000)[usual].all()


@pytest.mark.parametrize("value", [0.0, 1e-9, 1e9, -0.5])
def test_any_number_has_a_place_of_its_own(value):
    place = place_of(np.array([value], np.float32))

    low, high = lower_edge(place)[0], lower_edge(place + 1)[0]
    assert low <= value <= high
    assert high - low <= max(abs(value) / 1_000, 1e-37)


def test_a_day_is_held_in_a_bounded_number_of_blocks_and_nothing_is_lost():
    rng = np.random.default_rng(0)
    values = rng.lognormal(-3.0, 0.4, 90_000).astype(np.float32)
    blocks = Blocks()
    for chunk in np.split(np.arange(values.size), 90):
        blocks.add(values[chunk], START_S + chunk.astype(np.float64), None)

    counted = blocks.counted()

    assert MAX_BLOCKS / 4 < counted.blocks <= MAX_BLOCKS
    assert counted.samples == values.size
    assert counted.sums.sum() == pytest.approx(values.astype(np.float64).sum())
    assert counted.sum_counts.sum() == values.size
    assert counted.observed_s == pytest.approx(90_000, rel=0.01)
    assert np.bincount(counted.block, counted.counts).max() == counted.block_s


def test_memory_is_bounded_by_what_differs_not_by_what_there_is():
    few = Blocks()
    for hour in range(40):
        times = START_S + 3_600.0 * hour + np.linspace(0.0, 3_599.0, 20_000)
        few.add(np.full(20_000, 0.021, np.float32), times, None)

    assert few.counted().counts.size <= MAX_BLOCKS


def test_the_order_of_rows_makes_no_difference():
    rng = np.random.default_rng(0)
    values, times = rng.random(3_000), START_S + 3.0 * np.arange(3_000)
    order = rng.permutation(3_000)
    shuffled = Blocks()
    for part in np.split(order, 3):
        shuffled.add(values[part].astype(np.float32), times[part], None)

    one, other = filled(values, times).counted(), shuffled.counted()

    assert one.blocks == other.blocks
    for name in ("block", "place", "counts", "sum_counts"):
        assert (getattr(one, name) == getattr(other, name)).all()


def test_what_was_not_measured_is_counted_and_left_out():
    blocks = filled([0.1, np.nan, 0.2], START_S + np.arange(3))

    assert blocks.counted().samples == 2
    assert blocks.unmeasured == 1


def test_nothing_is_nothing():
    counted = Blocks().counted()

    assert (counted.samples, counted.blocks, counted.observed_s) == (0.0, 0, 0.0)


def test_a_gap_of_days_is_no_time_that_was_observed():
    times = START_S + np.concatenate([np.arange(60.0), 5 * 86_400.0 + np.arange(60.0)])

    assert filled(np.ones(120), times).counted().observed_s < 200.0


def test_coarse_counts_are_those_of_a_pane():
    rng = np.random.default_rng(0)
    values = rng.lognormal(-3.0, 1.0, 500).astype(np.float32)
    prompt = rng.lognormal(6.0, 1.0, 500).astype(np.float32)
    times = START_S + np.arange(500.0)
    pane, blocks = HistogramPane(128.0), Blocks(128.0)
    pane.add(values, times, prompt, 0.5 * prompt)
    blocks.add(values, times, prompt, 0.5 * prompt)

    coarse = blocks.counted().coarse()

    assert coarse.cells.tolist() == pane.counts().cells.tolist()
    assert coarse.counts.tolist() == pane.counts().counts.tolist()
