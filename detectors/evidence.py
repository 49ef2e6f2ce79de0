"""Sequential evidence: a scan over window lengths of the newest panes' rank scores.

At the close of a pane every window of 1, 2, 3, 4, 6, 8, 12 ... panes that ends there is asked, for
each score, how far its sum is from what the reference would give. With ``z`` the standardised sum
and ``V`` the mean square of ``z`` over the stream's own calm windows *of that length*, the evidence
is the log-likelihood ratio of a shift against none where the variance is known from ``v`` degrees
of freedom only::

    evidence_nats = (v + 1) / 2 * ln(1 + z^2 / (V v))

which is ``z^2 / (2 V)`` once much is known. Its maximum over lengths and scores is a window-limited
GLR-CUSUM (Lai 1995): it adapts to the size of a shift and says when it began, and its delay comes
near Lorden's bound ``ln(false-alarm interval) / KL``. Because each length has its own dispersion,
dependence within panes, between panes, and a load that drifts over hours each widen just the
lengths that they spoil. A length that few windows are known of leans on the shorter ones.

How large the maximum may become by chance is not derived but measured: ``detectors.calibration``.

Cost: some 40 microseconds a pane. Sources: Lai 1995, doi:10.1111/j.2517-6161.1995.tb02052.x
(window-limited GLR); Lorden 1971, doi:10.1214/aoms/1177693055 (the bound); Lau, Tay & Veeravalli
2019, doi:10.1109/TSP.2018.2878545 (binned GLR-CUSUM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.compiled import compiled
from detectors.ranks import (
    ABOVE,
    BODY,
    EXPECTED,
    INSIDE,
    MIX,
    N_SCORES,
    SAMPLES,
    SPREAD,
    TAILS,
    Ranks,
)

Floats = NDArray[np.float64]

LENGTHS: Final = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 180])
"""Panes of the windows that are asked."""
MEMORY_PANES: Final = 360
"""Rows that are kept: the newest panes' scores, for the scan and for its calibration."""
N_STATISTICS: Final = 2 + len(TAILS)
"""Body, spread, and each tail."""
_DISPERSION_PANES: Final = 8_640.0
_PRIOR_DEGREES: Final = 8.0
_FIRST_PRIOR_DEGREES: Final = 3.0
"""How much independence is worth as a guess for single panes, and a length for the next one."""
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


def _ones() -> Floats:
    return np.ones((LENGTHS.size, N_STATISTICS))


@dataclass(slots=True)
class Evidence:
    """What the scan of one series has seen.

    Attributes:
        rows: Scores of the newest panes, oldest first, shape ``(panes, N_SCORES)``, float32.
        squares: Mean of ``z^2`` over calm windows, by length and statistic.
        windows: Calm windows behind ``squares``, by length.
        usual: ``V`` by length and statistic, as it is used.
        reach: So many of the newest panes may be looked at: what came before is another regime.
    """

    rows: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, N_SCORES), np.float32))
    squares: Floats = field(default_factory=_ones)
    windows: Floats = field(default_factory=lambda: np.zeros(LENGTHS.size))
    usual: Floats = field(default_factory=_ones)
    reach: int = 0

    def take(self, row: NDArray[np.float32]) -> None:
        """Take the scores of one more pane."""
        self.rows = np.concatenate([self.rows[1 - MEMORY_PANES :], row[None, :]])
        self.reach = min(self.reach + 1, MEMORY_PANES)


class Scan(NamedTuple):
    """What the windows that end now say, by length and statistic.

    Attributes:
        sums: Scores of each window, shape ``(lengths, N_SCORES)``.
        z: The same standardised, shape ``(lengths, N_STATISTICS)``.
    """

    sums: Floats
    z: Floats


def scan(evidence: Evidence, ranks: Ranks) -> Scan:
    """Return what the windows within reach say."""
    lengths = LENGTHS[: LENGTHS.searchsorted(evidence.reach, side="right")]
    sums = _newest_sums(evidence.rows, lengths)
    return Scan(sums, standardised(sums, ranks))


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


def standardised(sums: Floats, ranks: Ranks) -> Floats:
    """Return the standardised sums, shape ``(windows, N_STATISTICS)``.

    Args:
        sums: Scores, shape ``(windows, N_SCORES)``.
        ranks: The reference. Its own error adds to that of the samples that are no part of it.
    """
    return _standardised(sums, ranks.m, *ranks.variances)


