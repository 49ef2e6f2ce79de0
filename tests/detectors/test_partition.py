from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.histogram import N_BINS, SparseCounts, bin_index
from detectors.partition import (
    MIN_KNOWN_SAMPLES,
    group_strata,
    partition_by_workload,
    partition_of_latency,
)
from detectors.strata import N_STRATA, STRATA_A_LEVEL, STRATA_AN_OCTAVE

N_CELLS = N_STRATA * N_BINS
FEW = settings(max_examples=60, derandomize=True, deadline=None)
TWO_OCTAVES = 2 * STRATA_AN_OCTAVE
FULL = 24.0


def reference_of(rows_by_stratum, seed=0, sigma=0.5):
    """Lognormal latencies, of each stratum as many rows as given."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((N_STRATA, N_BINS))
    for stratum, rows in enumerate(rows_by_stratum):
        values = rng.lognormal(stratum - 3.0, sigma, rows).astype(np.float32)
        dense[stratum] = np.bincount(bin_index(values), minlength=N_BINS)
    cells = np.flatnonzero(dense)
    counts = dense.ravel()[cells].astype(np.float32)
    return SparseCounts(cells.astype(np.uint32), counts)


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
    strata = np.bincount(partition.group_of_stratum)
    n_groups = partition.group_starts.size

    covered = partition.coarse(np.arange(N_CELLS), np.ones(N_CELLS))

    widths = np.diff([*partition.bin_starts, n_groups * N_BINS])
    np.testing.assert_array_equal(widths * np.repeat(strata, partition.group_sizes), covered)
    assert partition.coarse(*reference).sum() == reference.total


@FEW
@given(reference=references, window=windows)
def test_every_group_begins_with_its_own_first_bin(reference, window):
    partition = partition_by_workload(reference, window)
    n_groups = partition.group_starts.size

    firsts = partition.bin_starts[partition.group_starts]
    np.testing.assert_array_equal(np.arange(n_groups) * N_BINS, firsts)
    assert (np.diff(partition.bin_starts) > 0).all()
    assert set(np.diff(partition.group_of_stratum).tolist()) <= {0, 1}
    assert partition.group_sizes.sum() == partition.bin_starts.size


class Group(NamedTuple):
    """The seen strata of a group, and what is known of them all."""

    strata: np.ndarray
    known: float

    @property
    def level(self):
        return self.strata[0] // STRATA_A_LEVEL


def seen_groups(group_of_stratum, known):
    """Return the groups that hold a stratum that the reference has seen."""
    found = []
    for group in range(group_of_stratum[-1] + 1):
        strata = np.flatnonzero(group_of_stratum == group)
        if known[strata].any():
            found.append(Group(strata, float(known[strata].sum())))
    return found


known_strata = st.dictionaries(
    st.one_of(st.integers(0, 12), st.integers(30, 50), st.integers(0, N_STRATA - 1)),
    st.sampled_from([1, 5, 29, 30, 100, 2_000]),
    min_size=1,
    max_size=14,
).map(lambda rows: np.array([rows.get(stratum, 0) for stratum in range(N_STRATA)]))
shares = st.sampled_from([0.001, 0.1, 1.0])


def widest_group():
    """How many strata make a group if none of them holds much."""
    known = np.ones(N_STRATA)
    return int(np.bincount(group_strata(known, known, np.inf)).max())


@FEW
@given(known=known_strata, share=shares)
def test_groups_are_neighbours_of_one_level_within_two_octaves(known, share):
    group_of_stratum = group_strata(known, known * share, FULL)

    assert set(np.diff(group_of_stratum).tolist()) <= {0, 1}
    for strata, _ in seen_groups(group_of_stratum, known):
        assert strata.size <= TWO_OCTAVES
        assert strata[0] // STRATA_A_LEVEL == strata[-1] // STRATA_A_LEVEL


@FEW
@given(known=known_strata, share=shares)
def test_what_was_never_seen_is_in_a_group_with_nothing_but_as_a_hole_in_it(known, share):
    for strata, _ in seen_groups(group_strata(known, known * share, FULL), known):
        assert known[strata[[0, -1]]].all()


@FEW
@given(known=known_strata, share=shares)
def test_a_group_stays_unknown_only_where_no_heavier_neighbour_is_near(known, share):
    groups = seen_groups(group_strata(known, known * share, FULL), known)

    for before, after in pairwise(groups):
        if before.known < MIN_KNOWN_SAMPLES and before.level == after.level:
            assert after.strata[0] - before.strata[0] >= widest_group()


@FEW
@given(known=known_strata, share=shares)
def test_strata_that_a_window_can_fill_are_never_joined_with_one_another(known, share):
    filled = (known >= MIN_KNOWN_SAMPLES) & (known * share >= FULL)

    for strata, _ in seen_groups(group_strata(known, known * share, FULL), known):
        assert filled[strata].sum() <= 1


def test_a_row_of_a_stratum_counts_in_the_group_that_the_stratum_was_joined_to():
    reference = reference_of([100, 100, 100, 100])
    partition = partition_by_workload(reference, 60.0)
    cells = np.arange(4) * N_BINS

    assert partition.groups(cells).tolist() == [0, 0, 1, 1]
    assert partition.coarse(cells, np.array([1.0, 2.0, 3.0, 4.0]))[
        partition.group_starts[:2]
    ].tolist() == [3.0, 7.0]


def groups(*rows_by_stratum, window=300.0):
    partition = partition_by_workload(reference_of(rows_by_stratum), window)
    return partition.group_of_stratum.tolist()[: len(rows_by_stratum)]


def test_strata_that_a_window_can_fill_stay_apart():
    assert groups(1_000, 1_000, 1_000) == [0, 1, 2]


def test_neighbours_that_a_window_cannot_fill_are_joined():
    assert groups(100, 100, 100, 100, 100, window=60.0) == [0, 0, 1, 1, 2]


def test_no_group_is_wider_than_two_octaves():
    assert 1 < widest_group() <= TWO_OCTAVES


def test_what_the_reference_hardly_knows_takes_in_what_is_near():
    few = MIN_KNOWN_SAMPLES - 1

    assert groups(1_000, few, 0, 1_000) == [0, 1, 1, 1]
    assert groups(few, 1_000, 1_000) == [0, 0, 1]


def test_what_the_reference_hardly_knows_and_is_far_away_is_one_bin():
    few = MIN_KNOWN_SAMPLES - 1
    partition = partition_by_workload(reference_of([1_000, *[0] * 8, few]), 300.0)

    assert partition.group_of_stratum.tolist()[:11] == [0, *[1] * 8, 2, 3]
    assert partition.group_sizes.tolist()[1:] == [1, 1, 1]


def test_levels_of_cached_share_are_never_joined():
    few = MIN_KNOWN_SAMPLES - 1
    known = np.zeros(N_STRATA)
    known[[STRATA_A_LEVEL - 1, STRATA_A_LEVEL]] = few

    group_of_stratum = group_strata(known, known, FULL)

    assert np.diff(group_of_stratum[STRATA_A_LEVEL - 1 : STRATA_A_LEVEL + 1]).tolist() == [1]


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
