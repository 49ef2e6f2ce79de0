"""Scores of samples by their rank in the reference, among rows of like workload.

The rank ``u`` of a sample, 0 to 1, is the share of the reference's samples of its stratum that are
faster. If nothing has changed ``u`` is uniform whatever the distribution, so sums of scores of it
have a known mean and spread, and what they find does not depend on units or shape:

* *body*, ``u - 1/2``: slower or faster (Wilcoxon 1945: against normal shifts 0.955 as efficient as
  the best);
* *spread*, ``|2 u - 1| - 1/2``: wider or narrower at the same median (Ansari & Bradley 1960);
* *tails*: how many are above the reference's P90, P98, P99.6 and P99.92, and how many would be.

Strata that the reference knows too little of are left out: nothing can be said of their service.

Cost: one binary search a cell of the pane, some 5 microseconds.

Sources: Wilcoxon 1945, doi:10.2307/3001968; Ansari & Bradley 1960,
doi:10.1214/aoms/1177705688.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detectors.compiled import compiled
from detectors.histogram import MANTISSA_BITS, N_BINS, SparseCounts
from detectors.partition import MIN_KNOWN_SAMPLES, group_strata, stratum_counts
from detectors.strata import N_LEVELS, N_STRATA, STRATA_A_LEVEL, STRATA_AN_OCTAVE

Floats = NDArray[np.float64]

TAILS: Final = (0.1, 0.02, 0.004, 0.0008)
"""Shares of the reference that a tail begins at."""
SAMPLES, BODY, SPREAD = 0, 1, 2
ABOVE: Final = slice(3, 3 + len(TAILS))
EXPECTED: Final = slice(ABOVE.stop, ABOVE.stop + len(TAILS))
MIX: Final = EXPECTED.stop
WIDTH: Final = MIX + 1
INSIDE: Final = WIDTH + 1
N_SCORES: Final = INSIDE + 1
"""A pane's scores: samples, body, spread, above each tail's beginning, expected there; samples
times how much less than usual is known of such a mix of strata; times how wide their strata are,
in nats of the workload; and how many of the samples have become a part of the reference."""

_N_TAILS: Final = len(TAILS)
_ABOVE: Final = ABOVE.start
_EXPECTED: Final = EXPECTED.start
_SAMPLES_A_GROUP: Final = 30.0
_LEAST_VARIANCE: Final = 0.05 / 12.0
"""Of a reference of equal values all ranks are one half; any other value is a surprise, a finite
one."""
_STRATUM_NATS: Final = math.log(2.0) / STRATA_AN_OCTAVE
_OUTER_STRATA: Final = 4
"""The outer strata are open: they count as so many."""
_BIN_NATS: Final = math.log(2.0) / (1 << MANTISSA_BITS)
_LEAST_DENSITY: Final = 0.05
_CUTS: Final = 1.0 - np.array(TAILS)


@dataclass(frozen=True, slots=True)
class Ranks:
    """What ranking among a reference needs.

    Attributes:
        m: Samples of the reference.
        groups: The group of each stratum, shape ``(N_STRATA,)``.
        widths: How wide the group of each stratum is, in nats of the workload.
        rarity: Of each group, 1 over its share of the reference; 0 where it is not known.
        offsets: What makes a cell of each stratum a place: ``group * N_BINS + bin``.
        places: Occupied places, and the first of each group, ascending.
        rank: Rank of a sample in each place, and of one between it and the next, in turn;
        spread: what it adds to the spread,
        beyond: and how many of the tails it is in.
        known: 1 for strata that the reference knows, 0 for others, shape ``(N_STRATA,)``.
        tails: Share of each stratum's group above each tail's beginning, as a new sample would have
            it, shape ``(N_STRATA, tails)``; 0 where it is not known.
        variances: Variance of a sample's body and of its spread, by the reference.
        density: Mean density of log-latency, per nat: what a shift of the mean rank is worth.
    """

    m: float
    groups: NDArray[np.int64]
    widths: Floats
    rarity: Floats
    offsets: NDArray[np.int64]
    places: NDArray[np.int64]
    rank: Floats
    spread: Floats
    beyond: NDArray[np.int64]
    known: Floats
    tails: Floats
    variances: tuple[float, float]
    density: float

    def scores(self, pane: SparseCounts) -> NDArray[np.float32]:
        """Return the scores of ``pane``, shape ``(N_SCORES,)``."""
        row = np.zeros(N_SCORES)
        by_stratum = np.zeros(N_STRATA)
        _rank(
            pane.cells,
            pane.counts.astype(np.float64),
            self.known,
            self.offsets,
            self.places,
            self.rank,
            self.spread,
            self.beyond,
            row,
            by_stratum,
        )
        _sum_strata(by_stratum, self.tails, self.widths, self.groups, self.rarity, row)
        return row.astype(np.float32)


@compiled
def _rank(
    cells: NDArray[np.uint32],
    counts: Floats,
    known: Floats,
    offsets: NDArray[np.int64],
    places: NDArray[np.int64],
    rank: Floats,
    spread: Floats,
    beyond: NDArray[np.int64],
    row: Floats,
    by_stratum: Floats,
) -> None:
    """Add the samples of a pane to its ``row`` of scores, and to those of each stratum."""
    for index in range(cells.size):
        stratum = cells[index] // N_BINS
        count = known[stratum] * counts[index]
        place = cells[index] + offsets[stratum]
        last = np.searchsorted(places, place, "right") - 1
        at = 2 * last + (places[last] != place)
        row[SAMPLES] += count
        row[BODY] += count * (rank[at] - 0.5)
        row[SPREAD] += count * spread[at]
        for tail in range(beyond[at]):
            row[_ABOVE + tail] += count
        by_stratum[stratum] += count


@compiled
def _sum_strata(
    by_stratum: Floats,
    tails: Floats,
    widths: Floats,
    groups: NDArray[np.int64],
    rarity: Floats,
    row: Floats,
) -> None:
    """Add to the ``row`` of scores what is expected of so many samples of each stratum."""
    by_group = np.zeros(rarity.size)
    for stratum in range(N_STRATA):
        samples = by_stratum[stratum]
        if samples > 0.0:
            for tail in range(_N_TAILS):
                row[_EXPECTED + tail] += samples * tails[stratum, tail]
            row[WIDTH] += samples * widths[stratum]
            by_group[groups[stratum]] += samples
    # Pairs, so that it is right on average however few the samples are; one alone is as usual.
    for group in range(by_group.size):
        row[MIX] += max(by_group[group] * (by_group[group] - 1.0), 0.0) * rarity[group]
    row[MIX] = row[MIX] / (row[SAMPLES] - 1.0) if row[SAMPLES] > 1.0 else row[SAMPLES]


def rank_among(reference: SparseCounts, *, by_workload: bool = True) -> Ranks:
    """Return what ranking among ``reference`` needs; ``by_workload``: each stratum by itself."""
    groups = np.zeros(N_STRATA, np.int64)
    if by_workload:
        held = stratum_counts(reference)
        groups = group_strata(held, held, _SAMPLES_A_GROUP)
    places, counts, samples = _places(reference.cells, reference.counts.astype(np.float64), groups)
    known = samples >= MIN_KNOWN_SAMPLES
    m = max(float(samples[known].sum()), 1.0)
    rank, beyond, above = _rank_places(places, counts, samples, _CUTS)
    spread, body_variance, spread_variance, pairs = _spread(places, counts, samples, known, rank, m)
    # A new sample is as likely as any of the reference's to be the largest of all.
    tails = (above + 1.0) / (samples + 1.0)[:, None] * known[:, None]
    return Ranks(
        m=m,
        groups=groups,
        widths=_widths(groups),
        rarity=np.where(known, m / np.maximum(samples, 1.0), 0.0),
        offsets=(groups - np.arange(N_STRATA)) * N_BINS,
        places=places,
        rank=rank,
        spread=spread,
        beyond=beyond,
        known=known[groups].astype(np.float64),
        tails=tails[groups],
        variances=(max(body_variance, _LEAST_VARIANCE), max(spread_variance, _LEAST_VARIANCE)),
        density=max(pairs / m / _BIN_NATS, _LEAST_DENSITY),
    )


@compiled
def _places(
    cells: NDArray[np.uint32], counts: Floats, groups: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return occupied places and the first of each group, ascending, with the samples in each.

    And last the samples of each group.
    """
    n_groups = groups[-1] + 1
    places, held = np.empty(cells.size + n_groups, np.int64), np.empty(cells.size + n_groups)
    samples, fine_counts = np.zeros(n_groups), np.zeros(N_BINS)
    size, index = 0, 0
    for group in range(n_groups):
        lowest, highest = N_BINS, 0
        while index < cells.size and groups[cells[index] // N_BINS] == group:
            fine = cells[index] % N_BINS
            fine_counts[fine] += counts[index]
            samples[group] += counts[index]
            lowest, highest = min(lowest, fine), max(highest, fine)
            index += 1
        places[size], held[size] = group * N_BINS, fine_counts[0]
        size += 1
        for fine in range(max(lowest, 1), highest + 1):
            if fine_counts[fine] > 0.0:
                places[size], held[size] = group * N_BINS + fine, fine_counts[fine]
                size += 1
        fine_counts[: highest + 1] = 0.0
    return places[:size].copy(), held[:size].copy(), samples


@compiled
def _rank_places(
    places: NDArray[np.int64], counts: Floats, samples: Floats, cuts: Floats
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return the rank in each place and between it and the next, and how many cuts are below it.

    And last the samples of each group whose place is above each cut.
    """
    rank, beyond = np.empty(2 * places.size), np.zeros(2 * places.size, np.int64)
    above = np.zeros((samples.size, cuts.size))
    before, until, cut = -1, 0.0, 0
    for place in range(places.size):
        group = places[place] // N_BINS
        if group != before:
            before, until, cut = group, 0.0, 0
        until += counts[place]
        total = max(samples[group], 1.0)
        # Within a group ranks ascend, and with them the cuts that are below.
        for at in (2 * place, 2 * place + 1):
            rank[at] = (until - 0.5 * counts[place] if at == 2 * place else until) / total
            while cut < cuts.size and rank[at] > cuts[cut]:
                cut += 1
            beyond[at] = cut
        for below in range(beyond[2 * place]):
            above[group, below] += counts[place]
    return rank, beyond, above


@compiled
def _spread(
    places: NDArray[np.int64],
    counts: Floats,
    samples: Floats,
    known: NDArray[np.bool_],
    rank: Floats,
    m: float,
) -> tuple[Floats, float, float, float]:
    """Return the spread of each rank; of the known groups the variances, and the shared bins.

    The mean density of log-latency within its group is the chance that two samples of a group share
    a bin, over the bin's width: counted in pairs it is right on average however few they are.
    """
    spread = np.abs(2.0 * rank - 1.0)
    one_over = known / np.maximum(samples - 1.0, 1.0)
    mean, body, squares, pairs = 0.0, 0.0, 0.0, 0.0
    for place in range(places.size):
        group = places[place] // N_BINS
        if known[group]:
            count = counts[place]
            mean += count * spread[2 * place]
            squares += count * spread[2 * place] ** 2
            body += count * (rank[2 * place] - 0.5) ** 2
            pairs += max(count * (count - 1.0), 0.0) * one_over[group]
    mean /= m
    return spread - mean, body / m, squares / m - mean * mean, pairs


def _widths(groups: NDArray[np.int64]) -> Floats:
    strata = np.ones(N_STRATA)
    levels = strata.reshape(N_LEVELS, STRATA_A_LEVEL)
    levels[:, [0, -1]] = _OUTER_STRATA
    widths: Floats = np.bincount(groups, _STRATUM_NATS * strata).astype(np.float64)
    return widths[groups]
