from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from detectors.histogram import (
    HIGHEST,
    LOWEST,
    MANTISSA_BITS,
    N_BINS,
    SparseCounts,
    bin_edges,
    bin_index,
    quantile,
)

FEW = settings(max_examples=60, derandomize=True, deadline=None)
WIDTH = 2.0**-MANTISSA_BITS

inside = st.floats(LOWEST, 2.0**29, width=32)
anything = st.floats(width=32, allow_nan=False)
float32s = arrays(np.float32, st.integers(0, 200), elements=anything)


def dense(sparse):
    counts = np.zeros(N_BINS)
    counts[sparse.cells] = sparse.counts
    return counts


ZOO = {
    "lognormal, narrow": lambda rng, n: rng.lognormal(-4.0, 0.1, n),
    "lognormal": lambda rng, n: rng.lognormal(-1.0, 0.5, n),
    "lognormal, wide": lambda rng, n: rng.lognormal(0.0, 2.0, n),
    "exponential": lambda rng, n: rng.exponential(0.02, n),
    "uniform": lambda rng, n: rng.uniform(0.9, 1.1, n),
    "gamma": lambda rng, n: rng.gamma(0.5, 3.0, n),
    "pareto": lambda rng, n: 0.01 * (1.0 + rng.pareto(1.1, n)),
    "bimodal": lambda rng, n: np.where(rng.random(n) < 0.98, 0.02, 2.0) * rng.lognormal(0, 0.05, n),
    "constant": lambda _, n: np.full(n, 0.0371),
    "milliseconds, rounded": lambda rng, n: np.ceil(rng.exponential(20.0, n)) / 1_000.0,
    "the far ends": lambda rng, n: rng.choice([1e-9, 1e9], n),
}


def binned(values):
    return np.bincount(bin_index(values), minlength=N_BINS)


def nearest_rank(values, q):
    """The smallest value that at least a share ``q`` of the values does not exceed."""
    return float(np.sort(values)[max(0, int(np.ceil(q * values.size)) - 1)])


@pytest.mark.parametrize("q", [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0])
@pytest.mark.parametrize("samples", [1, 17, 1_000, 50_000])
@pytest.mark.parametrize("name", ZOO)
def test_a_quantile_is_right_to_within_one_bins_relative_width(name, samples, q):
    values = ZOO[name](np.random.default_rng(samples), samples).astype(np.float32)

    assert quantile(binned(values), q) == pytest.approx(nearest_rank(values, q), rel=WIDTH)


@FEW
@given(values=arrays(np.float32, st.integers(1, 60), elements=inside), q=st.floats(0.001, 1.0))
def test_no_sample_breaks_the_promise_of_quantiles(values, q):
    assert quantile(binned(values), q) == pytest.approx(nearest_rank(values, q), rel=WIDTH)


@FEW
@given(values=arrays(np.float32, 20, elements=inside), weight=st.sampled_from([0.125, 0.5, 4.0]))
def test_weights_scale_no_quantile(values, weight):
    counts = binned(values)

    assert quantile(counts * weight, 0.75) == pytest.approx(quantile(counts, 0.75), rel=1e-9)


def test_a_quantile_is_interpolated_inside_its_bin():
    counts = np.zeros(N_BINS)
    first = int(bin_index(np.array([1.0], np.float32))[0])
    counts[first] = 4.0

    assert quantile(counts, 0.25) == pytest.approx(1.0 + 0.25 * WIDTH)
    assert quantile(counts, 0.5) == pytest.approx(1.0 + 0.5 * WIDTH)


@pytest.mark.parametrize("q", [-0.01, 1.01, float("nan")])
def test_a_quantile_outside_0_to_1_is_refused(q):
    with pytest.raises(ValueError, match="every level must be 0 to 1"):
        quantile(np.ones(N_BINS), q)


def test_an_empty_histogram_has_no_quantile():
    with pytest.raises(ValueError, match="empty"):
        quantile(np.zeros(N_BINS), 0.5)


def test_edges_ascend_from_lowest_to_highest_each_at_most_a_32nd_above_the_last():
    edges = bin_edges()

    assert edges.shape == (N_BINS + 1,)
    assert edges[0] == LOWEST
    assert edges[-1] == HIGHEST
    assert (np.diff(edges) > 0.0).all()
    assert (np.diff(edges) <= WIDTH * edges[:-1]).all()


