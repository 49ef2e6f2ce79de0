"""The dynamic P99 threshold: what it should be now, and when it moves.

A policy turns a drift score into the threshold it calls for; the threshold in force follows only
when that differs enough to matter, so that subscribers are not flooded with trifles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from detectors.protocol import DriftScore
from detectors.sits2026 import sits2026_threshold_s


class Move(NamedTuple):
    """A new threshold, and why."""

    threshold_s: float
    why: str


class ThresholdPolicy(Protocol):
    """Says what the threshold should be."""

    def __call__(self, score: DriftScore, in_force_s: float | None) -> Move | None:
        """Return the new threshold, or None if the one in force stands."""


@dataclass(frozen=True, slots=True)
class ExpectedP99Threshold:
    """The P99 that the reference would show under the traffic of now, plus headroom.

    A workload shift moves it by exactly as much as the traffic explains. A degradation of the
    service does not enter it: while one is suspected, or P99 is above the threshold, it is never
    loosened.

    Attributes:
        headroom: Fraction above the expected P99: 0.25 is 25 %.
        min_change: Smaller relative changes are not worth a move.
        ceiling_s: It is never above this.
    """

    headroom: float = 0.25
    min_change: float = 0.02
    ceiling_s: float = math.inf

    def __call__(self, score: DriftScore, in_force_s: float | None) -> Move | None:
        if score.expected_p99_s is None:
            return None
        target_s = min(score.expected_p99_s * (1.0 + self.headroom), self.ceiling_s)
        if score.learned is not None:
            return Move(target_s, score.learned)
        if in_force_s is None:
            return None
        if abs(target_s / in_force_s - 1.0) < self.min_change:
            return None
        exceeded = score.p99_s is not None and score.p99_s > in_force_s
        loosens = target_s > in_force_s
        if loosens and (score.suspected or exceeded) and score.attribution != "workload":
            return None
        why = "the workload shifted" if score.attribution == "workload" else "the reference learned"
        return Move(target_s, why)


@dataclass(frozen=True, slots=True)
class Sits2026Threshold:
    """The source document's rule, to the letter (see ``detectors.sits2026``)."""

    base_slo_s: float

    def __call__(self, score: DriftScore, in_force_s: float | None) -> Move | None:
        if score.kl_nats is None:
            return None if in_force_s is not None else Move(self.base_slo_s, "the base SLO")
        threshold_s = sits2026_threshold_s(self.base_slo_s, score.kl_nats)
        if threshold_s == in_force_s:
            return None
        return Move(threshold_s, score.learned or f"KL {score.kl_nats:.3f} nats")


@dataclass(frozen=True, slots=True)
class FixedThreshold:
    """A static SLO, for detectors that know no reference of their own."""

    slo_s: float

    def __call__(self, score: DriftScore, in_force_s: float | None) -> Move | None:  # noqa: ARG002
        return Move(self.slo_s, "fixed by configuration") if in_force_s is None else None


@dataclass(frozen=True, slots=True)
class NoThreshold:
    """For detectors that know no reference, where no SLO is configured."""

    def __call__(self, score: DriftScore, in_force_s: float | None) -> Move | None:  # noqa: ARG002
        return None
