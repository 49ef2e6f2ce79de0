"""How often, over which time: alerts a week, with what the time observed can prove."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from daom.heard import Heard, Interval
from detectors.evaluation import mtbfa_interval

WEEK_S: Final = 7 * 86_400.0


class Rate(NamedTuple):
    """Alerts a week, and 95 % limits (Garwood's, exact for independent alarms)."""

    a_week: float
    least: float
    most: float


def rate(count: int, observed_s: float) -> Rate | None:
    """Return how many a week ``count`` in so many seconds are; None if nothing was observed."""
    if observed_s <= 0.0:
        return None
    shortest_s, longest_s = mtbfa_interval(count, observed_s)
    least = 0.0 if math.isinf(longest_s) else WEEK_S / longest_s
    return Rate(count * WEEK_S / observed_s, least, WEEK_S / shortest_s)


def observed_s(heard: Heard, silences: Mapping[str, Sequence[Interval]]) -> float:
    """Return how long anything was judged, of any model, without the times in which it was silent.

    Args:
        heard: What a setting said.
        silences: By model, when nothing of it was recorded.
    """
    by_model: dict[str, list[Interval]] = {}
    for (_, series), of_series in heard.series.items():
        by_model.setdefault(series.model, []).extend(of_series.judged)
    pieces: list[Interval] = []
    for model, judged in by_model.items():
        pieces.extend(_without(_union(judged), silences.get(model, ())))
    return sum(end_s - start_s for start_s, end_s in _union(pieces))


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for start_s, end_s in sorted(intervals):
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_s))
        else:
            joined.append((start_s, end_s))
    return joined


def _without(pieces: Iterable[Interval], left_out: Iterable[Interval]) -> list[Interval]:
    kept = list(pieces)
    for start_s, end_s in left_out:
        kept = [
            (max(a, low), min(b, high))
            for a, b in kept
            for low, high in ((-math.inf, start_s), (end_s, math.inf))
            if min(b, high) > max(a, low)
        ]
    return kept
