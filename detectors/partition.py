"""The bins in which current and reference are compared: few, at the reference's quantiles.

A fine histogram has thousands of cells; a window of a hundred samples cannot fill them. Every
workload stratum that the reference knows is a group of its own; within it the bins' edges are the
reference's own quantiles, as many as a window can fill, finer in the tail where regressions hide.
Strata that the reference hardly knows are one bin each run: what arrives there is a change of the
workload, and nothing can be said of the service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detectors.histogram import N_BINS, SparseCounts
from detectors.strata import N_STRATA

Floats = NDArray[np.float64]

MIN_KNOWN_SAMPLES: Final = 30
"""A stratum of which the reference has fewer samples is unknown to it."""

_SAMPLES_A_BIN: Final = 6.0
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
        bin_starts: First fine cell of each coarse bin, ascending from 0, shape ``(n_bins,)``.
        group_starts: First coarse bin of each group, ascending from 0, shape ``(n_groups,)``.
        group_sizes: Coarse bins of each group.
    """

    bin_starts: NDArray[np.int64]
    group_starts: NDArray[np.int64]
    group_sizes: NDArray[np.int64]

    def coarse(self, cells: NDArray[np.integer], counts: NDArray[np.number]) -> Floats:
        """Return the counts of each coarse bin, shape ``(n_bins,)``, of sparse fine counts."""
        bins = np.searchsorted(self.bin_starts, cells, side="right") - 1
        total = np.bincount(bins, weights=counts, minlength=self.bin_starts.size)
        return total.astype(np.float64, copy=False)


def partition_by_workload(reference: SparseCounts, window_samples: float) -> Partition:
    """Return a partition of strata and, within them, of latency.

    Args:
        reference: Fine counts by stratum and bin.
        window_samples: Samples that a current window is expected to hold.
    """
    scale = window_samples / reference.total
    bin_starts: list[int] = []
    group_starts: list[int] = []
    known_before = True
    for stratum in range(N_STRATA):
        first = stratum * N_BINS
        counts = _dense(reference, first)
        known = counts.sum() >= MIN_KNOWN_SAMPLES
        if stratum and not known and not known_before:
            continue
        group_starts.append(len(bin_starts))
        n_bins = int(counts.sum() * scale / _SAMPLES_A_BIN) if known else 1
        bin_starts.extend(first + edge for edge in _edges(counts, n_bins))
        known_before = bool(known)
    sizes = np.diff([*group_starts, len(bin_starts)])
    return Partition(np.array(bin_starts), np.array(group_starts), sizes)


def partition_of_latency(latency: Floats, window_samples: float) -> Partition:
    """Return a partition of latency alone; ``latency`` has shape ``(N_BINS,)``."""
    edges = _edges(latency, int(window_samples / _SAMPLES_A_BIN))
    return Partition(np.array(edges), np.array([0]), np.array([len(edges)]))


def _dense(sparse: SparseCounts, first: int) -> Floats:
    begin, end = np.searchsorted(sparse.cells, [first, first + N_BINS])
    dense = np.zeros(N_BINS)
    dense[sparse.cells[begin:end].astype(np.int64) - first] = sparse.counts[begin:end]
    return dense


def _edges(counts: Floats, n_bins: int) -> list[int]:
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
