"""How NAB scores alerts: early ones within a window earn, those outside cost, a miss costs most.

An alert within a window earns by how early it is, the best one of the window counting; one outside
costs more the farther it is behind the last window. The first rows of a stream are for learning and
count nothing. The sum over the corpus is scaled so that silence scores 0 and an alert on the first
row of every window, with no other, scores 100.

Source: Lavin & Ahmad 2015, "Evaluating real-time anomaly detection algorithms", section II,
arXiv:1510.03336; details as in the benchmark's own code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from bench.nab.corpus import Profile, Stream, Window

_STEEPNESS: Final = 5.0
_FAR_BEHIND: Final = 3.0
"""Window widths behind a window from which on an alert costs all it can."""
_LEARNING_SHARE: Final = 0.15
_LEARNING_ROWS_MAX: Final = 750


def learning_rows(rows: int) -> int:
    """Return how many rows at a stream's beginning are not scored: 15 %, at most 750."""
    return min(int(_LEARNING_SHARE * rows), _LEARNING_ROWS_MAX)


def earliness(position: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what an alert is worth by its position, before weights: 1 early, -1 far behind.

    Args:
        position: Window widths relative to the window's end: -1 is its first row, 0 just behind it.
    """
    worth: NDArray[np.float64] = 2.0 / (1.0 + np.exp(_STEEPNESS * position)) - 1.0
    worth[position > _FAR_BEHIND] = -1.0
    return worth


@dataclass(frozen=True, slots=True, eq=False)
class AlertWorth:
    """What an alert on each row of a stream is worth, before a profile's weights.

    Attributes:
        worth: 0 to 1 within a window, -1 to 0 outside, shape ``(rows,)``.
        window: Number of the window that a row is in; -1 outside. Shape ``(rows,)``.
        learning: Rows at the beginning that count nothing.
    """

    worth: NDArray[np.float64]
    window: NDArray[np.int64]
    learning: int

    @classmethod
    def of(cls, rows: int, windows: Sequence[Window]) -> Self:
        """Return it for a stream of ``rows`` with anomalies in ``windows``, ascending."""
        worth = np.full(rows, -1.0)
        window = np.full(rows, -1)
        best = earliness(np.array([-1.0]))[0]
        for number, (first, last) in enumerate(windows):
            width = last - first + 1
            within = np.arange(first, last + 1)
            worth[within] = earliness((within - last - 1) / width) / best
            window[within] = number
            behind = np.arange(last + 1, rows)
            worth[behind] = earliness((behind - last) / (width - 1))
        return cls(worth, window, learning_rows(rows))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What alerts on one or more streams came to; outcomes add up.

    Attributes:
        windows: Anomalies that could be found.
        found: How many were.
        earned: Sum of the found anomalies' worth, each at most 1.
        false_alarms: Alerts outside every window.
        wasted: Sum of the false alarms' worth, each at most 1, without sign.
    """

    windows: int = 0
    found: int = 0
    earned: float = 0.0
    false_alarms: int = 0
    wasted: float = 0.0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.windows + other.windows,
            self.found + other.found,
            self.earned + other.earned,
            self.false_alarms + other.false_alarms,
            self.wasted + other.wasted,
        )

    def score(self, profile: Profile) -> float:
        """Return the benchmark's score under ``profile``: 0 for silence, 100 for perfection.

        Raises:
            ValueError: If there was nothing to find.
        """
        if not self.windows:
            raise ValueError("a score needs streams with at least one anomaly, got none")
        silence = -profile.missed * self.windows
        perfect = profile.found * self.windows
        missed = profile.missed * (self.windows - self.found)
        raw = profile.found * self.earned - missed - profile.false_alarm * self.wasted
        return 100.0 * (raw - silence) / (perfect - silence)


def outcome(stream: Stream, alerts: NDArray[np.bool_]) -> Outcome:
    """Return what ``alerts``, one truth a row, came to on ``stream``.

    Raises:
        ValueError: If there are not as many truths as rows.
    """
    if alerts.shape != stream.values.shape:
        raise ValueError(f"alerts have shape {alerts.shape} but rows {stream.values.shape}")
    table = AlertWorth.of(stream.values.size, stream.windows)
    rows = np.flatnonzero(alerts)
    rows = rows[rows >= table.learning]
    within = rows[table.window[rows] >= 0]
    outside = rows[table.window[rows] < 0]
    best = np.full(len(stream.windows), -np.inf)
    np.maximum.at(best, table.window[within], table.worth[within])
    found = best > -np.inf
    return Outcome(
        windows=len(stream.windows),
        found=int(found.sum()),
        earned=float(best[found].sum()),
        false_alarms=outside.size,
        wasted=-float(table.worth[outside].sum()),
    )


def total(streams: Iterable[Stream], alerts: Mapping[str, NDArray[np.bool_]]) -> Outcome:
    """Return what ``alerts``, by the stream's name, came to on all ``streams`` together."""
    return sum((outcome(stream, alerts[stream.name]) for stream in streams), Outcome())
