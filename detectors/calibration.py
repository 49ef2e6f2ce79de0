"""How much evidence is too much: measured on the reference itself, by block bootstrap.

Panes of the reference are drawn in blocks, so that their dependence is kept, and strung together
into paths on which nothing has changed. On these the scan of ``detectors.evidence`` is run, each
length and statistic standardised by its own spread there. How often the evidence stays at or above
a level for ``confirm_panes`` cycles in a row is counted where it is still frequent, and carried on
to rare levels by the law that the maximum of such a scan follows::

    alarms per pane at level x = rate * sqrt(x) * exp(-x)

Deterministic: the generator is seeded with the rows. Cost: some 20 milliseconds.

Sources: Kuensch 1989, doi:10.1214/aos/1176347265 (block bootstrap); Siegmund & Venkatraman 1995,
doi:10.1214/aos/1176324466 (the tail of the GLR's false-alarm rate).
"""

from __future__ import annotations

import math
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detectors.evidence import path_nats
from detectors.ranks import INSIDE, SAMPLES, Ranks
from detectors.scan_formulas import LENGTHS

Floats = NDArray[np.float64]

_PATHS: Final = 8
_PATH_PANES: Final = 768
_BLOCK_PANES: Final = 12
_CLUSTER_PANES: Final = 32
"""Alarms nearer to one another than this are one."""
_QUANTILES: Final = (0.7, 0.8, 0.9)
_ROUNDS: Final = 4
_ALLOWANCE_NATS: Final = 0.12
"""The paths know their own spread; a series knows its only from the past."""


def calibrate(rows: NDArray[np.float32], ranks: Ranks, confirm_panes: int) -> float:
    """Return the logarithm of the alarms' ``rate`` (see the module's text).

    Args:
        rows: Scores of calm panes, oldest first, shape ``(panes, N_SCORES)``.
        ranks: The reference by which they were scored.
        confirm_panes: Cycles in a row that the evidence must hold.
    """
    rng = np.random.default_rng(zlib.crc32(rows.tobytes()))
    maxima = path_nats(_paths(rows, rng), ranks)
    held = maxima[:, confirm_panes - 1 :]
    for earlier in range(1, confirm_panes):
        held = np.minimum(held, maxima[:, confirm_panes - 1 - earlier : -earlier])
    clusters = held[:, : held.shape[1] // _CLUSTER_PANES * _CLUSTER_PANES]
    peaks = clusters.reshape(-1, _CLUSTER_PANES).max(axis=1)
    found = []
    for q in _QUANTILES:
        level = max(float(np.quantile(peaks, q)), 0.1)
        rate = -math.log(q) / _CLUSTER_PANES
        found.append(math.log(rate) + level - 0.5 * math.log(level))
    return sum(found) / len(found) + _ALLOWANCE_NATS


def threshold_nats(log_rate: float, interval_panes: float) -> float:
    """Return the level that the evidence holds by chance once in ``interval_panes``."""
    target = log_rate + math.log(interval_panes)
    level = max(target, 1.0)
    for _ in range(_ROUNDS):
        level = max(target + 0.5 * math.log(level), 1.0)
    return level


def _paths(rows: NDArray[np.float32], rng: np.random.Generator) -> Floats:
    """Return paths of blocks of ``rows``, shape ``(paths, panes, N_SCORES)``."""
    panes = _PATH_PANES + int(LENGTHS[-1])
    blocks = -(-panes // _BLOCK_PANES)
    starts = rng.integers(0, rows.shape[0], (_PATHS, blocks, 1))
    drawn = (starts + np.arange(_BLOCK_PANES)) % rows.shape[0]
    index = drawn.reshape(_PATHS, -1)[:, :panes]
    paths: Floats = rows[index].astype(np.float64)
    # As if half of each were in the reference: its error cancels.
    paths[..., INSIDE] = 0.5 * paths[..., SAMPLES]
    return paths
