from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.histogram import N_BINS, bin_index
from detectors.panes import HistogramPane, ValuesPane
from detectors.strata import STRATA_A_LEVEL, stratum_index

FEW = settings(max_examples=60, derandomize=True, deadline=None)
BASE = 32.0

PANES = {
    "one stratum": HistogramPane,
    "by workload": lambda: HistogramPane(BASE),
    "values": ValuesPane,
}

latencies = st.one_of(st.floats(0.0, 100.0, width=32), st.sampled_from([np.nan, 1e-9, 1e9, 0.0]))
tokens = st.sampled_from([0.0, 10.0, 100.0, 1_000.0, 100_000.0])
cached = st.sampled_from([0.0, 50.0, 90.0, 1_000.0, np.nan])
rows = st.lists(st.tuples(latencies, st.integers(0, 10), tokens, cached), max_size=40)
batches = st.lists(rows, max_size=6)


def columns(batch):
    values = np.array([row[0] for row in batch], np.float32)
    end_s = np.array([row[1] for row in batch], np.float64)
    workload = np.array([row[2] for row in batch], np.float32)
    return values, end_s, workload, np.array([row[3] for row in batch], np.float32)


def filled(make, batches):
    pane = make()
    for batch in batches:
        pane.add(*columns(batch))
    return pane


def plain(pane):
    return [array.tolist() for array in pane.snapshot()]


@pytest.mark.parametrize("make", PANES.values(), ids=PANES)
@FEW
@given(batches=batches, data=st.data())
def test_the_order_of_batches_does_not_matter(make, batches, data):
    shuffled = data.draw(st.permutations(batches))

    assert plain(filled(make, batches)) == plain(filled(make, shuffled))


@pytest.mark.parametrize("make", PANES.values(), ids=PANES)
@FEW
@given(batches=batches)
def test_how_rows_are_cut_into_batches_does_not_matter(make, batches):
    together = [[row for batch in batches for row in batch]]

    assert plain(filled(make, batches)) == plain(filled(make, together))


@pytest.mark.parametrize("make", PANES.values(), ids=PANES)
@FEW
@given(mine=batches, theirs=batches)
def test_merging_panes_equals_one_pane_of_all_batches(make, mine, theirs):
    pane, other = filled(make, mine), filled(make, theirs)
    untouched = plain(other)

    pane.merge(other)

    expected = filled(make, mine + theirs)
    assert plain(pane) == plain(expected)
    assert pane.samples == expected.samples
    assert plain(other) == untouched


@pytest.mark.parametrize("make", PANES.values(), ids=PANES)
@FEW
@given(before=batches, after=batches)
def test_a_restored_pane_goes_on_as_if_it_had_never_stopped(make, before, after):
    restored = make()
    restored.restore(filled(make, before).snapshot())
    for batch in after:
        restored.add(*columns(batch))

    expected = filled(make, before + after)
    assert plain(restored) == plain(expected)
    assert restored.samples == expected.samples


@pytest.mark.parametrize("make", PANES.values(), ids=PANES)
@FEW
@given(batches=batches)
def test_a_nan_is_no_sample(make, batches):
    measured = [[row for row in batch if not np.isnan(row[0])] for batch in batches]
    pane = filled(make, batches)

    assert plain(pane) == plain(filled(make, measured))
    assert pane.samples == sum(map(len, measured))


@FEW
@given(batches=batches)
def test_a_histogram_counts_every_row_in_its_stratum_and_bin(batches):
    values, _, workload, part = columns([row for batch in batches for row in batch])
    measured = ~np.isnan(values)
    cells = stratum_index(workload, BASE, part) * N_BINS + bin_index(values)
    expected = np.bincount(cells[measured])

    counts = filled(PANES["by workload"], batches).counts()

    np.testing.assert_array_equal(np.flatnonzero(expected), counts.cells)
    np.testing.assert_array_equal(expected[expected > 0], counts.counts)


def test_a_row_without_its_workload_counts_as_the_lightest():
    with_it, without = HistogramPane(BASE), HistogramPane(BASE)
    values, end_s = np.array([0.1, 0.2], np.float32), np.zeros(2)
    with_it.add(values, end_s, np.zeros(2, np.float32))
    without.add(values, end_s, None)

    assert plain(with_it) == plain(without)


def test_a_row_without_the_part_of_its_workload_counts_as_having_none():
    values, end_s, workload = np.array([0.1, 0.2], np.float32), np.zeros(2), np.ones(2, np.float32)
    with_it, without, some = (HistogramPane(BASE) for _ in range(3))
    for pane, parts in ((with_it, (0.0, 0.0)), (without, (None, None)), (some, (None, 0.0))):
        for row, part in enumerate(parts):
            column = None if part is None else np.full(1, part, np.float32)
            pane.add(values[[row]], end_s[[row]], 100.0 * workload[[row]], column)

    assert plain(with_it) == plain(without) == plain(some)


def test_cached_tokens_put_a_row_into_a_stratum_of_its_own():
    pane = HistogramPane(BASE)
    prompt, part = np.full(3, 1_000.0, np.float32), np.array([0.0, 500.0, 900.0], np.float32)
    pane.add(np.full(3, 0.1, np.float32), np.zeros(3), prompt, part)

    strata = pane.counts().cells // N_BINS
    assert np.diff(strata.astype(int)).tolist() == [STRATA_A_LEVEL, STRATA_A_LEVEL]


def test_many_small_batches_are_counted_once_each():
    rng = np.random.default_rng(1)
    pane = HistogramPane()
    for _ in range(100):
        pane.add(rng.lognormal(-1.0, 0.5, 97).astype(np.float32), np.zeros(97), None)

    assert pane.samples == 9_700
    assert pane.counts().total == 9_700
    assert pane.samples == 9_700


def test_values_come_by_event_time_and_then_by_value():
    pane = ValuesPane()
    pane.add(np.array([3.0, 1.0], np.float32), np.array([20.0, 20.0]), None)
    pane.add(np.array([2.0, np.nan], np.float32), np.array([10.0, 15.0]), None)

    values, end_s = pane.in_order()

    assert values.tolist() == [2.0, 1.0, 3.0]
    assert end_s.tolist() == [10.0, 20.0, 20.0]


@pytest.mark.parametrize("make", PANES.values(), ids=PANES)
def test_an_empty_pane_holds_nothing(make):
    pane = make()
    pane.merge(make())

    assert pane.samples == 0
    assert plain(pane) == [[], []]
