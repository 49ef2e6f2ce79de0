"""By how much two samples differ, in mean and quantiles, and how well that is known.

A quantile is where the distribution function passes a level. So its limits are the quantiles at the
level plus and minus what the share of samples below it is uncertain by (Woodruff), and no density
has to be estimated: the limits are wide on the side of a long tail, and open where there are too
few samples for a quantile at all. That uncertainty, like the mean's, is the long-run one of sums
over blocks of time (``detectors.long_run``): of n tokens that share a step, or of requests that
share a queue, it counts what they are worth together. The two sides' limits make those of the
difference, each by its own side (MOVER)::

    lower = d - sqrt((b - b_lower)**2 + (a_upper - a)**2)

At *equal workload* each group of strata of A counts as much as it has samples in B: what A would
have looked like under B's traffic. B's mix is itself a sample; its part is in the error.

Sources: Woodruff 1952, doi:10.1080/01621459.1952.10483443; Zou & Donner 2008,
doi:10.1002/sim.3095 (MOVER); Francisco & Fuller 1991, doi:10.1214/aos/1176347993.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from detectors.blocks import Counted, lower_edge
from detectors.long_run import LongRun, critical, long_run
from detectors.partition import MIN_KNOWN_SAMPLES
from detectors.strata import N_STRATA

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Interval = tuple[float, float]

_DENSITY_FROM: Final = 0.5
"""Densities are compared over so much of the level's distance to 0 or 1, on both sides."""
_SMOOTH_ERRORS: Final = 2.0
_ROUNDING: Final = 1e-12
_MAX_DENSITY_RATIO: Final = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """A distribution function over places.

    Attributes:
        places: Those with samples, ascending, shape ``(n,)``.
        cumulative: Share of the samples up to and with each, the last 1.
    """

    places: Ints
    cumulative: Floats

    @classmethod
    def of(cls, places: Ints, weights: Floats) -> Self:
        """Return that of samples at ``places`` with positive ``weights``, in any order."""
        found, at = np.unique(places, return_inverse=True)
        cumulative = np.cumsum(_added(at, weights, found.size))
        return cls(found, cumulative / cumulative[-1])

    def at(self, level: float) -> tuple[int, float]:
        """Return the place in which ``level`` is reached, and at which fraction of it."""
        index = min(int(self.cumulative.searchsorted(level)), self.places.size - 1)
        before = float(self.cumulative[index - 1]) if index else 0.0
        inside = float(self.cumulative[index]) - before
        fraction = min(max((level - before) / inside, 0.0), 1.0) if inside > 0.0 else 1.0
        return int(self.places[index]), fraction

    def quantile(self, level: float) -> float:
        """Return the quantile at ``level``, interpolated; infinite where there is none."""
        if not 0.0 < level < 1.0:
            return math.copysign(math.inf, level - 0.5)
        place, fraction = self.at(level)
        low, high = _edges(place)
        return low + fraction * (high - low)

    def limits(self, low: float, high: float) -> Interval:
        """Return the outer edges of the places in which the levels ``low``, ``high`` are reached.

        A level of 0 or less, or 1 or more, is reached nowhere: the limit is infinite.
        """
        lower = _edges(self.at(low)[0])[0] if low > 0.0 else -math.inf
        return lower, _edges(self.at(high)[0])[1] if high < 1.0 else math.inf


def _added(where: Ints, numbers: Floats, length: int) -> Floats:
    """Return the sum of the ``numbers`` at each of ``length`` places."""
    return np.bincount(where, weights=numbers, minlength=length).astype(np.float64, copy=False)


def _nearby(level: float) -> float:
    return _DENSITY_FROM * min(level, 1.0 - level)


