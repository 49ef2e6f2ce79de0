"""Two of the benchmark's own detectors, made anew: if their published scores come out, ours count.

Both were tuned by their authors on the whole corpus; ``relative_entropy`` also takes the range of
a stream's values from its future, as the benchmark allows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, erfc

_BINS: Final = 5
_WINDOW: Final = 52
_LEVEL: Final = 0.01

_GAUSSIAN_ROWS: Final = 6_400
_GAUSSIAN_STEP: Final = 100


def relative_entropy(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1.0 for each row whose newest 52 values look like no earlier window, else 0.0.

    Values are counted in five equal bins. A window agrees with an earlier distribution if twice its
    size times the relative entropy is below the chi-square's 99th percentile; if it agrees with
    none, it is an anomaly, and from then on a known distribution.

    Source:
        Wang et al. 2011, "Statistical techniques for online anomaly detection in data centers",
        figure 1, doi:10.1109/INM.2011.5990537; bins, window and level as in the benchmark.
    """
    scores = np.zeros(values.size)
    low, high = values.min(), values.max()
    if low == high:
        return scores
    # A value may land one bin too high by rounding; the benchmark then leaves it out.
    bins = np.ceil((values - low) / ((high - low) / _BINS)).astype(np.int64)
    bins[bins == _BINS] = _BINS - 1
    limit = float(chdtri(_BINS - 1, _LEVEL))
    known = np.empty((0, _BINS))
    for row in range(_WINDOW - 1, values.size):
        inside = bins[row - _WINDOW + 1 : row + 1]
        counts = np.bincount(inside[inside < _BINS], minlength=_BINS)
        current = counts / counts.sum()
        if not known.size or 2.0 * _WINDOW * _relative_entropies(current, known).min() >= limit:
            scores[row] = float(known.size > 0)
            known = np.vstack((known, current))
    return scores


def _relative_entropies(
    current: NDArray[np.float64], known: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return KL(current || each row of ``known``) in nats, infinite where it lacks a value."""
    occupied = current > 0.0
    with np.errstate(divide="ignore"):
        terms = current[occupied] * np.log(current[occupied] / known[:, occupied])
    sums: NDArray[np.float64] = terms.sum(axis=1)
    return sums


def windowed_gaussian(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how improbable each row is in the normal distribution of the 6,400 before it, 0 to 1.

    Once the window is full it moves on by 100 rows at a time. Scores have twelve decimals, as in
    the files that the published score was computed from: it counts alerts where one is exactly 1.
    """
    scores = np.zeros(values.size)
    for row in range(1, values.size):
        steps, since_step = divmod(max(row - _GAUSSIAN_ROWS, 0), _GAUSSIAN_STEP)
        if not since_step:
            window = values[steps * _GAUSSIAN_STEP : row]
            mean, deviation = window.mean(), window.std() or 1e-6
        scores[row] = 1.0 - 0.5 * erfc(abs(values[row] - mean) / deviation / np.sqrt(2.0))
    return scores.round(12)