def test_an_edge_belongs_to_the_bin_above_it_and_the_float_before_it_to_the_bin_below():
    edges = bin_edges()[:-1].astype(np.float32)
    before = np.nextafter(edges[1:], np.float32(0.0))

    np.testing.assert_array_equal(np.arange(N_BINS), bin_index(edges))
    np.testing.assert_array_equal(np.arange(N_BINS - 1), bin_index(before))


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, -1e9, -np.inf, 1e-10, 1e-45])
def test_what_is_too_small_counts_in_the_lowest_bin(value):
    assert bin_index(np.array([value], np.float32)).tolist() == [0]


@pytest.mark.parametrize("value", [np.inf, 3e38, 1e12, HIGHEST])
def test_what_is_too_large_counts_in_the_highest_bin(value):
    assert bin_index(np.array([value], np.float32)).tolist() == [N_BINS - 1]


@pytest.mark.parametrize("value", [1e-9, 1e-3, 1.0, 1e6, 1e9])
def test_a_nanosecond_and_thirty_years_are_still_resolved(value):
    low, high = np.array([value, value * (1.0 + 1.1 * WIDTH)], np.float32)

    assert bin_index(np.array([low]))[0] < bin_index(np.array([high]))[0]


def test_binning_leaves_its_input_alone():
    values = np.array([0.5, -1.0, np.inf], np.float32)

    bin_index(values)

    np.testing.assert_array_equal(np.array([0.5, -1.0, np.inf], np.float32), values)


@FEW
@given(values=float32s)
def test_bins_are_in_the_order_of_their_values(values):
    bins = bin_index(np.sort(values))

    assert (np.diff(bins) >= 0).all()
    assert ((bins >= 0) & (bins < N_BINS)).all()


@FEW
@given(parts=st.lists(float32s, max_size=5))
def test_adding_histograms_equals_binning_all_values_together(parts):
    apart = SparseCounts.sum_of([SparseCounts.of_cells(bin_index(part)) for part in parts])
    together = binned(np.concatenate([np.empty(0, np.float32), *parts]))

    np.testing.assert_array_equal(together, dense(apart))


@FEW
@given(values=float32s)
def test_sparse_counts_hold_the_occupied_cells_and_nothing_else(values):
    sparse = SparseCounts.of_cells(bin_index(values))

    np.testing.assert_array_equal(binned(values), dense(sparse))
    assert sparse.total == values.size
    assert (sparse.counts > 0).all()
    assert (sparse.cells.dtype, sparse.counts.dtype) == (np.uint32, np.uint16)
    assert (np.diff(sparse.cells.astype(int)) > 0).all()


@FEW
@given(one=float32s, other=float32s)
def test_what_is_added_can_be_taken_away_again(one, other):
    first, second = (SparseCounts.of_cells(bin_index(part)) for part in (one, other))
    both = first.plus(second)

    np.testing.assert_array_equal(dense(first) + dense(second), dense(both))
    np.testing.assert_array_equal(dense(first), dense(both.minus(second)))


@FEW
@given(one=float32s, other=float32s)
def test_what_is_taken_away_leaves_no_empty_cells_and_its_operands_alone(one, other):
    both = SparseCounts.sum_of([SparseCounts.of_cells(bin_index(part)) for part in (one, other)])
    part = SparseCounts.of_cells(bin_index(other))
    before = [array.copy() for array in (*both, *part)]

    left = both.minus(part)

    assert left.total == one.size
    assert (left.counts > 0).all()
    assert set(left.cells.tolist()) == set(bin_index(one).tolist())
    for array, untouched in zip((*both, *part), before, strict=True):
        np.testing.assert_array_equal(untouched, array)


@pytest.mark.parametrize("samples", [1, 4_000, 5_000, 100_000])
def test_however_many_values_are_counted_they_are_counted_alike(samples):
    values = np.random.default_rng(samples).lognormal(-1.0, 2.0, samples).astype(np.float32)

    np.testing.assert_array_equal(binned(values), dense(SparseCounts.of_cells(bin_index(values))))


def test_counts_beyond_sixteen_bits_are_kept():
    sparse = SparseCounts.of_cells(np.zeros(70_000, np.int32))

    assert sparse.counts.tolist() == [70_000.0]


def test_a_histogram_of_nothing_adds_nothing():
    assert SparseCounts.empty().total == 0.0
    nothing = SparseCounts.sum_of([SparseCounts.empty(), SparseCounts.empty()])

    assert nothing.total == SparseCounts.sum_of([]).total == 0.0
