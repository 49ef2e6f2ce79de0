"""The bins in which current and reference are compared: few, at the reference's quantiles.

A fine histogram has thousands of cells; a window of a hundred samples cannot fill them. A workload
stratum that a window can fill is a group of its own, and smaller neighbours are joined; within a
group the bins' edges are the reference's own quantiles, as many as a window can fill, finer in the
tail where regressions hide. Strata that the reference hardly knows are one bin: what arrives there
is a change of the workload, and nothing can be said of the service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detectors.compiled import compiled
from detectors.histogram import N_BINS, SparseCounts
from detectors.strata import N_STRATA, STRATA_A_LEVEL

Floats = NDArray[np.float64]

MIN_KNOWN_SAMPLES: Final = 30
"""A group of strata of which the reference has fewer samples is unknown to it."""

_N_BINS: Final = np.uint32(N_BINS)
_SAMPLES_A_BIN: Final = 6.0
_SAMPLES_A_GROUP: Final = 24.0
_WIDEST_GROUP: Final = 4
"""Strata, four an octave: within more than a factor of two like is not compared with like."""
_HEAVY: Final = 0.1
"""A fine bin with a larger share gets both of its edges: equal values are a mode, not a gap."""
_LEVELS: Final = (
    # The order in which quantiles become edges as a window can afford more of them.
    *(0.5, 0.9, 0.75, 0.25, 0.97, 0.6, 0.1, 0.4, 0.99, 0.85, 0.8, 0.2, 0.7, 0.3, 0.95),
)


@dataclass(slots=True)
class Partition:
    """Fine cells cut into coarse bins, group after group.

    Attributes:
        group_of_stratum: The group of each stratum, ascending, shape ``(N_STRATA,)``.
        bin_starts: First bin of each coarse bin, counted ``N_BINS`` a group, ascending from 0.
        group_starts: First coarse bin of each group, ascending from 0, shape ``(n_groups,)``.
        group_sizes: Coarse bins of each group.
    """

    group_of_stratum: NDArray[np.int64]
    bin_starts: NDArray[np.int64]
    group_starts: NDArray[np.int64]
    group_sizes: NDArray[np.int64]

    def groups(self, cells: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the group of each fine cell."""
        groups: NDArray[np.int64] = self.group_of_stratum[cells // _N_BINS]
        return groups

    def coarse(self, cells: NDArray[np.integer], counts: NDArray[np.number]) -> Floats:
        """Return the counts of each coarse bin, shape ``(n_bins,)``, of sparse fine counts."""
        weights = counts.astype(np.float64, copy=False)
        return _coarse(cells, weights, self.group_of_stratum, self.bin_starts)

    def coarse_bins(self, latency: Floats) -> Floats:
        """Return the same of counts by fine bin, shape ``(N_BINS,)``, where there is one group."""
        total: Floats = np.add.reduceat(latency, self.bin_starts)
        return total


@compiled
def _coarse(
    cells: NDArray[np.integer],
    counts: Floats,
    group_of_stratum: NDArray[np.int64],
    bin_starts: NDArray[np.int64],
) -> Floats:
    total = np.zeros(bin_starts.size)
    at = 0
    for index in range(cells.size):
        stratum, fine = divmod(cells[index], N_BINS)
        place = group_of_stratum[stratum] * N_BINS + fine
        # Cells mostly ascend, so that the next bin is this one, or near.
        if place < bin_starts[at]:
            at = np.searchsorted(bin_starts, place, "right") - 1
        while at + 1 < bin_starts.size and bin_starts[at + 1] <= place:
            at += 1
        total[at] += counts[index]
    return total


def partition_by_workload(reference: SparseCounts, window_samples: float) -> Partition:
    """Return a partition of strata and, within them, of latency.

    Args:
        reference: Fine counts by stratum and bin.
        window_samples: Samples that a current window is expected to hold.
    """
    scale = window_samples / reference.total
    by_stratum = stratum_counts(reference)
    group_of_stratum = group_strata(by_stratum, by_stratum * scale, _SAMPLES_A_GROUP)
    bin_starts: list[int] = []
    group_starts: list[int] = []
    groups = group_of_stratum[reference.cells // N_BINS]
    for group in range(int(group_of_stratum[-1]) + 1):
        mine = groups == group
        counts = np.bincount(
            reference.cells[mine] % N_BINS, weights=reference.counts[mine], minlength=N_BINS
        )
        known = counts.sum() >= MIN_KNOWN_SAMPLES
        n_bins = int(counts.sum() * scale / _SAMPLES_A_BIN) if known else 1
        group_starts.append(len(bin_starts))
        bin_starts.extend(group * N_BINS + edge for edge in _edges(counts, n_bins))
    return _partition(group_of_stratum, bin_starts, group_starts)


def partition_of_latency(latency: Floats, window_samples: float) -> Partition:
    """Return a partition of latency alone; ``latency`` has shape ``(N_BINS,)``."""
    edges = _edges(latency, int(window_samples / _SAMPLES_A_BIN))
    return _partition(np.zeros(N_STRATA, np.int64), edges, [0])


def _partition(
    group_of_stratum: NDArray[np.int64], bin_starts: list[int], group_starts: list[int]
) -> Partition:
    return Partition(
        group_of_stratum=group_of_stratum,
        bin_starts=np.array(bin_starts),
        group_starts=np.array(group_starts),
        group_sizes=np.diff([*group_starts, len(bin_starts)]),
    )


def stratum_counts(sparse: SparseCounts) -> Floats:
    """Return the samples of each stratum, shape ``(N_STRATA,)``."""
    total: Floats = _by_stratum(sparse.cells, sparse.counts.astype(np.float64))
    return total


@compiled
def _by_stratum(cells: NDArray[np.integer], counts: Floats) -> Floats:
    total = np.zeros(N_STRATA)
    for index in range(cells.size):
        total[cells[index] // N_BINS] += counts[index]
    return total


def group_strata(
    reference: NDArray[np.number], expected: NDArray[np.number], full: float
) -> NDArray[np.int64]:
    """Return the group of each stratum, ascending, shape ``(N_STRATA,)``.

    Neighbouring strata of a level are joined until the reference knows the group and ``expected``
    fills it. What the reference has never seen is joined with nothing that it has, but for holes
    within a group.

    Args:
        reference: Samples of each stratum in the reference, shape ``(N_STRATA,)``.
        expected: Samples of each that count towards ``full``, the same shape.
        full: A group with so many takes in no further stratum.
    """
    return _group_strata(reference.astype(np.float64), expected.astype(np.float64), full)


@compiled
def _group_strata(reference: Floats, expected: Floats, full: float) -> NDArray[np.int64]:
    """Return group numbers, ascending with the strata; each run of unseen strata is a group too."""
    begins = np.zeros(N_STRATA + 1, np.int64)
    first, known, held = -_WIDEST_GROUP, 0.0, 0.0
    for stratum in np.flatnonzero(reference):
        is_full = known >= MIN_KNOWN_SAMPLES and held >= full
        same_level = first // STRATA_A_LEVEL == stratum // STRATA_A_LEVEL
        if is_full or not same_level or stratum - first >= _WIDEST_GROUP:
            first, known, held = int(stratum), 0.0, 0.0
            begins[first] = 1
        else:
            # Neither what was the end of the group so far, nor a hole in it.
            begins[first + 1 : stratum + 1] = 0
        begins[stratum + 1] = 1
        known, held = known + reference[stratum], held + expected[stratum]
    begins[0] = 0
    return np.cumsum(begins[:-1])


def _edges(counts: NDArray[np.number], n_bins: int) -> list[int]:
    """Return the first fine bin of each of about ``n_bins`` bins; always 0 first."""
    levels = np.array(sorted(_LEVELS[: max(0, n_bins - 1)]))
    total = counts.sum()
    if not levels.size or not total:
        return [0]
    holding = np.searchsorted(np.cumsum(counts), levels * total)
    holding = np.minimum(holding, counts.size - 1)
    heavy = holding[counts[holding] > _HEAVY * total]
    edges = np.unique(np.concatenate([[0], holding + 1, heavy]))
    return [int(edge) for edge in edges if edge < counts.size]
