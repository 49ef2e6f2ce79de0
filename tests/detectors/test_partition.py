from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.histogram import N_BINS, SparseCounts, bin_index
from detectors.panes import N_CELLS
from detectors.partition import (
    MIN_KNOWN_SAMPLES,
    partition_by_workload,
    partition_of_latency,
)
from detectors.strata import N_STRATA

FEW = settings(max_examples=60, derandomize=True, deadline=None)


def reference_of(rows_by_stratum, seed=0, sigma=0.5):
    """Lognormal latencies, of each stratum as many rows as given."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((N_STRATA, N_BINS))
    for stratum, rows in enumerate(rows_by_stratum):
        values = rng.lognormal(stratum - 3.0, sigma, rows).astype(np.float32)
        dense[stratum] = np.bincount(bin_index(values), minlength=N_BINS)
    return SparseCounts.of_dense(dense.ravel())


def strata_of_groups(partition):
    return (partition.bin_starts[partition.group_starts] // N_BINS).tolist()


references = st.builds(
    reference_of,
    st.lists(st.sampled_from([0, 1, 30, 500, 5_000]), min_size=1, max_size=6).filter(any),
    st.integers(0, 1_000),
    st.sampled_from([0.0, 0.1, 0.5, 3.0]),
)
windows = st.sampled_from([1.0, 12.0, 60.0, 300.0, 10_000.0])


@FEW
@given(reference=references, window=windows)
def test_every_cell_is_covered_exactly_once(reference, window):
    partition = partition_by_workload(reference, window)
    cells = np.arange(N_CELLS)

    covered = partition.coarse(cells, np.ones(N_CELLS))

    widths = np.diff([*partition.bin_starts, N_CELLS])
    np.testing.assert_array_equal(widths, covered)
    assert partition.coarse(*reference).sum() == reference.total


@FEW
@given(reference=references, window=windows)
def test_every_group_begins_with_the_first_bin_of_a_stratum(reference, window):
    partition = partition_by_workload(reference, window)

    assert partition.group_starts[0] == partition.bin_starts[0] == 0
    assert (np.diff(partition.bin_starts) > 0).all()
    assert (partition.bin_starts[partition.group_starts] % N_BINS == 0).all()
    assert partition.group_sizes.sum() == partition.bin_starts.size


def test_every_stratum_that_the_reference_knows_is_a_group_of_its_own():
    partition = partition_by_workload(reference_of([1_000, 40, 1_000, 50, 60, 70]), 300.0)

    assert strata_of_groups(partition) == [0, 1, 2, 3, 4, 5]


def test_neighbouring_strata_that_it_hardly_knows_are_one_bin_together():
    few = MIN_KNOWN_SAMPLES - 1
    partition = partition_by_workload(reference_of([1_000, few, 0, 1_000, 0, 0]), 300.0)

    assert strata_of_groups(partition) == [0, 1, 3, 4]
    assert partition.group_sizes[1] == partition.group_sizes[3] == 1


def test_a_larger_window_affords_more_bins_and_a_tiny_one_a_single_bin():
    latency = np.bincount(
        bin_index(np.random.default_rng(0).lognormal(-3.0, 0.5, 5_000).astype(np.float32)),
        minlength=N_BINS,
    )
    bins = [partition_of_latency(latency, window).bin_starts.size for window in (6.0, 60.0, 600.0)]

    assert bins == [1, 10, 16]


def test_the_tail_has_bins_of_its_own():
    reference = reference_of([50_000])
    partition = partition_by_workload(reference, 600.0)
    shares = partition.coarse(*reference)[: partition.group_sizes[0]] / reference.total

    assert shares[-1] == pytest.approx(0.01, abs=0.005)
    assert shares.max() < 0.2


def test_equal_values_have_a_bin_of_their_own_so_that_faster_ones_are_seen_too():
    reference = reference_of([1_000], sigma=0.0)
    partition = partition_by_workload(reference, 300.0)
    coarse = partition.coarse(*reference)

    assert coarse[: partition.group_sizes[0]].tolist() == [0.0, 1_000.0, 0.0]
