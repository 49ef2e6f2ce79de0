"""Series that come as bucket counts: what they can say, and what they cannot.

An engine whose samples nobody can see counts them in buckets of its own, often an octave wide.
Ranks and KL need no more than counts: each bucket is one value, with ties. So a bucket's samples
are put where the logarithm of its bounds has its middle: one bin of the histogram, well inside the
bucket, the same for every pane. Nothing is interpolated, and no evidence is made up: a shift within
one bucket is invisible, and one across its edge is seen by as many samples as crossed it.

What a person reads is limited the same way. A quantile is reported as the upper edge of the bucket
that it lies in, the lower limit of one as the lower edge. A slowdown is what is sure: from the
upper edge of where a quantile was expected to the lower edge of where it is, or, if more, what the
shift of the mean rank is worth by the density of the buckets. No bucket says how long its prompts
were: a drift of the service cannot be told from one of the workload, and is called mixed.

Evidence added: ``bucket_from_s`` and ``bucket_to_s``, the bucket that P99 lies in (no upper edge:
beyond all of them), ``bucket_ratio`` of the two, ``expected_p99_least_s``.

Cost: per bucket, whatever the counts; some 20 microseconds a pane.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Generic

import numpy as np
from numpy.typing import NDArray

from detectors.histogram import SparseCounts, bin_edges, bin_index
from detectors.protocol import Detector, DriftScore, State

Bucket = tuple[float, float]
"""Lower and upper edge; a sample at the upper edge is in it."""

_OPEN_RATIO: Final = 4.0
"""Outer buckets are open: they count as two octaves wide."""
_MOST_BUCKETS: Final = 4_096
"""That a series remembers: a producer may invent other edges in every batch."""
_MEMORY: Final = 0.9
"""Of the shares of the buckets, from pane to pane."""
_RARE: Final = 0.05
_LEAST_DENSITY: Final = 0.05
_TOLERANCE: Final = 1e-9
_LARGEST_LOG: Final = math.log(100.0)
_UPPER_EDGES: Final = bin_edges()[1:]
_QUANTILES: Final = ("p50_s", "expected_p50_s", *(f"previous_p{q}_s" for q in (50, 90, 99)))
"""Those in the evidence."""


def buckets_of(le_s: Sequence[float]) -> list[Bucket]:
    """Return the buckets with these upper edges, positive and ascending."""
    return list(zip((0.0, *le_s[:-1]), le_s, strict=True))


def _closed(bucket: Bucket) -> Bucket:
    """Return ``bucket`` with both its edges finite and positive."""
    low, high = bucket
    return (low or high / _OPEN_RATIO, high if math.isfinite(high) else low * _OPEN_RATIO)


def _bins(buckets: Sequence[Bucket]) -> NDArray[np.int32]:
    """Return the bin that stands for each bucket."""
    middles = [math.sqrt(low * high) for low, high in map(_closed, buckets)]
    return bin_index(np.array(middles, np.float32))


@lru_cache(maxsize=256)
def _layout(le_s: tuple[float, ...]) -> tuple[list[Bucket], NDArray[np.int32]]:
    buckets = buckets_of(le_s)
    return buckets, _bins(buckets)


class BucketPane:
    """A pane of another kind, ``inner``, that takes bucket counts beside rows.

    Attributes:
        buckets: Those that samples may have come in, ascending.
        bucketed: How many samples came so.
    """

    __slots__ = ("bucketed", "buckets", "inner", "snapshot_type")

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.buckets: list[Bucket] = []
        self.bucketed = 0
        self.snapshot_type = tuple[inner.snapshot_type, list[Bucket], int]

    @property
    def samples(self) -> int:
        """How many samples."""
        return int(self.inner.samples)

    def add(self, values: NDArray[np.float32], *columns: Any) -> None:
        self.inner.add(values, *columns)

    def add_buckets(self, le_s: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        """Take ``counts`` samples in the buckets with these upper edges."""
        buckets, bins = _layout(tuple(le_s.tolist()))
        self._know(buckets)
        self.inner.add_counts(SparseCounts.of_counts(bins, counts))
        self.bucketed += int(counts.sum())

    def _know(self, buckets: list[Bucket]) -> None:
        if buckets != self.buckets:
            self.buckets = sorted({*self.buckets, *buckets})[:_MOST_BUCKETS]

    def counts(self) -> SparseCounts:
        counts: SparseCounts = self.inner.counts()
        return counts

    def merge(self, *others: BucketPane) -> None:
        self.inner.merge(*(other.inner for other in others))
        for other in others:
            self._know(other.buckets)
            self.bucketed += other.bucketed

    def snapshot(self) -> Any:
        return self.inner.snapshot(), self.buckets, self.bucketed

    def restore(self, snapshot: Any) -> None:
        inner, buckets, self.bucketed = snapshot
        self.buckets = list(buckets)
        self.inner.restore(inner)


@dataclass(slots=True)
class BucketState(Generic[State]):
    """The state of the detector that judges, and how the series has been measured.

    Attributes:
        buckets: All that it has come in, ascending; none: it comes as rows.
        weights: Samples in each, the newest panes counting most.
        has_rows: Rows have come too.
    """

    inner: State
    buckets: list[Bucket] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    has_rows: bool = False


class BucketWatch:
    """A detector whose scores say no more than buckets can.

    A series that comes to be measured otherwise, in other buckets or in rows, begins anew: what has
    been learned cannot be compared with it.

    Args:
        detector: Judges the panes; of a series that comes as rows its scores stay as they are.
    """

    def __init__(self, detector: Detector[Any]) -> None:
        self._detector = detector
        self.kind = detector.kind
        self.state_type: Any = BucketState[detector.state_type]  # type: ignore[name-defined]

    def initial(self) -> BucketState[Any]:
        return BucketState(self._detector.initial())

    def new_pane(self) -> Any:  # A BucketPane, whose snapshots have the type of their detector's.
        return BucketPane(self._detector.new_pane())

    def renew(self, state: BucketState[Any], why: str, **how: Any) -> None:
        self._detector.renew(state.inner, why, **how)

    def update(
        self, state: BucketState[Any], pane: BucketPane, end_s: float, **how: Any
    ) -> Sequence[DriftScore]:
        counts = pane.counts()
        if pane.samples:
            self._note(state, pane)
        if not state.buckets:
            return self._detector.update(state.inner, pane.inner, end_s, **how)
        _weigh(state, counts)
        found = self._detector.update(state.inner, pane.inner, end_s, **how)
        resolution = Resolution(state.buckets, state.weights)
        return [resolution.limit(score) for score in found]

    def _note(self, state: BucketState[Any], pane: BucketPane) -> None:
        """Note how the samples of ``pane`` were measured; begin anew if that is new."""
        new_buckets = pane.buckets != state.buckets and not set(pane.buckets) <= set(state.buckets)
        new_rows = pane.samples > pane.bucketed and not state.has_rows
        if (new_buckets or new_rows) and (state.buckets or state.has_rows):
            state.inner = self._detector.initial()
        state.has_rows = state.has_rows or new_rows
        if new_buckets:
            state.buckets = sorted({*state.buckets, *pane.buckets})[:_MOST_BUCKETS]
            state.weights = [0.0] * len(state.buckets)


def _weigh(state: BucketState[Any], counts: SparseCounts) -> None:
    """Let the shares of the buckets follow the newest pane."""
    bins = _bins(state.buckets)
    newest = np.bincount(counts.bins, counts.counts, int(bins.max()) + 1)[bins]
    state.weights = [
        _MEMORY * weight + count
        for weight, count in zip(state.weights, newest.tolist(), strict=True)
    ]


class Resolution:
    """What buckets let a score say.

    Args:
        buckets: Ascending.
        weights: Samples in each, of late.
    """

    def __init__(self, buckets: Sequence[Bucket], weights: Sequence[float]) -> None:
        self._buckets = buckets
        total = sum(weights)
        self._shares = [weight / total for weight in weights] if total else [0.0] * len(weights)
        self._tops = _UPPER_EDGES[_bins(buckets)]

    def bucket(self, value_s: float) -> Bucket:
        """Return the bucket that a quantile of binned samples, ``value_s``, lies in."""
        at = int(self._tops.searchsorted(value_s * (1.0 - _TOLERANCE)))
        return self._buckets[min(at, len(self._buckets) - 1)]

    def upper(self, value_s: float) -> float:
        """Return the upper edge of the bucket of ``value_s``; of the open one the lower edge."""
        low, high = self.bucket(value_s)
        return high if math.isfinite(high) else low

    def limit(self, score: DriftScore) -> DriftScore:
        """Return ``score`` without what the buckets cannot resolve."""
        evidence = dict(score.evidence)
        evidence |= {q: self.upper(evidence[q]) for q in _QUANTILES if q in evidence}
        if "p99_least_s" in evidence:
            evidence["p99_least_s"] = self.bucket(evidence["p99_least_s"])[0]
        p99_s, expected_p99_s = score.p99_s, score.expected_p99_s
        if p99_s is not None:
            evidence |= self._place(p99_s)
        if expected_p99_s is not None:
            evidence["expected_p99_least_s"] = self.bucket(expected_p99_s)[0]
        return replace(
            score,
            p99_s=None if p99_s is None else self.upper(p99_s),
            expected_p99_s=None if expected_p99_s is None else self.upper(expected_p99_s),
            slowdown=self._slowdown(score),
            attribution="mixed" if score.attribution == "service" else score.attribution,
            evidence=evidence,
        )

    def _place(self, p99_s: float) -> dict[str, float]:
        """Return the bucket of P99 as evidence; beyond the last edge is behind a cap."""
        low, high = self.bucket(p99_s)
        place = {"bucket_from_s": low}
        if not math.isfinite(high):
            share = self._shares[self._buckets.index((low, high))]
            return place | {"saturated_share": share, "saturated_at_s": low}
        return place | {"bucket_to_s": high} | ({"bucket_ratio": high / low} if low else {})

    def _slowdown(self, score: DriftScore) -> float:
        """Return by how much the series surely is slower, or faster, than expected."""
        numbers = score.evidence
        if score.p99_s is None or score.expected_p99_s is None or "p50_s" not in numbers:
            return 0.0
        beyond = numbers["threshold_nats"]
        # Of a tail that is heavier, but too rare to show in a lower limit, P99 is taken as it is.
        rare = numbers["tail_nats"] >= beyond and numbers["tail_share"] < _RARE
        p99_s = score.p99_s if rare else numbers["p99_least_s"]
        slowdown = max(
            self._surely(numbers["p50_s"], numbers["expected_p50_s"]),
            self._surely(p99_s, score.expected_p99_s),
        )
        if score.suspected and numbers["body_nats"] >= beyond:
            by_rank = math.expm1(min(numbers["body_shift"] / self.density, _LARGEST_LOG))
            slowdown = max(slowdown, by_rank) if by_rank > 0.0 else min(slowdown, by_rank)
        return slowdown

    def _surely(self, now_s: float, before_s: float) -> float:
        """Return the least change that leads from the bucket of one quantile to that of another."""
        now, before = _closed(self.bucket(now_s)), _closed(self.bucket(before_s))
        if now[0] >= before[1]:
            return now[0] / before[1] - 1.0
        return now[1] / before[0] - 1.0 if now[1] <= before[0] else 0.0

    @property
    def density(self) -> float:
        """The mean density of log-latency, per nat: what a shift of the rank is worth."""
        widths = [math.log(high / low) for low, high in map(_closed, self._buckets)]
        pairs = zip(self._shares, widths, strict=True)
        return max(sum(share**2 / width for share, width in pairs), _LEAST_DENSITY)


def measured_alike(states: Mapping[str, Any]) -> set[str]:
    """Return the names of the series that can be compared: all, or those that come as rows.

    Args:
        states: By name, of series of one signal.
    """
    kinds = {name: tuple(getattr(state, "buckets", ())) for name, state in states.items()}
    if len(set(kinds.values())) <= 1:
        return set(kinds)
    return {name for name, buckets in kinds.items() if not buckets}


def density_of(states: Iterable[Any]) -> float | None:
    """Return the mean density of log-latency of these series; None if they come as rows."""
    found = [
        Resolution(state.buckets, state.weights).density
        for state in states
        if getattr(state, "buckets", ())
    ]
    return sum(found) / len(found) if found else None