def _edges(place: int) -> Interval:
    low, high = lower_edge(np.array([place, place + 1])).tolist()
    return low, high


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A statistic of one side.

    Attributes:
        value: In the column's unit.
        error: Of the mean, in its unit; of a quantile, of the share of samples below it.
        blocks: Blocks of time behind it.
        level: The quantile's level; None: it is the mean.
        distribution: What the quantile is of.
    """

    value: float
    error: LongRun
    blocks: int
    level: float | None
    distribution: Distribution

    def limits(self, confidence: float) -> Interval:
        """Return the limits at ``confidence``, both sides together; infinite where unknown."""
        if not self.error.cosines:
            return -math.inf, math.inf
        wide = critical(self.error.cosines, confidence) * self.error.error
        if self.level is None:
            return self.value - wide, self.value + wide
        return self.distribution.limits(self.level - wide, self.level + wide)

    def arms(self, errors: float) -> Interval:
        """Return how far it reaches down and up by so many standard errors, 0 or more.

        What is less than two errors is a part of what is two: between few samples the distribution
        function is rough.
        """
        wide = errors * self.error.error
        if self.level is None:
            return wide, wide
        smooth = min(_SMOOTH_ERRORS * self.error.error, _nearby(self.level))
        asked = max(wide, smooth)
        if not asked:
            return 0.0, 0.0
        low, high = (self.distribution.quantile(self.level + d) for d in (-asked, asked))
        part = wide / asked
        return part * (self.value - low), part * (high - self.value)

    @property
    def resolution(self) -> float:
        """How far a histogram may be off."""
        if self.level is None:
            return 0.0
        low, high = _edges(self.distribution.at(self.level)[0])
        return high - low


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """B - A of one statistic."""

    a: Side
    b: Side

    @property
    def difference(self) -> float:
        """B - A, in the column's unit; 0 where they differ by rounding alone."""
        rounding = _ROUNDING * max(abs(self.a.value), abs(self.b.value))
        difference = self.b.value - self.a.value
        return difference if abs(difference) > rounding else 0.0

    def interval(self, confidence: float, scale: float = 1.0) -> Interval:
        """Return the limits of ``B - scale * A``; infinite where unknown."""
        a_low, a_high = self.a.limits(confidence)
        b_low, b_high = self.b.limits(confidence)
        down, up = self.a.value - a_low, a_high - self.a.value
        if scale < 0.0:
            down, up = up, down
        middle, size = self.b.value - scale * self.a.value, abs(scale)
        # Of nothing of A, nothing is unknown: 0 times infinity is not a number.
        down, up = (size * down, size * up) if size else (0.0, 0.0)
        lower = middle - math.hypot(self.b.value - b_low, up)
        return lower, middle + math.hypot(b_high - self.b.value, down)


class Contrasts(NamedTuple):
    """B - A of mean and quantiles.

    Attributes:
        mean: Of the mean; quantiles: by level, as they were asked for.
        share: Of B's samples, those that it is about.
    """

    mean: Contrast
    quantiles: Sequence[Contrast]
    share: float


ALL_ALIKE: Final[Ints] = np.zeros(N_STRATA, np.int64)
"""The groups in which no stratum is told from another: B - A as it is."""


def contrasts(
    a: Counted, b: Counted, levels: Sequence[float], groups: Ints = ALL_ALIKE
) -> Contrasts | None:
    """Return B - A at equal workload, by ``groups`` of strata; None if they have none in common.

    Args:
        a: One sample or more; b: the same.
        levels: Of the quantiles, each above 0 and below 1.
        groups: The group of each stratum, from 0, shape ``(N_STRATA,)``. What B has in groups of
            which A has under ``MIN_KNOWN_SAMPLES`` is left out.
    """
    pair = _pair(a, b, groups)
    if pair is None:
        return None
    of_a = Distribution.of(pair.a.place, pair.a.counts * pair.weights[pair.a.group])
    of_b = Distribution.of(pair.b.place, pair.b.counts)
    found = [_quantile(pair, of_a, of_b, level) for level in levels]
    return Contrasts(_mean(pair, of_a, of_b), found, pair.b.total / b.samples)


class _Rows(NamedTuple):
    """The rows of one side that count, with their groups."""

    block: Ints
    group: Ints
    place: Ints
    counts: Floats
    sum_block: Ints
    sum_group: Ints
    sum_counts: Floats
    sums: Floats
    blocks: int
    total: float

    def by_group(self, numbers: Floats, groups: int) -> Floats:
        return _added(self.group, numbers, groups)

    def by_block(self, numbers: Floats) -> Floats:
        return _added(self.block, numbers, self.blocks)


class _Pair(NamedTuple):
    """Both sides, and how much a sample of each group of A counts; all weights make 1."""

    a: _Rows
    b: _Rows
    a_samples: Floats
    weights: Floats


