"""A detector for streams of single values that follow the hour: how surprising is now, for now?

The time of day plays the part that the workload plays for latencies: it explains a value, and what
it does not explain is evidence. A value is compared with the median of the same quarter of an hour
on earlier days. Means of the newest 1, 2, 4... of these residuals are ranked by size, each among
all earlier means of as many, so that a spike is seen in the short ones and a small lasting shift in
the long ones, and each is measured by the stream's own dispersion at that length, whatever the
dependence between samples. Evidence is the mean over the lengths of ``-ln p``, in nats, ``p`` being
the share of earlier means at least as large; a record goes on along an exponential tail.

It learns from everything: a second anomaly like the first surprises less, a new level soon not at
all. What comes once a day but fills no slot, a peak of five minutes, goes on to surprise. Ranks are
of log-linear histograms, so a state has a bounded size, and 3 % of a residual is the resolution.

Sources: Balkema & de Haan 1974, doi:10.1214/aop/1176996548, and Siffer et al. 2017,
doi:10.1145/3097983.3098144, for the tail; Fisher 1932, section 21.1, for adding up ``-ln p``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detectors.histogram import N_BINS, bin_edges, bin_index

_DAY_S: Final = 86_400.0
_EDGES: Final = bin_edges()
_SLOT_SAMPLES_MIN: Final = 2
_TAIL_SAMPLES_MIN: Final = 10
_NATS_MAX: Final = 15.0
"""No stream's past can say more: once in three million samples."""


@dataclass(slots=True)
class SeasonalState:
    """What a stream has seen.

    Attributes:
        slots: Newest values of each slot of the day, oldest first.
        residuals: Newest residuals, newest first.
        counts: Sizes of all earlier means, a histogram for each length.
    """

    slots: list[list[float]]
    residuals: list[float]
    counts: NDArray[np.int64]


class SeasonalDetector:
    """Scores single values given the time of day; see the module.

    Args:
        lengths: Of the means, in samples, ascending. Longer ones see smaller shifts, later.
        slot_s: Width of a slot of the day: narrow ones follow steep mornings, wide ones learn fast.
        slot_samples: Values remembered for each slot: more are calmer, fewer follow a trend.
        tail_share: Share of the means to which the tail is fitted. There is no evidence before it
            holds ten.

    >>> detector = SeasonalDetector()
    >>> state = detector.initial()
    >>> usual = [detector.update(state, 10.0 + n % 3, 300.0 * n) for n in range(2_000)]
    >>> max(usual) < 2.0 < 5.0 < detector.update(state, 20.0, 300.0 * 2_000)
    True
    """

    def __init__(
        self,
        *,
        lengths: Sequence[int] = (1, 2, 4, 8, 16, 32),
        slot_s: float = 900.0,
        slot_samples: int = 60,
        tail_share: float = 0.05,
    ) -> None:
        self._lengths = np.array(lengths)
        self._slot_s = slot_s
        self._slot_samples = slot_samples
        self._tail_share = tail_share

    def initial(self) -> SeasonalState:
        """Return the state of a stream that has seen nothing."""
        slots: list[list[float]] = [[] for _ in range(math.ceil(_DAY_S / self._slot_s))]
        return SeasonalState(slots, [], np.zeros((self._lengths.size, N_BINS), np.int64))

    def update(self, state: SeasonalState, value: float, time_s: float) -> float:
        """Return the evidence in nats that ``value`` completes, then learn from it.

        Args:
            state: Of the stream; it is changed.
            value: Finite.
            time_s: Event time in Unix seconds, or in those of the stream's own time zone.
        """
        state.residuals.insert(0, self._residual(state, value, time_s))
        del state.residuals[self._lengths[-1] :]
        lengths = np.minimum(self._lengths, len(state.residuals))
        means = np.cumsum(state.residuals)[lengths - 1] / lengths
        bins = bin_index(np.abs(means).astype(np.float32)).tolist()
        nats = 0.0
        for counts, number in zip(state.counts, bins, strict=True):
            nats += surprise_nats(counts, number, self._tail_share)
            counts[number] += 1
        return nats / len(bins)

    def _residual(self, state: SeasonalState, value: float, time_s: float) -> float:
        """Return ``value`` less the median of its slot, 0 while that is unknown; remember it."""
        slot = state.slots[int(time_s % _DAY_S // self._slot_s)]
        residual = value - median(slot) if len(slot) >= _SLOT_SAMPLES_MIN else 0.0
        slot.append(value)
        del slot[: -self._slot_samples]
        return residual


def surprise_nats(counts: NDArray[np.int64], number: int, tail_share: float) -> float:
    """Return ``-ln p`` of a value in bin ``number``, given those counted, shape ``(N_BINS,)``.

    ``p`` is the share of values in this bin or above. In the top ``tail_share`` of values it is the
    larger of that and of an exponential tail with their mean excess; beyond the largest, the tail.
    """
    values = int(counts.sum())
    tail = tail_share * values
    if tail < _TAIL_SAMPLES_MIN:
        return 0.0
    beyond = int(counts[number:].sum())
    ranked = math.log((values + 1) / beyond) if beyond else _NATS_MAX
    if beyond > tail:
        return ranked
    totals = counts[::-1].cumsum()[::-1]
    # The tail begins behind ties, however many there are, but with the largest value at the latest.
    start = min(int(np.argmax(totals <= tail)), int(np.flatnonzero(counts)[-1]))
    excess = _EDGES[start:-1] - _EDGES[start]
    mean_excess = float(counts[start:] @ excess) / int(totals[start])
    # Of a single value repeated: the width of its bin is the least that can be told apart.
    mean_excess = mean_excess or float(_EDGES[start + 1] - _EDGES[start])
    fitted = math.log((values + 1) / totals[start]) + float(excess[number - start]) / mean_excess
    return min(fitted, ranked, _NATS_MAX)
