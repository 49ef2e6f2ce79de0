"""From what a cycle of the default detector found to its score: direction, size, attribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from detectors.baseline import QUANTILES, Comparison, Sample, Yardstick, expected_quantiles
from detectors.findings import Finding
from detectors.histogram import quantiles
from detectors.protocol import Attribution, Direction, DriftScore

_CONFIDENCE_Z: Final = 1.645
"""Of the lower limit of a quantile, one-sided 95 %."""
_RARE: Final = 0.05
"""Of a tail that is heavier, but too rare to show in a lower limit, P99 is taken as it is."""
_MIN_JUDGED_SHARE: Final = 0.5
_MOSTLY: Final = 2.0


class Verdict(NamedTuple):
    """What has been decided in a cycle.

    Attributes:
        service: Latency given its workload has changed.
        latency: Latency alone has.
        workload: The workload has.
        suspected: Weaker than any of them.
        suspicion_nats: Evidence from which on something is suspected.
        threshold_nats: Evidence from which on it is a drift.
    """

    service: bool
    latency: bool
    workload: bool
    suspected: bool
    suspicion_nats: float
    threshold_nats: float

    @property
    def drifting(self) -> bool:
        return self.service or self.latency


def score_window(
    verdict: Verdict,
    finding: Finding,
    compared: Comparison,
    reference: Yardstick,
    window: Sample,
    end_s: float,
    pane_s: float,
) -> DriftScore:
    """Return the score of a cycle in which there was enough to say."""
    expected = expected_quantiles(reference, window if verdict.workload else None)
    attribution = _attribution(compared, verdict)
    *now, p90_s, p99_s = quantiles(window.latency, *QUANTILES, *_lower_limits(compared.n))
    heavier = finding.tail_nats >= verdict.suspicion_nats
    surely = (now[0], p90_s, now[-1] if heavier and finding.tail_share < _RARE else p99_s)
    moved = verdict.suspected and not verdict.workload and compared.workload.kl_nats > 0.0
    may_be = _at_most(expected, reference, window) if moved else expected
    slowdown = _slowdown(surely, reference.expected if attribution == "workload" else may_be)
    shift = finding.body_shift if finding.body_nats >= verdict.suspicion_nats else 0.0
    if shift > 0.0:
        slowdown = max(slowdown, math.expm1(shift / reference.ranks.density))
    by_traffic = attribution == "workload" and shift == 0.0 and not heavier
    direction = _direction(slowdown if by_traffic else shift, heavier=heavier)
    thin = compared.judged_share < _MIN_JUDGED_SHARE and not verdict.drifting
    return DriftScore(
        end_s=end_s,
        samples=round(compared.n),
        drifting=None if thin else verdict.drifting,
        why=_too_thin(compared.judged_share) if thin else None,
        suspected=verdict.suspected,
        kl_nats=compared.workload.kl_nats + compared.service.kl_nats,
        workload_nats=compared.workload.kl_nats,
        service_nats=compared.service.kl_nats,
        p99_s=now[-1],
        expected_p99_s=expected[-1],
        slowdown=slowdown,
        direction=direction,
        attribution=attribution,
        evidence=_numbers(verdict, finding, compared, pane_s)
        | {"p50_s": now[0], "expected_p50_s": expected[0], "p99_least_s": p99_s},
    )


def _at_most(expected: Sequence[float], reference: Yardstick, window: Sample) -> tuple[float, ...]:
    """Return what may be expected: what a workload explains that may have moved is no slowdown.

    Of one that has moved beyond chance, ``expected`` is that already.
    """
    return tuple(map(max, expected, expected_quantiles(reference, window)))


def _slowdown(now: Sequence[float], before: Sequence[float]) -> float:
    """Return how much the quantiles have risen, at the worst of them."""
    return max(q / e for q, e in zip(now, before, strict=True)) - 1.0


def _numbers(
    verdict: Verdict, finding: Finding, compared: Comparison, pane_s: float
) -> dict[str, float]:
    return {
        "reference_samples": compared.m,
        "judged_share": compared.judged_share,
        "latency_nats": compared.latency.kl_nats,
        "evidence_nats": finding.nats,
        "threshold_nats": verdict.threshold_nats,
        "evidence_window_s": finding.panes * pane_s,
        "body_nats": finding.body_nats,
        "body_shift": finding.body_shift,
        "spread_nats": finding.spread_nats,
        "tail_nats": finding.tail_nats,
        "tail_share": finding.tail_share,
        "expected_tail_share": finding.expected_tail_share,
    }


def _lower_limits(n: float) -> list[float]:
    """Return, for each quantile above the median, the level that is surely below it.

    A P99 of few samples is nearly their maximum, which says little of how slow the tail has become.
    """
    levels = QUANTILES[1:]
    return [max(0.0, q - _CONFIDENCE_Z * math.sqrt(q * (1.0 - q) / n)) for q in levels]


def _too_thin(judged_share: float) -> str:
    return (
        f"strata too thin: of only {judged_share:.0%} of the window's samples the reference knows "
        "what their workload usually takes"
    )


def _direction(shift: float, *, heavier: bool) -> Direction:
    """Return where the distribution went; a slower tail outweighs a faster body."""
    if heavier or shift > 0.0:
        return "slower"
    return "faster" if shift < 0.0 else "none"


def _attribution(compared: Comparison, verdict: Verdict) -> Attribution:
    if not verdict.drifting:
        return "none"
    workload_nats, service_nats = compared.workload.kl_nats, compared.service.kl_nats
    if not verdict.service:
        return "workload" if verdict.workload or workload_nats > service_nats else "service"
    if not verdict.workload:
        return "service"
    return "service" if service_nats > _MOSTLY * workload_nats else "mixed"