def _pair(a: Counted, b: Counted, groups: Ints) -> _Pair | None:
    n_groups = int(groups.max()) + 1
    in_a = _added(groups[a.stratum], a.counts, n_groups)
    in_b = _added(groups[b.stratum], b.counts, n_groups)
    # Where nothing is told apart, nothing is unknown.
    known = in_a >= (MIN_KNOWN_SAMPLES if n_groups > 1 else 1)
    known &= in_b > 0
    if not known.any():
        return None
    share = np.where(known, in_b, 0.0) / in_b[known].sum()
    weights = share / np.maximum(in_a, 1.0)
    return _Pair(_known(a, groups, known), _known(b, groups, known), in_a, weights)


def _known(side: Counted, groups: Ints, known: NDArray[np.bool_]) -> _Rows:
    group, sum_group = groups[side.stratum], groups[side.sum_stratum]
    rows, sums = known[group], known[sum_group]
    return _Rows(
        block=side.block[rows],
        group=group[rows],
        place=side.place[rows],
        counts=side.counts[rows],
        sum_block=side.sum_block[sums],
        sum_group=sum_group[sums],
        sum_counts=side.sum_counts[sums],
        sums=side.sums[sums],
        blocks=side.blocks,
        total=float(side.counts[rows].sum()),
    )


def _mean(pair: _Pair, of_a: Distribution, of_b: Distribution) -> Contrast:
    a, b, weights = pair.a, pair.b, pair.weights
    sums = _added(a.sum_group, a.sums, weights.size)
    usual = sums / np.maximum(pair.a_samples, 1.0)
    value_a = float(weights @ sums)
    value_b = float(b.sums.sum()) / b.total
    in_a = weights[a.sum_group] * (a.sums - usual[a.sum_group] * a.sum_counts)
    excess = value_b - value_a
    in_b = (b.sums - (usual[b.sum_group] + excess) * b.sum_counts) / b.total
    terms_a = _added(a.sum_block, in_a, a.blocks)
    terms_b = _added(b.sum_block, in_b, b.blocks)
    return Contrast(
        Side(value_a, long_run(terms_a, _ROUNDING * abs(value_a)), a.blocks, None, of_a),
        Side(value_b, long_run(terms_b, _ROUNDING * abs(value_b)), b.blocks, None, of_b),
    )


def _quantile(pair: _Pair, of_a: Distribution, of_b: Distribution, level: float) -> Contrast:
    a, b, weights = pair.a, pair.b, pair.weights
    below_a, below_b = _below(a, of_a, level), _below(b, of_b, level)
    usual = a.by_group(below_a, weights.size) / np.maximum(pair.a_samples, 1.0)
    terms_a = a.by_block(weights[a.group] * (below_a - usual[a.group] * a.counts))
    # B's mix moves the quantile of A that it is compared with: by the density there.
    expected = _density_ratio(of_a, of_b, level) * usual[b.group]
    in_b = (below_b - expected * b.counts) / b.total
    terms_b = b.by_block(in_b) - float(in_b.sum()) * b.by_block(b.counts) / b.total
    return Contrast(
        Side(of_a.quantile(level), long_run(terms_a, _ROUNDING), a.blocks, level, of_a),
        Side(of_b.quantile(level), long_run(terms_b, _ROUNDING), b.blocks, level, of_b),
    )


def _below(rows: _Rows, distribution: Distribution, level: float) -> Floats:
    """Return of each row how many of its samples are below the quantile."""
    place, fraction = distribution.at(level)
    share = np.where(rows.place == place, fraction, 0.0) + (rows.place < place)
    below: Floats = rows.counts * share
    return below


def _density_ratio(of_a: Distribution, of_b: Distribution, level: float) -> float:
    """Return the density of B at its quantile by that of A at its own."""
    away = _nearby(level)
    wide_a, wide_b = (
        each.quantile(level + away) - each.quantile(level - away) for each in (of_a, of_b)
    )
    if not wide_a > 0.0 or not wide_b > 0.0:
        return 1.0
    return min(max(wide_a / wide_b, 1.0 / _MAX_DENSITY_RATIO), _MAX_DENSITY_RATIO)
