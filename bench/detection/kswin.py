"""River's KSWIN, and its law: the same false alarms, many windows at once.

KSWIN compares the newest 30 of 100 values with 30 drawn from the other 70, by the p-value of the
Kolmogorov-Smirnov distance, at every value: 300 microseconds each, mostly scipy's. Weeks of event
time take hours, so its false alarms are counted by its law.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from bench.detection.alarms import Alarm, Watched
from bench.detection.peers import WARMUP_SAMPLES, River
from bench.detection.streams import Floats, Stream

WINDOW: Final = 100
NEWEST: Final = 30
_CHUNK: Final = 20_000
_MEMORY_SAMPLES: Final = 4 * WINDOW
_MAX_SEEDS: Final = 5


def kswin(alpha: float = 0.005) -> River:
    """Return river's KSWIN, which fires at p-values up to ``alpha``."""
    from river import drift  # noqa: PLC0415 - an extra.

    return River(
        "KSWIN",
        alpha,
        lambda alpha: drift.KSWIN(alpha=alpha, seed=1),
        max_seeds=_MAX_SEEDS,
        memory_samples=_MEMORY_SAMPLES,
        law=KswinLaw(alpha),
    )


@cache
def p_value(steps: int) -> float:
    """Return the p-value of a distance of ``steps / 30`` between two samples of 30."""
    first = np.arange(NEWEST)
    with warnings.catch_warnings():
        # As KSWIN does: far out scipy falls back to the asymptotic value, and warns.
        warnings.simplefilter("ignore", category=RuntimeWarning)
        return float(ks_2samp(first, first + steps - 0.5).pvalue)


def distances(logs: Floats, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield, in chunks, 30 times the distance that KSWIN sees at each full window."""
    views = np.lib.stride_tricks.sliding_window_view(logs, WINDOW)
    older = WINDOW - NEWEST
    for begin in range(0, len(views), _CHUNK):
        window = views[begin : begin + _CHUNK]
        drawn = rng.random((len(window), older)).argpartition(NEWEST)[:, :NEWEST]
        both = np.concatenate([np.take_along_axis(window, drawn, 1), window[:, older:]], axis=1)
        signs = np.where(both.argsort(axis=1) < NEWEST, 1, -1)
        yield np.abs(np.cumsum(signs, axis=1)).max(axis=1)


@dataclass(frozen=True)
class KswinLaw:
    """KSWIN on values without ties, with another draw of the older samples."""

    alpha: float
    name: str = "KSWIN's law"
    interval_s: float | None = None
    max_seeds: int | None = None

    def watch(self, stream: Stream, *, until_found: bool = False) -> Watched:  # noqa: ARG002
        least = next(steps for steps in range(NEWEST + 1) if p_value(steps) <= self.alpha)
        rng = np.random.default_rng(stream.times_s.size)
        seen = np.concatenate(list(distances(np.log(stream.values_s), rng)))
        firings, full_again = [], WARMUP_SAMPLES
        for index in (np.flatnonzero(seen >= least) + WINDOW - 1).tolist():
            if index >= full_again:
                at_s = float(stream.times_s[index])
                firings.append(Alarm(at_s, at_s))
                # After a firing only the newest 30 are kept.
                full_again = index + WINDOW - NEWEST
        judged_s = stream.end_s - float(stream.times_s[WARMUP_SAMPLES])
        return Watched.of_firings(judged_s, firings)
