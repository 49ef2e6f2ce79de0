"""Whether a P99 is resolved: a cap at which many samples are equal hides what lies beyond.

A client's timeout, a clipped measurement, the last edge of somebody's buckets: where the largest
value is shared by a hundredth of the samples or more, P99 is that value however slow the rest has
become. It then says neither "calm" nor "slow". Counts still do: the share at the cap is compared
with the reference's like any other share, so a drift that they show is believed.

Continuous measurements are never equal so often, and those of a coarse clock thin out towards their
largest: its count must stand out from that of the next smaller value.

Cost: one more pass over the values, and some microseconds a pane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.compiled import compiled
from detectors.histogram import SparseCounts
from detectors.protocol import Detector, DriftScore, State

_TAIL_SHARE: Final = 0.01
_MIN_EQUAL: Final = 4
_STANDS_OUT: Final = 2.0
_MIN_SAMPLES: Final = 500
"""Fewer cannot show a hundredth; so many of the newest are asked."""
_MAX_PANES: Final = 360
_LOOK_AT: Final = 16_384
"""So many values are looked at together: calls are mostly overhead."""


class Top(NamedTuple):
    """The two largest values of some samples, and how often each occurs.

    Attributes:
        samples: Those measured.
        value: The largest; ``equal`` samples are as large.
        below: The next smaller one; ``below_equal`` samples are that, 0 where there is none.
    """

    samples: int = 0
    value: float = 0.0
    equal: int = 0
    below: float = 0.0
    below_equal: int = 0

    @classmethod
    def of(cls, values: NDArray[np.float32]) -> Top:
        """Return the top of ``values``, shape ``(rows,)``; a NaN is no sample."""
        return cls().plus(values)

    @classmethod
    def of_all(cls, tops: Sequence[Top]) -> Top:
        """Return the top of all samples together: exact, whatever their order."""
        counts: dict[float, int] = {}
        for top in tops:
            for value, equal in ((top.value, top.equal), (top.below, top.below_equal)):
                if equal:
                    counts[value] = counts.get(value, 0) + equal
        samples = sum(top.samples for top in tops)
        match sorted(counts, reverse=True)[:2]:
            case [value, below]:
                return cls(samples, value, counts[value], below, counts[below])
            case [value]:
                return cls(samples, value, counts[value])
        return cls()

    def plus(self, values: NDArray[np.float32]) -> Top:
        """Return the top of these and of ``values``."""
        return Top(*_with(values, *self))

    @property
    def is_cap(self) -> bool:
        """Return whether P99 lies among equal values that stand out: a cap.

        Samples that are all equal are constant rather than capped.
        """
        enough = self.equal >= max(_MIN_EQUAL, _TAIL_SHARE * self.samples)
        return enough and self.below_equal > 0 and self.equal >= _STANDS_OUT * self.below_equal


@compiled
def _with(
    values: NDArray[np.float32],
    samples: int,
    largest: float,
    equal: int,
    below: float,
    below_equal: int,
) -> tuple[int, float, int, float, int]:
    """Return the fields of a ``Top`` with ``values``: most of them are below both of its own."""
    largest = largest if equal else -np.inf
    below = below if below_equal else -np.inf
    samples += values.size
    for value in values:
        if value < below:
            continue
        if value > largest:
            below, below_equal = largest, equal
            largest, equal = value, 1
        elif value == largest:
            equal += 1
        elif value > below:
            below, below_equal = value, 1
        elif value == below:
            below_equal += 1
        else:
            samples -= 1
    return samples, largest if equal else 0.0, equal, below if below_equal else 0.0, below_equal


class TopPane:
    """A pane of another kind, ``inner``, beside which the largest values are kept."""

    __slots__ = ("_loose", "_n_loose", "_top", "inner", "snapshot_type")

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.snapshot_type = tuple[inner.snapshot_type, Top]
        self._top = Top()
        self._loose: list[NDArray[np.float32]] = []
        self._n_loose = 0

    @property
    def samples(self) -> int:
        """How many samples."""
        return int(self.inner.samples)

    def add(self, values: NDArray[np.float32], *columns: Any) -> None:
        self.inner.add(values, *columns)
        self._loose.append(values)
        self._n_loose += values.size
        if self._n_loose >= _LOOK_AT:
            self.top()

    def add_counts(self, fresh: SparseCounts) -> None:
        """Take samples that are binned already: of their bin all are equal, which is no cap."""
        self.inner.add_counts(fresh)

    def top(self) -> Top:
        """Return the largest values so far; batches are looked at together."""
        if self._loose:
            self._top = self._top.plus(np.concatenate(self._loose))
            self._loose.clear()
            self._n_loose = 0
        return self._top

    def counts(self) -> SparseCounts:
        counts: SparseCounts = self.inner.counts()
        return counts

    def merge(self, *others: TopPane) -> None:
        self.inner.merge(*(other.inner for other in others))
        self._top = Top.of_all([self.top(), *(other.top() for other in others)])

    def snapshot(self) -> Any:
        return self.inner.snapshot(), self.top()

    def restore(self, snapshot: Any) -> None:
        inner, self._top = snapshot
        self.inner.restore(inner)


@dataclass(slots=True)
class WatchedState(Generic[State]):
    """The state of the detector that is watched, and the top of the newest panes, oldest first."""

    inner: State
    tops: list[Top] = field(default_factory=list)


class SaturationWatch:
    """A detector whose scores say, in addition, where a cap hides the tail.

    Evidence added while P99 is at a cap: ``saturated_share``, the share of the samples that equal
    the largest, and ``saturated_at_s``, that value.

    Args:
        detector: Judges the panes; what it finds stays as it is.
    """

    def __init__(self, detector: Detector[Any]) -> None:
        self._detector = detector
        self.kind = detector.kind
        self.state_type: Any = WatchedState[detector.state_type]  # type: ignore[name-defined]

    def initial(self) -> WatchedState[Any]:
        return WatchedState(self._detector.initial())

    def new_pane(self) -> Any:  # A TopPane, whose snapshots have the type of their detector's.
        return TopPane(self._detector.new_pane())

    def renew(self, state: WatchedState[Any], why: str, **how: Any) -> None:
        self._detector.renew(state.inner, why, **how)

    def update(
        self, state: WatchedState[Any], pane: TopPane, end_s: float, **how: Any
    ) -> Sequence[DriftScore]:
        scores = self._detector.update(state.inner, pane.inner, end_s, **how)
        state.tops.append(pane.top())
        return [_marked(score, state.tops) for score in scores]


def _marked(score: DriftScore, tops: list[Top]) -> DriftScore:
    """Return ``score`` with what the panes that it is about, or somewhat more, say of a cap."""
    _forget(tops, max(_MIN_SAMPLES, score.samples))
    largest = max(top.value for top in tops)
    if sum(top.equal for top in tops if top.value == largest) < _MIN_EQUAL:
        return score
    top = Top.of_all(tops)
    if not top.is_cap:
        return score
    found = {"saturated_share": top.equal / top.samples, "saturated_at_s": top.value}
    return replace(score, evidence=score.evidence | found)


def _forget(tops: list[Top], samples: int) -> None:
    """Forget the oldest panes that ``samples`` newest samples do not reach back to."""
    kept = sum(top.samples for top in tops)
    first = 0
    while first < len(tops) - 1 and (
        kept - tops[first].samples >= samples or len(tops) - first > _MAX_PANES
    ):
        kept -= tops[first].samples
        first += 1
    del tops[:first]