@compiled
def _standardised(sums: Floats, m: float, body_variance: float, spread_variance: float) -> Floats:
    z = np.empty((sums.shape[0], N_STATISTICS))
    for window in range(sums.shape[0]):
        n = max(sums[window, SAMPLES], 1.0)
        scale = n * _error(n, sums[window, MIX], sums[window, INSIDE], m)
        z[window, 0] = sums[window, BODY] / math.sqrt(scale * body_variance)
        z[window, 1] = sums[window, SPREAD] / math.sqrt(scale * spread_variance)
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
def squares(z: Floats, sums: Floats, usual: Floats) -> Floats:
    """Return ``z^2 / usual`` of body and spread, shape ``(windows, 2)``.

    Where samples depend on one another a spread wanders up further than down: its sum is compared
    with a gamma law of the skewness that such a dependence brings, ``sqrt((V - 1) / n)``, by twice
    its Cramer rate, once it is worth a look at all.

    Args:
        z: Standardised sums, shape ``(windows, N_STATISTICS)``.
        sums: Scores, shape ``(windows, N_SCORES)``.
        usual: ``V``, the shape of ``z``.
    """
    found = np.empty((z.shape[0], 2))
    for window in range(z.shape[0]):
        found[window, 0] = z[window, 0] ** 2 / usual[window, 0]
        squared = z[window, 1] ** 2 / usual[window, 1]
        if z[window, 1] > 0.0 and squared > _NOTABLE_NATS:
            n = max(sums[window, SAMPLES], 1.0)
            shape = 4.0 * n / max(usual[window, 1] - 1.0, _LEAST_CLUMPING)
            excess = math.sqrt(squared / shape)
            squared = max(2.0 * shape * (excess - math.log1p(excess)), _NOTABLE_NATS)
        found[window, 1] = squared
    return found


def tail_nats(sums: Floats, usual: Floats, ranks: Ranks) -> Floats:
    """Return the evidence for heavier tails, shape ``(windows, len(TAILS))``: 0 where none is.

    Samples beyond a high quantile are few and, where samples depend on one another, come in clumps:
    their number is Polya-Aeppli (clumps are Poisson, the sizes of clumps geometric). Evidence is
    the Cramer rate of that law with the expected mean and ``usual`` times its variance, which for
    single samples (``usual`` 1) is that of a Poisson number. The reference's own number is one of
    these too: what is expected is what both together make likely, and it has a part in the
    evidence. A tail of which the reference has hardly a clump is not judged.

    Args:
        sums: Scores, shape ``(windows, N_SCORES)``.
        usual: ``V`` of each statistic, shape ``(windows, N_STATISTICS)``.
        ranks: The reference.
    """
    return _tail_nats(sums, usual, ranks.m)


@compiled
def _tail_nats(sums: Floats, usual: Floats, m: float) -> Floats:
    nats = np.zeros((sums.shape[0], _N_TAILS))
    for window in range(sums.shape[0]):
        n = max(sums[window, SAMPLES], 1.0)
        apart = max(m - sums[window, INSIDE], 1.0)
        for tail in range(_N_TAILS):
            above = sums[window, _ABOVE + tail]
            usually = max(sums[window, _EXPECTED + tail], _LEAST)
            clump = max(usual[window, _FIRST_TAIL + tail], 1.0)
            reference = usually * apart / n
            if above > usually and reference >= _MIN_CLUMPS * clump:
                pooled = (above + reference) * n / (n + apart)
                rest = above + reference - pooled
                nats[window, tail] = (
                    _clumped_rate(above, pooled, clump)
                    + (reference * math.log(reference / rest) - reference + rest) / clump
                )
    return nats


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


def poisson_nats(seen: Floats, expected: Floats) -> Floats:
    """Return the Cramer rate of a Poisson number, or the KL of one rate from another."""
    nats: Floats = seen * np.log(seen / expected) - seen + expected
    return nats


def student_nats(squared: Floats, degrees: Floats) -> Floats:
    """Return what a squared standardised mean is worth whose variance has so many ``degrees``."""
    nats: Floats = 0.5 * (degrees + 1.0) * np.log1p(squared / degrees)
    return nats


def evidence_nats(found: Scan, usual: Floats, windows: Floats, ranks: Ranks) -> Floats:
    """Return the evidence of each window and statistic, the same shape as ``z``."""
    return _evidence_nats(found.z, found.sums, usual, windows, ranks.m)


@compiled
def _evidence_nats(z: Floats, sums: Floats, usual: Floats, windows: Floats, m: float) -> Floats:
    nats = np.empty_like(z)
    squared = squares(z, sums, usual)
    strongest = 0.0
    for window in range(z.shape[0]):
        degrees = _PRIOR_DEGREES + windows[window] / _ROOT_LENGTHS[window]
        for statistic in range(_FIRST_TAIL):
            worth = math.log1p(squared[window, statistic] / degrees)
            nats[window, statistic] = 0.5 * (degrees + 1.0) * worth
        for statistic in range(_FIRST_TAIL, N_STATISTICS):
            # No more than this, and mostly far too little to look closer.
            most = 0.5 * max(z[window, statistic], 0.0) ** 2 / usual[window, statistic]
            nats[window, statistic] = most
            strongest = max(strongest, most)
    if strongest > _NOTABLE_NATS:
        nats[:, _FIRST_TAIL:] = _tail_nats(sums, usual, m)
    return nats


