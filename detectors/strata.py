"""Strata: rows of like workload, so that like is compared with like.

A longer prompt takes longer to prefill and a fuller batch longer to step; neither is a regression
of the service. Rows are therefore kept apart by one workload column, four strata an octave, read
off the float32 bits like the bins of ``detectors.histogram``: exponent and top two bits of the
mantissa. A second column may say which part of that workload costs little (the cached tokens of a
prompt): its share makes three levels. Which of these strata are told apart in the end, and which
are joined, the reference decides (``detectors.partition``).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detectors.compiled import compiled

STRATA_A_LEVEL: Final = 40
N_LEVELS: Final = 3
N_STRATA: Final = STRATA_A_LEVEL * N_LEVELS
"""Numbered level after level: within a level, from light to heavy."""
STRATA_AN_OCTAVE: Final = 4

_SHIFT: Final = 21
_LEVEL_FROM: Final = (0.25, 0.75)
"""The share from which on a row is in the second level, and in the third."""


def stratum_index(
    workload: NDArray[np.float32], base: float, part: NDArray[np.float32] | None = None
) -> NDArray[np.int32]:
    """Return the stratum of each row: 0 below ``base``, then four for each factor of two.

    Args:
        workload: Such as prompt tokens, shape ``(rows,)``; NaN counts in an outer stratum.
        base: Upper end of stratum 0, a power of two.
        part: Such as cached tokens, the same shape; NaN counts as none of the workload.

    Raises:
        ValueError: If ``base`` is no such number.
    """
    exponent = math.log2(base) if base > 0 else math.nan
    if not exponent.is_integer():
        raise ValueError(f"base must be a power of two (2, 4, 8, ... 128, ...), got {base}")
    first = ((127 + int(exponent)) * STRATA_AN_OCTAVE) - 1
    index = _octave_index(workload.view(np.int32), first)
    if part is not None:
        _add_levels(index, workload, part)
    return index


@compiled
def _octave_index(bits: NDArray[np.int32], first: int) -> NDArray[np.int32]:
    index = np.empty(bits.size, np.int32)
    for row in range(bits.size):
        index[row] = min(max((bits[row] >> _SHIFT) - first, 0), STRATA_A_LEVEL - 1)
    return index


@compiled
def _add_levels(
    index: NDArray[np.int32], workload: NDArray[np.float32], part: NDArray[np.float32]
) -> None:
    for row in range(index.size):
        for share in _LEVEL_FROM:
            index[row] += STRATA_A_LEVEL * (part[row] >= np.float32(share) * workload[row])
