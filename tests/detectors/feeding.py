"""Streams for a detector, and what it says of them."""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

from detectors.histogram import SparseCounts, bin_index

PANE_S = 10.0
WINDOW_PANES = 6


def lognormal(rng, samples=50, factor=1.0, sigma=0.5):
    """Latencies around ``factor`` times 0.37 s."""
    return factor * rng.lognormal(-1.0, sigma, samples)


def steady(rng, panes, samples=50, factor=1.0, sigma=0.5):
    """So many panes of such latencies."""
    return [lognormal(rng, samples, factor, sigma) for _ in range(panes)]


def prompts(rng, long_share, factor=1.0, samples=50):
    """Latencies in proportion to their prompts, and the prompts' tokens."""
    tokens = np.where(rng.random(samples) < long_share, 2_000.0, 100.0)
    return factor * tokens / 1_000.0 * rng.lognormal(0.0, 0.3, samples), tokens


def ar1(rng, rho, n):
    """Return a stationary path of mean 0 and variance 1, shape ``(n,)``."""
    noise = rng.standard_normal(n)
    noise[1:] *= np.sqrt(1.0 - rho * rho)
    return lfilter([1.0], [1.0, -rho], noise)


def counts_of(values):
    """Return values as a histogram of one stratum."""
    return SparseCounts.of_cells(bin_index(np.asarray(values, np.float32)))


def pane_of(detector, rows, end_s=0.0):
    """Return a pane of ``rows``: values, or values and their workload."""
    values, workload = rows if isinstance(rows, tuple) else (rows, None)
    pane = detector.new_pane()
    pane.add(
        np.asarray(values, np.float32),
        np.full(len(values), end_s - 1.0),
        None if workload is None else np.asarray(workload, np.float32),
    )
    return pane


def scores(detector, panes, state=None, start_s=0.0, **how):
    """Feed ``panes``; return the scores."""
    state = detector.initial() if state is None else state
    found = []
    for number, rows in enumerate(panes):
        end_s = start_s + (number + 1) * PANE_S
        found.extend(detector.update(state, pane_of(detector, rows, end_s), end_s, **how))
    return found


def drifting(found):
    """Return the numbers of the cycles that drift."""
    return [number for number, score in enumerate(found) if score.drifting]


def onsets(found):
    """Return the numbers of the cycles in which a drift begins."""
    return [n for n in drifting(found) if not (n and found[n - 1].drifting)]


def numbers(score):
    """Return every number of a score."""
    fields = (getattr(score, name) for name in score.__slots__)
    return [v for v in (*fields, *score.evidence.values()) if isinstance(v, float)]
