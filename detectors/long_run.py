"""How well a sum over time is known where neighbours depend on one another.

The variance of a sum of dependent terms is their long-run variance, the spectrum at frequency zero.
It is estimated from the lowest cosines (*equal-weighted cosine* estimator)::

    variance = mean over j = 1..B of (sqrt(2) * sum_t z_t cos(pi j (t - 1/2) / T)) ** 2

Of ``T`` blocks the lowest ``B = 0.41 T**(2/3)`` are taken, fewer where neighbouring blocks depend
on one another so much that the spectrum is not flat there: the bias, ``pi**2/6 (B/T)**2`` times
the spectrum's curvature, is kept below 5 %, the curvature being that of an autoregression fitted
to the blocks. The estimate is then as good as one of ``B`` independent squares, so Student's t with
``B`` degrees of freedom gives limits that hold for short series, too; a day's cycle or a drift
within the series makes them wide, as it should.

Sources: Lazarus, Lewis, Stock & Watson 2018, doi:10.1080/07350015.2018.1506926 (estimator, rule);
Mueller 2007, doi:10.1016/j.jeconom.2007.01.019 (why t).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]

MIN_BLOCKS: Final = 12
"""Fewer blocks say nothing of what blocks depend on."""
_RULE: Final = 0.41
_MAX_BIAS: Final = 0.05
_MIN_COSINES: Final = 2
_MOST_DEPENDENT: Final = 0.999


class LongRun(NamedTuple):
    """The standard error of a sum.

    Attributes:
        error: In the sum's unit, 0 or more.
        cosines: How many independent squares it is worth; 0: it is not known at all.
    """

    error: float
    cosines: int


def long_run(terms: Floats, rounding: float = 0.0) -> LongRun:
    """Return the standard error of the sum of ``terms``, which have mean 0, in order of time.

    Where no term is larger than ``rounding``, all are nothing.
    """
    blocks = terms.size
    if blocks < MIN_BLOCKS:
        return LongRun(0.0, 0)
    # By the largest, so that squares of tiny and huge numbers stay numbers.
    largest = float(np.abs(terms).max())
    if largest <= rounding:
        return LongRun(0.0, cosines_of(blocks, 0.0))
    scaled = terms / largest
    cosines = cosines_of(blocks, _neighbours(scaled))
    if not cosines:
        return LongRun(0.0, 0)
    angles = np.outer(np.arange(1, cosines + 1), (np.arange(blocks) + 0.5) * (math.pi / blocks))
    squares = 2.0 * (np.cos(angles) @ scaled) ** 2
    return LongRun(largest * math.sqrt(float(squares.mean())), cosines)


def cosines_of(blocks: float, neighbours: float) -> int:
    """Return how many cosines are taken of ``blocks`` whose neighbours correlate so; 0: none."""
    most = _RULE * blocks ** (2.0 / 3.0)
    if neighbours > 0.0:
        curvature = 2.0 * neighbours / (1.0 - neighbours) ** 2
        most = min(most, blocks * math.sqrt(6.0 * _MAX_BIAS / curvature) / math.pi)
    return int(most) if most >= _MIN_COSINES else 0


def critical(cosines: int, confidence: float) -> float:
    """Return how many standard errors limits at ``confidence``, both sides together, are wide."""
    return float(stdtrit(cosines, 0.5 + 0.5 * confidence))


def _neighbours(terms: Floats) -> float:
    """Return the correlation of neighbours, 0 to nearly 1, without the bias of a short series."""
    squares = float(terms @ terms)
    found = float(terms[1:] @ terms[:-1]) / squares if squares else 0.0
    return min(max(found + (1.0 + 3.0 * found) / terms.size, 0.0), _MOST_DEPENDENT)
