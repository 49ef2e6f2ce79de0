"""Strata: rows of like workload, so that like is compared with like.

A longer prompt takes longer to prefill and a fuller batch longer to step; neither is a regression
of the service. Rows are therefore kept apart by one workload column, two strata an octave, read off
the float32 bits like the bins of ``detectors.histogram``: exponent and top bit of the mantissa.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

N_STRATA: Final = 20
STRATA_AN_OCTAVE: Final = 2

_SHIFT: Final = 22


def stratum_index(workload: NDArray[np.float32], base: float) -> NDArray[np.int32]:
    """Return the stratum of each row: 0 below ``base``, then two for each factor of two.

    Args:
        workload: Such as prompt tokens, shape ``(rows,)``; NaN counts in an outer stratum.
        base: Upper end of stratum 0, a power of two.

    Raises:
        ValueError: If ``base`` is no such number.
    """
    exponent = math.log2(base) if base > 0 else math.nan
    if not exponent.is_integer():
        raise ValueError(f"base must be a power of two (2, 4, 8, ... 128, ...), got {base}")
    first = ((127 + int(exponent)) * STRATA_AN_OCTAVE) - 1
    index = np.right_shift(workload.view(np.int32), _SHIFT)
    index -= first
    np.maximum(index, 0, out=index)
    return np.minimum(index, N_STRATA - 1, out=index)
