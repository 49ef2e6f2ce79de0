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

Cost: some 10 microseconds a pane. Sources: Lai 1995, doi:10.1111/j.2517-6161.1995.tb02052.x
(window-limited GLR); Lorden 1971, doi:10.1214/aoms/1177693055 (the bound); Lau, Tay & Veeravalli
2019, doi:10.1109/TSP.2018.2878545 (binned GLR-CUSUM).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors import scan_formulas as formulas
from detectors.ranks import ABOVE, BODY, EXPECTED, INSIDE, N_SCORES, SAMPLES, SPREAD, Ranks
from detectors.scan_formulas import LENGTHS, N_STATISTICS

Floats = NDArray[np.float64]

MEMORY_PANES: Final = 360
"""Rows that are kept: the newest panes' scores, for the scan and for its calibration."""


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
        z: The same standardised, shape ``(lengths, N_STATISTICS)``,
        nats: and the evidence of each.
    """

    sums: Floats
    z: Floats
    nats: Floats


def scan(evidence: Evidence, ranks: Ranks) -> Scan:
    """Return what the windows within reach say."""
    rows, usual, windows = evidence.rows, evidence.usual, evidence.windows
    return Scan(*formulas.scan(rows, evidence.reach, usual, windows, ranks.m, *ranks.variances))


def standardised(sums: Floats, ranks: Ranks) -> Floats:
    """Return the standardised sums, shape ``(windows, N_STATISTICS)``.

    Args:
        sums: Scores, shape ``(windows, N_SCORES)``.
        ranks: The reference. Its own error adds to that of the samples that are no part of it.
    """
    return formulas.standardise(sums, ranks.m, *ranks.variances)


def poisson_nats(seen: Floats, expected: Floats) -> Floats:
    """Return the Cramer rate of a Poisson number, or the KL of one rate from another."""
    nats: Floats = seen * np.log(seen / expected) - seen + expected
    return nats


def student_nats(squared: Floats, degrees: Floats) -> Floats:
    """Return what a squared standardised mean is worth whose variance has so many ``degrees``."""
    nats: Floats = 0.5 * (degrees + 1.0) * np.log1p(squared / degrees)
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
    return formulas.path_maxima(total, ranks.m, *ranks.variances)


def learn(evidence: Evidence, found: Scan) -> None:
    """Take the windows that end now for calm ones."""
    formulas.learn_squares(evidence.squares, evidence.windows, found.z)


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
    formulas.lean(evidence.usual, evidence.squares, evidence.windows)


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
