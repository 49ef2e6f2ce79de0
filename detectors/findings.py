"""What a scan found: which score, in which window, how strongly, and how much it is worth.

However significant, a shift below ``min_nats`` of KL a sample is not worth a word; one below half
of that is not even worth a suspicion: it is learned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from detectors.compiled import compiled
from detectors.evidence import MEMORY_PANES, Evidence, Scan, poisson_nats
from detectors.ranks import ABOVE, BODY, EXPECTED, SAMPLES, SPREAD, TAILS, WIDTH, Ranks
from detectors.scan_formulas import LENGTHS, N_STATISTICS

Floats = NDArray[np.float64]

_BODY, _SPREAD, _FIRST_TAIL = 0, 1, 2
_N_TAILS: Final = len(TAILS)
_ABOVE: Final = ABOVE.start
_EXPECTED: Final = EXPECTED.start
_GONE_BACK: Final = 0.5
"""An alarm is over once the newest window shows less than this share of what raised it."""
_RELIEF_NATS: Final = 4.6
"""A hundred to one."""
_NOTABLE_NATS: Final = 4.0
"""Less is never a drift, nor a suspicion."""
_LEAST_WHERE_IT_MOVES: Final = 0.04
"""Of a spread, even where its strata hardly shift."""
_LARGEST_SHIFT: Final = 0.45
"""Of a mean rank: they end at one half."""
_HINT: Final = 0.5
_LEAST: Final = 1e-9


@dataclass(slots=True)
class Alarm:
    """A shift that has been found and is not over.

    Attributes:
        statistic: Which statistic shows it, as numbered in ``detectors.evidence``.
        effect: Its mean a sample when it was found,
        variance: and how much a sample's varies, dependence and all.
        panes: Panes since it began.
        relief_nats: Evidence that it has ended: a CUSUM of no shift against this one.
    """

    statistic: int
    effect: float
    variance: float
    panes: int
    relief_nats: float = 0.0


class Finding(NamedTuple):
    """What the windows that end now say.

    Attributes:
        nats: The strongest evidence of what is worth a word; 0 where nothing is.
        hint_nats: The same of what is worth a suspicion.
        statistic: Which statistic shows the former.
        effect: Its mean a sample, in that window,
        panes: which is so long.
        body_nats: The strongest evidence of a shifted body, worth a word or not,
        body_shift: and the shift of the mean rank in that window: positive is slower.
        spread_nats: The same of a wider or narrower body.
        tail_nats: The same of a heavier tail,
        tail_share: the share of samples in that tail, and the share that is expected there.
        expected_tail_share: See ``tail_share``.
    """

    nats: float
    hint_nats: float
    statistic: int
    effect: float
    panes: int
    body_nats: float
    body_shift: float
    spread_nats: float
    tail_nats: float
    tail_share: float
    expected_tail_share: float


def find(scan: Scan, ranks: Ranks, min_nats: float, steady_panes: int = MEMORY_PANES) -> Finding:
    """Return what ``scan`` says of windows against ``ranks``.

    The workload has been as usual for ``steady_panes``. In longer windows it has moved, and within
    each stratum too: what that explains is nothing that the service has done.
    """
    nats, sums = scan.nats, scan.sums
    n = np.maximum(sums[:, SAMPLES], 1.0)
    body_at, tail_at, which, spread_nats, strongest = _strongest(nats)
    strong, at, statistic, effect, hint = 0.0, 0, 0, 0.0, 0.0
    if strongest >= _NOTABLE_NATS:
        effects = _effects(sums, n[:, None])
        least: Floats = np.full((n.size, N_STATISTICS), min_nats)
        first = int(LENGTHS.searchsorted(steady_panes, "right"))
        if first < n.size:
            explained = _explained_nats(sums[first:], n[first:], ranks)
            least[first:] = np.maximum(explained, min_nats)
        strong, at, statistic, hint = _worthy(nats, effects, sums, least, *ranks.variances)
        effect = float(effects[at, statistic])
    return Finding(
        nats=strong,
        hint_nats=hint,
        statistic=statistic,
        effect=effect,
        panes=int(LENGTHS[at]),
        body_nats=float(nats[body_at, _BODY]),
        body_shift=float(sums[body_at, BODY] / n[body_at]),
        spread_nats=spread_nats,
        tail_nats=float(nats[tail_at, _FIRST_TAIL + which]),
        tail_share=float(sums[tail_at, _ABOVE + which] / n[tail_at]),
        expected_tail_share=float(sums[tail_at, _EXPECTED + which] / n[tail_at]),
    )


@compiled
def _strongest(nats: Floats) -> tuple[int, int, int, float, float]:
    """Return the windows of the strongest body and of the strongest tail, and which tail that is.

    And the strongest evidence of a spread, and of all.
    """
    body_at, tail_at, which = 0, 0, 0
    for window in range(nats.shape[0]):
        if nats[window, _BODY] > nats[body_at, _BODY]:
            body_at = window
        for tail in range(_N_TAILS):
            if nats[window, _FIRST_TAIL + tail] > nats[tail_at, _FIRST_TAIL + which]:
                tail_at, which = window, tail
    return body_at, tail_at, which, nats[:, _SPREAD].max(), nats.max()


@compiled
def _worthy(
    nats: Floats,
    effects: Floats,
    sums: Floats,
    least: Floats,
    body_variance: float,
    spread_variance: float,
) -> tuple[float, int, int, float]:
    """Return the strongest evidence of what is worth ``least``: its nats, window and statistic.

    And the strongest of what is worth a suspicion. A shift is worth the KL a sample, as of a normal
    mean or a Poisson rate.
    """
    strong, at, which, hint = 0.0, 0, 0, 0.0
    for window in range(nats.shape[0]):
        n = max(sums[window, SAMPLES], 1.0)
        for statistic in range(N_STATISTICS):
            if statistic < _FIRST_TAIL:
                variance = body_variance if statistic == _BODY else spread_variance
                worth = 0.5 * effects[window, statistic] ** 2 / variance
            else:
                above = max(sums[window, _ABOVE + statistic - _FIRST_TAIL], _LEAST)
                expected = max(sums[window, _EXPECTED + statistic - _FIRST_TAIL], _LEAST)
                worth = (above * math.log(above / expected) - above + expected) / n
            if worth >= least[window, statistic] and nats[window, statistic] > strong:
                strong, at, which = nats[window, statistic], window, statistic
            if worth >= _HINT * least[window, statistic]:
                hint = max(hint, nats[window, statistic])
    return strong, at, which, hint


def alarm_of(finding: Finding, evidence: Evidence, ranks: Ranks) -> Alarm:
    """Return the alarm that ``finding`` raises."""
    if finding.statistic < _FIRST_TAIL:
        variance = ranks.variances[finding.statistic]
    else:
        variance = finding.expected_tail_share + 0.5 * abs(finding.effect)
    at = int(np.searchsorted(LENGTHS, finding.panes))
    usual = float(evidence.usual[at, finding.statistic])
    return Alarm(finding.statistic, finding.effect, variance * usual, finding.panes)


def has_recovered(alarm: Alarm, evidence: Evidence, window_panes: int) -> bool:
    """Take the newest pane into ``alarm``; return whether the shift is over.

    Both must say so: the evidence for its end, and the newest window since it began, which must
    have gone more than half of the way back.
    """
    alarm.panes += 1
    n, now = _newest(alarm, evidence, 1)
    relief = n * (0.5 * alarm.effect**2 - alarm.effect * now) / alarm.variance
    alarm.relief_nats = max(0.0, alarm.relief_nats + relief)
    _, lately = _newest(alarm, evidence, min(window_panes, alarm.panes))
    gone_back = math.copysign(lately, lately * alarm.effect) < _GONE_BACK * abs(alarm.effect)
    return gone_back and alarm.relief_nats >= _RELIEF_NATS


def _newest(alarm: Alarm, evidence: Evidence, panes: int) -> tuple[float, float]:
    """Return the samples of the newest ``panes`` and the mean of the alarm's statistic."""
    sums = evidence.rows[-panes:].sum(axis=0, dtype=np.float64)
    n = float(sums[SAMPLES])
    return n, float(_effects(sums, max(n, 1.0))[alarm.statistic])


