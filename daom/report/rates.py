"""How often, over which time: alerts a week, with what the time observed can prove."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from scipy.special import bdtr

from daom.heard import Heard, Interval, union
from detectors.evaluation import mtbfa_interval

WEEK_S: Final = 7 * 86_400.0
_TAIL: Final = 0.025


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


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return limits of the median that hold with at least 95 %, whatever the distribution.

    They are two of the values themselves. None: fewer than six cannot say so much.

    >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    (1.0, 6.0)

    Source:
        David & Nagaraja, Order Statistics (2003), section 7.1.
    """
    # So many values on either side are further out than the limits.
    n = len(values)
    outside = next(k for k in range(n + 1) if bdtr(k, n, 0.5) >= _TAIL)
    if outside == 0:
        return None
    ordered = sorted(values)
    return ordered[outside - 1], ordered[-outside]


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
        pieces.extend(_without(union(judged), silences.get(model, ())))
    return sum(end_s - start_s for start_s, end_s in union(pieces))


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
