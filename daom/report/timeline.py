"""The course of one stream, in a bounded number of buckets however long it is.

A bucket holds the verdicts of an interval: the least and the most P99, so that no peak is lost, the
largest KL with its parts, the strongest evidence with what it was held against, and the state that
matters most. When there are too many buckets, neighbours are joined and all become twice as wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from daom.events import DriftVerdict

STATES: Final = ("insufficient", "calm", "faster", "workload", "slower")
"""What a verdict may say, what matters most last."""
LETTERS: Final = "icfws"
"""A letter for each of them."""

MOST_BUCKETS: Final = 2_048
"""While it is built a timeline has so many at most: 200 kB."""

_WHOLE: Final = ("verdicts", "drifting", "samples")
_NUMBERS: Final = (
    *_WHOLE,
    "p99_least_s",
    "p99_most_s",
    "threshold_s",
    "kl_nats",
    "workload_nats",
    "service_nats",
    "evidence_nats",
    "evidence_limit_nats",
    "state",
)
_AT: Final = {name: place for place, name in enumerate(_NUMBERS)}
_TOGETHER: Final = (
    ("kl_nats", "workload_nats", "service_nats"),
    ("evidence_nats", "evidence_limit_nats"),
)
"""Of these the first decides whose are kept."""
_P99_DIGITS: Final = 4
_DIGITS: Final = 3

Rows = NDArray[np.float64]


def state_of(verdict: DriftVerdict) -> int:
    """Return the number of the state, in ``STATES``, that ``verdict`` tells."""
    if verdict.drifting == "insufficient":
        return 0
    if not verdict.drifting:
        return 1
    if verdict.attribution == "workload":
        return 3
    return 2 if verdict.direction == "faster" else 4


@dataclass(slots=True)
class _Bucket:
    """The bucket that is being filled. NaN: nothing was said."""

    number: int
    verdicts: int = 0
    drifting: int = 0
    samples: int = 0
    p99_least_s: float = math.nan
    p99_most_s: float = math.nan
    threshold_s: float = math.nan
    kl_nats: float = math.nan
    workload_nats: float = math.nan
    service_nats: float = math.nan
    evidence_nats: float = math.nan
    evidence_limit_nats: float = math.nan
    state: int = 0

    def note(self, verdict: DriftVerdict, state: int) -> None:
        self.verdicts += 1
        self.drifting += verdict.drifting is True
        self.samples = max(self.samples, verdict.samples)
        self.state = max(self.state, state)
        p99_s = verdict.p99_s
        if p99_s is not None:
            # Written so that NaN gives way to the first number.
            self.p99_least_s = p99_s if not self.p99_least_s <= p99_s else self.p99_least_s
            self.p99_most_s = p99_s if not self.p99_most_s >= p99_s else self.p99_most_s
        if verdict.threshold_s is not None:
            self.threshold_s = verdict.threshold_s
        if verdict.kl_nats is not None and not self.kl_nats >= verdict.kl_nats:
            self.kl_nats = verdict.kl_nats
            self.workload_nats = _or_nan(verdict.workload_nats)
            self.service_nats = _or_nan(verdict.service_nats)
        evidence_nats = verdict.evidence.get("evidence_nats")
        if evidence_nats is not None and not self.evidence_nats >= evidence_nats:
            self.evidence_nats = evidence_nats
            self.evidence_limit_nats = verdict.evidence.get("threshold_nats", math.nan)

    def row(self) -> list[float]:
        return [getattr(self, name) for name in _NUMBERS]


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


class Timeline:
    """One stream's verdicts, bucket by bucket.

    Args:
        pane_s: How long what a verdict is about lasts; the width of a bucket at first.
        most: So many buckets are kept at most.
    """

    def __init__(self, pane_s: float, most: int = MOST_BUCKETS) -> None:
        self._pane_s = pane_s
        self._most = most
        self._width_s = pane_s
        self._numbers: NDArray[np.int64] = np.empty(64, np.int64)
        self._rows: Rows = np.empty((64, len(_NUMBERS)))
        self._count = 0
        self._open: _Bucket | None = None
        self.newest: DriftVerdict | None = None
        self.states = [0] * len(STATES)

    def note(self, verdict: DriftVerdict) -> None:
        """Take the next verdict; one from before is put where it belongs."""
        state = state_of(verdict)
        self.states[state] += 1
        self.newest = verdict
        # The middle of the pane is in it whatever rounding does to its ends.
        middle_s = verdict.event_time_s - 0.5 * self._pane_s
        number = int(middle_s // self._width_s)
        bucket = self._open
        if bucket is None or bucket.number != number:
            self._close()
            bucket = self._open = _Bucket(int(middle_s // self._width_s))
        bucket.note(verdict, state)

    def absorb(self, other: Timeline) -> None:
        """Take what was said of the same stream elsewhere, under the same ``pane_s``."""
        self._close()
        other._close()
        numbers, rows = [], []
        width_s = max(self._width_s, other._width_s)
        for timeline in (self, other):
            count = timeline._count
            # Widths are the pane's times powers of two.
            numbers.append(timeline._numbers[:count] // round(width_s / timeline._width_s))
            rows.append(timeline._rows[:count])
        joined, joined_rows = _joined(np.concatenate(numbers), np.concatenate(rows))
        while joined.size > self._most:
            width_s *= 2.0
            joined, joined_rows = _joined(joined // 2, joined_rows)
        self._width_s, self._count = width_s, joined.size
        self._numbers, self._rows = joined, joined_rows
        self.states = [sum(pair) for pair in zip(self.states, other.states, strict=True)]
        if other.newest is not None and (
            self.newest is None or other.newest.event_time_s > self.newest.event_time_s
        ):
            self.newest = other.newest

    def _close(self) -> None:
        """Keep the open bucket; there is room for it afterwards."""
        if self._open is None:
            return
        if self._count == self._numbers.size:
            more = max(64, min(2 * self._count, self._most + 1) - self._count)
            self._numbers = np.concatenate([self._numbers, np.empty(more, np.int64)])
            self._rows = np.concatenate([self._rows, np.empty((more, len(_NUMBERS)))])
        self._numbers[self._count] = self._open.number
        self._rows[self._count] = self._open.row()
        self._count += 1
        self._open = None
        while self._count > self._most:
            self._width_s *= 2.0
            halved = self._numbers[: self._count] // 2
            numbers, rows = _joined(halved, self._rows[: self._count])
            self._count = numbers.size
            self._numbers[: self._count], self._rows[: self._count] = numbers, rows

    def course(self, most: int) -> Course:
        """Return the buckets, joined until there are at most ``most`` (and at least one)."""
        self._close()
        numbers, rows = _joined(self._numbers[: self._count], self._rows[: self._count])
        width_s = self._width_s
        while numbers.size > max(1, most):
            width_s *= 2.0
            numbers, rows = _joined(numbers // 2, rows)
        return Course(width_s, numbers, rows)


def _joined(numbers: NDArray[np.int64], rows: Rows) -> tuple[NDArray[np.int64], Rows]:
    """Return the buckets in order, those of one number as one."""
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows[order]
    starts = np.flatnonzero(np.r_[True, np.diff(numbers) != 0]) if numbers.size else order
    if starts.size == numbers.size:
        return numbers, rows
    joined = np.empty((starts.size, len(_NUMBERS)))
    for name, place in _AT.items():
        column = rows[:, place]
        if name in {"verdicts", "drifting"}:
            joined[:, place] = np.add.reduceat(column, starts)
        elif name == "p99_least_s":
            joined[:, place] = np.fmin.reduceat(column, starts)
        else:
            joined[:, place] = np.fmax.reduceat(column, starts)
    _take_last(rows, joined, starts, _AT["threshold_s"])
    for names in _TOGETHER:
        _take_with_the_largest(rows, joined, starts, [_AT[name] for name in names])
    return numbers[starts], joined


def _take_last(rows: Rows, joined: Rows, starts: NDArray[np.intp], place: int) -> None:
    """Take the last number of each group; NaN if it has none."""
    column = rows[:, place]
    known = np.where(np.isnan(column), -1, np.arange(column.size))
    last = np.maximum.reduceat(known, starts)
    joined[:, place] = np.where(last < 0, math.nan, column[last])


def _take_with_the_largest(
    rows: Rows, joined: Rows, starts: NDArray[np.intp], places: list[int]
) -> None:
    """Take the numbers of the row of each group in which the first of them is the largest."""
    key = np.nan_to_num(rows[:, places[0]], nan=-math.inf)
    group = np.zeros(key.size, np.int64)
    group[starts[1:]] = 1
    by_size = np.lexsort((key, np.cumsum(group)))
    largest = by_size[np.r_[starts[1:], key.size] - 1]
    joined[:, places] = rows[np.ix_(largest, places)]


@dataclass(frozen=True, slots=True)
class Course:
    """The buckets of a stream, ready to be told.

    Attributes:
        width_s: Length of each bucket.
        numbers: Bucket ``n`` begins at ``n * width_s``; ascending, int64, shape ``(buckets,)``.
        rows: What is in them, shape ``(buckets, numbers)``.
    """

    width_s: float
    numbers: NDArray[np.int64]
    rows: Rows

    def line(self) -> dict[str, Any]:
        """Return the columns as plain lists: shortened numbers, None where there is none."""
        told: dict[str, Any] = {
            "width_s": self.width_s,
            "time_s": _shortened(np.float64(self.width_s) * self.numbers, 14),
        }
        for name, place in _AT.items():
            if name == "state":
                continue
            digits = _P99_DIGITS if name in {"p99_least_s", "p99_most_s", "threshold_s"} else None
            told[name] = _shortened(self.rows[:, place], digits or _DIGITS, whole=name in _WHOLE)
        return told

    def strip(self) -> list[list[Any]]:
        """Return the states: of each run of buckets without a gap its start and its letters."""
        if not self.numbers.size:
            return []
        letters = [LETTERS[int(state)] for state in self.rows[:, _AT["state"]]]
        breaks = [0, *(np.flatnonzero(np.diff(self.numbers) > 1) + 1).tolist(), len(letters)]
        pairs = pairwise(breaks)
        return [[float(self.numbers[a]) * self.width_s, "".join(letters[a:b])] for a, b in pairs]

    @property
    def worst_over_threshold(self) -> float | None:
        """The most that P99 was of its threshold: 2 is twice; None without a threshold."""
        with np.errstate(all="ignore"):
            ratios = self.rows[:, _AT["p99_most_s"]] / self.rows[:, _AT["threshold_s"]]
        known = ratios[np.isfinite(ratios)]
        return float(f"{known.max():.4g}") if known.size else None


def _shortened(
    values: NDArray[np.float64], digits: int, *, whole: bool = False
) -> list[float | int | None]:
    """Return ``values`` with so many significant digits; None for NaN and infinity."""
    if whole:
        return [int(value) for value in values.tolist()]
    finite = np.isfinite(values)
    size = np.abs(np.where(finite & (values != 0.0), values, 1.0))
    scale = 10.0 ** np.maximum(0, digits - 1 - np.floor(np.log10(size)))
    short = np.round(np.where(finite, values, 0.0) * scale) / scale
    return [
        value if ok else None for value, ok in zip(short.tolist(), finite.tolist(), strict=True)
    ]