def _effects(sums: Floats, n: Floats | float) -> Floats:
    """Return the mean of each statistic a sample: of ranks, and of a tail its excess share."""
    means = sums / n
    found: Floats = np.concatenate(
        [
            means[..., BODY : SPREAD + 1],
            means[..., ABOVE] - means[..., EXPECTED],
        ],
        axis=-1,
    )
    return found


def _explained_nats(sums: Floats, n: Floats, ranks: Ranks) -> Floats:
    """Return the KL a sample that a workload explains which moves by half a stratum's width.

    Latency is taken to be in proportion to the workload, and to be lognormal within a stratum: a
    shift of the mean rank is one of so many standard deviations, and that of the tail follows.
    """
    shift = np.minimum(0.5 * ranks.density * sums[:, WIDTH] / n, _LARGEST_SHIFT)
    usual = np.clip(sums[:, EXPECTED] / n[:, None], _LEAST, 1.0 - _LEAST)
    moved = ndtr(ndtri(usual) + math.sqrt(2.0) * ndtri(0.5 + shift)[:, None])
    explained: Floats = np.empty((n.size, N_STATISTICS))
    explained[:, _BODY] = 0.5 * shift**2 / ranks.variances[_BODY]
    # To second order a shift s of the mean rank adds 2 s**2 to the spread.
    spread = 2.0 * shift**2
    explained[:, _SPREAD] = _LEAST_WHERE_IT_MOVES + 0.5 * spread**2 / ranks.variances[_SPREAD]
    explained[:, _FIRST_TAIL:] = poisson_nats(moved, usual)
    return explained
