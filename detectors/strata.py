"""Strata: rows of like workload, so that like is compared with like.

A longer prompt takes longer to prefill and a fuller batch longer to step; neither is a regression
of the service. Rows are therefore kept apart by one workload column, in steps of two octaves
(factor four), read off the float32 bits like the bins of ``detectors.histogram``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

N_STRATA: Final = 6

_TWO_OCTAVES_SHIFT: Final = 24


def stratum_index(workload: NDArray[np.float32], base: float) -> NDArray[np.int32]:
    """Return the stratum of each row: 0 below ``base``, then one for each factor of four.

    Args:
        workload: Such as prompt tokens, shape ``(rows,)``; NaN counts in an outer stratum.
        base: Upper end of stratum 0, ``2 * 4**k`` for an integer ``k``: 2, 8, 32, 128, ...

    Raises:
        ValueError: If ``base`` is no such number.
    """
    exponent = math.log2(base) if base > 0 else 0.0
    if exponent % 2 != 1.0:
        raise ValueError(f"base must be 2 times a power of 4 (2, 8, 32, 128, ...), got {base}")
    first = ((127 + int(exponent)) >> 1) - 1
    index = np.right_shift(workload.view(np.int32), _TWO_OCTAVES_SHIFT)
    index -= first
    np.maximum(index, 0, out=index)
    return np.minimum(index, N_STRATA - 1, out=index)
