"""The formulas of the scan, window by window, compiled (see ``detectors.evidence``)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detectors.compiled import compiled
from detectors.ranks import ABOVE, BODY, EXPECTED, INSIDE, MIX, N_SCORES, SAMPLES, SPREAD, TAILS

Floats = NDArray[np.float64]

LENGTHS: Final = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 180])
"""Panes of the windows that are asked."""
N_STATISTICS: Final = 2 + len(TAILS)
"""Body, spread, and each tail."""
_DISPERSION_PANES: Final = 8_640.0
_PRIOR_DEGREES: Final = 8.0
_FIRST_PRIOR_DEGREES: Final = 3.0
"""How much independence is worth as a guess for single panes, and a length for the next one."""
_SPREAD: Final = 1
_FIRST_TAIL: Final = 2
_N_TAILS: Final = len(TAILS)
_ABOVE: Final = ABOVE.start
_EXPECTED: Final = EXPECTED.start
_ROOT_LENGTHS: Final = np.sqrt(LENGTHS)
"""What a length leans on is known of its shorter ones: half of that, on a scale of logarithms."""
_LEAST: Final = 1e-12
_LEAST_MIX: Final = 0.5
_LEAST_ERROR: Final = 0.05
_LEAST_DISPERSION: Final = 0.9
_LEAST_CLUMPING: Final = 1e-6
_MIN_CLUMPS: Final = 1.5
_NOTABLE_NATS: Final = 5.0
_CLUMP_LENGTHS: Final = 10
"""Lengths, up to 32 panes, from which the size of clumps is read."""


@compiled
def standardise(sums: Floats, m: float, body_variance: float, spread_variance: float) -> Floats:
    """Return the standardised sums, shape ``(windows, N_STATISTICS)``."""
    z = np.empty((sums.shape[0], N_STATISTICS))
    for window in range(sums.shape[0]):
        n = max(sums[window, SAMPLES], 1.0)
        scale = n * _error(n, sums[window, MIX], sums[window, INSIDE], m)
        z[window, 0] = sums[window, BODY] / math.sqrt(scale * body_variance)
        z[window, _SPREAD] = sums[window, SPREAD] / math.sqrt(scale * spread_variance)
        for tail in range(_N_TAILS):
            expected = sums[window, _EXPECTED + tail]
            share = min(max(expected / n, _LEAST), 1.0 - _LEAST)
            excess = sums[window, _ABOVE + tail] - expected
            z[window, _FIRST_TAIL + tail] = excess / math.sqrt(scale * share * (1.0 - share))
    return z


@compiled
def _error(n: float, mix: float, inside: float, m: float) -> float:
    """Return by how much the reference's own error widens sums, ``1 + n / m`` in the plainest case.

    What is a part of the reference narrows them instead; and where the mix of strata has moved to
    what the reference knows little of, its error weighs more.
    """
    return max(1.0 + max(mix / n, _LEAST_MIX) * (n - 2.0 * inside) / m, _LEAST_ERROR)


@compiled
def _skewed(squared: float, z: float, n: float, usual: float) -> float:
    """Return what ``squared``, ``z^2 / usual`` of a spread, is worth.

    Where samples depend on one another a spread wanders up further than down: its sum is compared
    with a gamma law of the skewness that such a dependence brings, ``sqrt((V - 1) / n)``, by twice
    its Cramer rate, once it is worth a look at all.
    """
    if z <= 0.0 or squared <= _NOTABLE_NATS:
        return squared
    shape = 4.0 * n / max(usual - 1.0, _LEAST_CLUMPING)
    excess = math.sqrt(squared / shape)
    return max(2.0 * shape * (excess - math.log1p(excess)), _NOTABLE_NATS)


@compiled
def _tail_nats(tail: int, sums: Floats, usual: Floats, m: float) -> float:
    """Return the evidence that one tail of a window is heavier: 0 where it is not.

    Samples beyond a high quantile are few and, where samples depend on one another, come in clumps:
    their number is Polya-Aeppli (clumps are Poisson, the sizes of clumps geometric). Evidence is
    the Cramer rate of that law with the expected mean and ``usual`` times its variance, which for
    single samples (``usual`` 1) is that of a Poisson number. The reference's own number is one of
    these too: what is expected is what both together make likely, and it has a part in the
    evidence. A tail of which the reference has hardly a clump is not judged.
    """
    n = max(sums[SAMPLES], 1.0)
    apart = max(m - sums[INSIDE], 1.0)
    above = sums[_ABOVE + tail]
    usually = max(sums[_EXPECTED + tail], _LEAST)
    clump = max(usual[_FIRST_TAIL + tail], 1.0)
    reference = usually * apart / n
    if above <= usually or reference < _MIN_CLUMPS * clump:
        return 0.0
    pooled = (above + reference) * n / (n + apart)
    rest = above + reference - pooled
    of_reference = reference * math.log(reference / rest) - reference + rest
    return float(_clumped_rate(above, pooled, clump) + of_reference / clump)


@compiled
def _clumped_rate(above: float, expected: float, usual: float) -> float:
    """Return the Cramer rate of a Polya-Aeppli number at ``above``, more than ``expected``."""
    q = max((usual - 1.0) / (usual + 1.0), _LEAST_CLUMPING)
    clumps = expected * (1.0 - q)
    # exp(theta) at which the tilted law's mean is what was seen: the root of a quadratic below 1/q.
    half = above * q + 0.5 * clumps * (1.0 - q)
    root = half + math.sqrt(max(half * half - (above * q) ** 2, 0.0))
    tilt = max(above / max(root, _LEAST), 1.0)
    return above * math.log(tilt) - clumps * (tilt - 1.0) / (1.0 - q * tilt)


@compiled
def _nats(statistic: int, z: Floats, sums: Floats, usual: Floats, m: float) -> float:
    """Return the evidence of one statistic of a window where its dispersion is known for sure."""
    if statistic >= _FIRST_TAIL:
        return _tail_nats(statistic - _FIRST_TAIL, sums, usual, m)
    squared = z[statistic] ** 2 / usual[statistic]
    if statistic == _SPREAD:
        squared = _skewed(squared, z[_SPREAD], max(sums[SAMPLES], 1.0), usual[_SPREAD])
    return float(0.5 * squared)


@compiled
def scan(
    rows: NDArray[np.float32],
    reach: int,
    usual: Floats,
    windows: Floats,
    m: float,
    body_variance: float,
    spread_variance: float,
) -> tuple[Floats, Floats, Floats]:
    """Return the sums of the windows within ``reach``, the same standardised, and their worth."""
    sums = _newest_sums(rows, LENGTHS[: np.searchsorted(LENGTHS, reach, "right")])
    z = standardise(sums, m, body_variance, spread_variance)
    return sums, z, window_nats(z, sums, usual, windows, m)


@compiled
def _newest_sums(rows: NDArray[np.float32], lengths: NDArray[np.int64]) -> Floats:
    """Return the sums of the newest rows, shape ``(lengths, N_SCORES)``."""
    sums = np.zeros((lengths.size, N_SCORES))
    row = rows.shape[0]
    for index in range(lengths.size):
        if index:
            sums[index] = sums[index - 1]
        while row > rows.shape[0] - lengths[index]:
            row -= 1
            sums[index] += rows[row]
    return sums


@compiled
def window_nats(z: Floats, sums: Floats, usual: Floats, windows: Floats, m: float) -> Floats:
    """Return the evidence of each window and statistic, the same shape as ``z``."""
    nats = np.empty_like(z)
    for window in range(z.shape[0]):
        degrees = _PRIOR_DEGREES + windows[window] / _ROOT_LENGTHS[window]
        for statistic in range(N_STATISTICS):
            worth = _nats(statistic, z[window], sums[window], usual[window], m)
            if statistic < _FIRST_TAIL:
                worth = 0.5 * (degrees + 1.0) * math.log1p(2.0 * worth / degrees)
            nats[window, statistic] = worth
    return nats


@compiled
def path_maxima(total: Floats, m: float, body_variance: float, spread_variance: float) -> Floats:
    """Return the strongest evidence at each pane, of running sums ``total`` of panes."""
    longest = LENGTHS[-1]
    panes = total.shape[1] - 1 - longest
    best = np.zeros((total.shape[0], panes))
    sums = np.empty((total.shape[0] * panes, N_SCORES))
    for index in range(LENGTHS.size):
        for path in range(total.shape[0]):
            for pane in range(panes):
                end = longest + 1 + pane
                sums[path * panes + pane] = total[path, end] - total[path, end - LENGTHS[index]]
        z = standardise(sums, m, body_variance, spread_variance)
        usual = np.empty_like(z)
        for statistic in range(N_STATISTICS):
            usual[:, statistic] = np.maximum(np.mean(z[:, statistic] ** 2), _LEAST)
        # Tails are asked in every second length: their evidence changes little to the next.
        asked = N_STATISTICS if index % 2 else _FIRST_TAIL
        for window in range(sums.shape[0]):
            path, pane = divmod(window, panes)
            for statistic in range(asked):
                # No more than this, and mostly far too little to look closer.
                nats = 0.5 * z[window, statistic] ** 2 / usual[window, statistic]
                if nats > best[path, pane]:
                    nats = _nats(statistic, z[window], sums[window], usual[window], m)
                    best[path, pane] = max(best[path, pane], nats)
    return best


@compiled
def learn_squares(squared: Floats, windows: Floats, z: Floats) -> None:
    """Take the windows whose statistics are ``z`` into the means of their squares."""
    for window in range(z.shape[0]):
        windows[window] = min(windows[window] + 1.0, _DISPERSION_PANES)
        for statistic in range(N_STATISTICS):
            step = z[window, statistic] ** 2 - squared[window, statistic]
            squared[window, statistic] += step / windows[window]


@compiled
def lean(usual: Floats, squared: Floats, windows: Floats) -> None:
    """Work ``usual`` out: what is known of a length, drawn towards the length before it."""
    prior, weight = np.ones(N_STATISTICS), _FIRST_PRIOR_DEGREES
    for index in range(LENGTHS.size):
        degrees = windows[index] / LENGTHS[index]
        for statistic in range(N_STATISTICS):
            if statistic > _FIRST_TAIL:
                prior[statistic] = max(prior[statistic], prior[statistic - 1])
            drawn = weight * prior[statistic] + degrees * squared[index, statistic]
            prior[statistic] = max(drawn / (weight + degrees), _LEAST_DISPERSION)
        usual[index] = prior
        weight = _PRIOR_DEGREES
    for statistic in range(_FIRST_TAIL, N_STATISTICS):
        usual[:, statistic] = usual[:_CLUMP_LENGTHS, statistic].max()