def path_nats(paths: Floats, ranks: Ranks) -> Floats:
    """Return the strongest evidence at each pane of paths on which nothing has changed.

    Each length and statistic is standardised by its own spread on all paths.

    Args:
        paths: Scores of panes, shape ``(paths, panes, N_SCORES)``.
        ranks: The reference.

    Returns:
        From where the longest window is full, shape ``(paths, panes - LENGTHS[-1])``.
    """
    total = np.zeros((paths.shape[0], paths.shape[1] + 1, N_SCORES))
    np.cumsum(paths, axis=1, out=total[:, 1:])
    return _path_nats(total, ranks.m, *ranks.variances)


@compiled
def _path_nats(total: Floats, m: float, body_variance: float, spread_variance: float) -> Floats:
    longest = LENGTHS[-1]
    panes = total.shape[1] - 1 - longest
    best = np.zeros((total.shape[0], panes))
    sums = np.empty((total.shape[0] * panes, N_SCORES))
    for index in range(LENGTHS.size):
        for path in range(total.shape[0]):
            for pane in range(panes):
                end = longest + 1 + pane
                sums[path * panes + pane] = total[path, end] - total[path, end - LENGTHS[index]]
        z = _standardised(sums, m, body_variance, spread_variance)
        usual = np.empty_like(z)
        for statistic in range(N_STATISTICS):
            usual[:, statistic] = max(np.mean(z[:, statistic] ** 2), _LEAST)
        squared = squares(z, sums, usual)
        # Tails are asked in every second length: their evidence changes little to the next.
        tails = _tail_nats(sums, usual, m) if index % 2 else np.zeros((1, 1))
        for window in range(sums.shape[0]):
            nats = max(0.5 * squared[window, 0], 0.5 * squared[window, 1])
            if index % 2:
                nats = max(nats, tails[window].max())
            path, pane = divmod(window, panes)
            best[path, pane] = max(best[path, pane], nats)
    return best


def learn(evidence: Evidence, found: Scan) -> None:
    """Take the windows that end now for calm ones."""
    _learn(evidence.squares, evidence.windows, found.z)


@compiled
def _learn(squared: Floats, windows: Floats, z: Floats) -> None:
    for window in range(z.shape[0]):
        windows[window] = min(windows[window] + 1.0, _DISPERSION_PANES)
        for statistic in range(N_STATISTICS):
            step = z[window, statistic] ** 2 - squared[window, statistic]
            squared[window, statistic] += step / windows[window]


def learn_reference(evidence: Evidence, ranks: Ranks) -> None:
    """Take all rows, which are the reference's own panes, for calm; each is a part of it."""
    total = np.cumsum(evidence.rows, axis=0, dtype=np.float64)
    total = np.concatenate([np.zeros((1, N_SCORES)), total])
    for index, length in enumerate(LENGTHS.tolist()):
        if 2 * length > evidence.rows.shape[0]:
            break
        z = standardised(total[length:] - total[:-length], ranks)
        evidence.squares[index] = np.mean(z * z, axis=0)
        evidence.windows[index] = z.shape[0]
    lean_on_shorter(evidence)


def lean_on_shorter(evidence: Evidence) -> None:
    """Work ``usual`` out anew: what is known of a length, drawn towards the length before it.

    A tail is drawn towards the tail below it, too, of which more is known; and whatever its length,
    it counts in clumps as large as any.
    """
    _lean_on_shorter(evidence.usual, evidence.squares, evidence.windows)


@compiled
def _lean_on_shorter(usual: Floats, squared: Floats, windows: Floats) -> None:
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


def settle(evidence: Evidence) -> None:
    """Make the rows, ranked by a draft of the reference, those of the reference's own panes.

    The draft is a sample and so is off by a little, in every row alike: that is taken out.
    """
    rows = evidence.rows
    total = rows.sum(axis=0, dtype=np.float64)
    n = max(float(total[SAMPLES]), 1.0)
    for score in (BODY, SPREAD):
        rows[:, score] -= rows[:, SAMPLES] * np.float32(total[score] / n)
    rows[:, EXPECTED] *= ((total[ABOVE] + 1.0) / (total[EXPECTED] + 1.0)).astype(np.float32)
    rows[:, INSIDE] = rows[:, SAMPLES]
    evidence.reach = 0


def begin_anew(evidence: Evidence) -> None:
    """Forget the rows, which are of another reference; how much windows vary is kept, in part."""
    evidence.rows = evidence.rows[:0]
    evidence.reach = 0
    np.minimum(evidence.windows, MEMORY_PANES, out=evidence.windows)


def mark_learned(evidence: Evidence, newest: int, learned: int) -> None:
    """Note that the ``learned`` panes before the ``newest`` ones are in the reference now."""
    rows = evidence.rows[: max(0, evidence.rows.shape[0] - newest)][-learned:] if learned else None
    if rows is not None:
        rows[:, INSIDE] = rows[:, SAMPLES]
