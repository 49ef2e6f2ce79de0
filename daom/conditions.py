"""What one cycle says about possible alerts: drift, silence, stall."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from daom.engine import EngineState
from daom.lifecycle import DRIFT, AlertLife, Condition, Severity
from daom.series import unresolved
from detectors.protocol import DriftScore

ENGINE_SILENT: Final = "EngineSilent"
ENGINE_STALLED: Final = "EngineStalled"
CELL_SILENT: Final = "CellSilent"

CEILING: Final = "LatencyCeiling"
MEASUREMENT_CHANGE: Final = "measurement_change"
"""A remark on a drift: what is measured has changed, not the service."""

_LINGERING: Final = 0.75
"""Of the slowdown that raises an alert: from here on it does not resolve."""
_STALL_REQUESTS: Final = 3.0
"""An engine that reports requests only is stalled after this many of its longest requests,"""
_STALL_REQUESTS_MIN_S: Final = 300.0
"""and not before this long."""


@dataclass(frozen=True, slots=True)
class DriftRules:
    """When a drift score matters.

    Args:
        min_slowdown: Smaller relative slowdowns raise nothing, however significant.
        critical_slowdown: From here on the alert is critical: 1.0 is twice as slow.
        threshold_alone: The threshold raises the alert, drift or no drift (preset sits2026).
    """

    min_slowdown: float = 0.1
    critical_slowdown: float = 1.0
    threshold_alone: bool = False

    def condition(
        self,
        engine: str | None,
        signal: str,
        score: DriftScore,
        threshold_s: float | None,
        remarks: Mapping[str, str] = MappingProxyType({}),
    ) -> Condition:
        """Return what ``score`` says about the drift alert of one series.

        Args:
            remarks: Further annotations. Where one says that the measurement has changed, nobody is
                paged for it.
        """
        exceeds = _exceeds(score, threshold_s)
        drifts = self._raises(score, threshold_s)
        return Condition(
            name=DRIFT,
            engine=engine,
            signal=signal,
            active=None if score.drifting is None else drifts or exceeds,
            clear=not exceeds and not self._lingers(score),
            severity="info" if MEASUREMENT_CHANGE in remarks else self._severity(score),
            attribution=score.attribution,
            drifting=drifts,
            magnitude=max(0.0, 1.0 + score.slowdown),
            annotations=_describe(engine, signal, score, threshold_s) | dict(remarks),
        )

    def _raises(self, score: DriftScore, threshold_s: float | None) -> bool:
        """Return whether the series has become slower by enough to matter."""
        if score.drifting is None:
            return False
        if self.threshold_alone:
            return _exceeds(score, threshold_s)
        slower = score.drifting and score.direction == "slower"
        return slower and score.slowdown >= self.min_slowdown

    def _lingers(self, score: DriftScore) -> bool:
        """Return whether something is left of a slowdown that matters."""
        slower = score.suspected and score.direction == "slower"
        return slower and score.slowdown >= _LINGERING * self.min_slowdown

    def _severity(self, score: DriftScore) -> Severity:
        if score.attribution == "workload":
            return "info"
        return "critical" if score.slowdown >= self.critical_slowdown else "warning"


def _exceeds(score: DriftScore, threshold_s: float | None) -> bool:
    # Of a P99 that is known to within a bucket only its lower edge is sure.
    surely_s = score.evidence.get("bucket_from_s", score.p99_s)
    return surely_s is not None and threshold_s is not None and surely_s > threshold_s


def _describe(
    engine: str | None, signal: str, score: DriftScore, threshold_s: float | None
) -> dict[str, str]:
    whose = f"engine {engine}" if engine else "the fleet"
    if score.expected_p99_s is None:
        found = f"has drifted, direction {score.direction}"
        if score.p99_s is not None and threshold_s is not None:
            found = f"has P99 {score.p99_s:.3g} s, threshold {threshold_s:.3g} s"
    else:
        found = f"is {_against_reference(score.slowdown)}"
    words = {"summary": f"{signal} of {whose} {found}"}
    numbers = {
        "p99_s": score.p99_s,
        "threshold_s": threshold_s,
        "kl_nats": score.kl_nats,
        "workload_nats": score.workload_nats,
        "service_nats": score.service_nats,
    }
    words |= {name: f"{value:.6g}" for name, value in numbers.items() if value is not None}
    words |= {"attribution": score.attribution, "samples": str(score.samples)}
    return words | _body_and_tail(score)


def _body_and_tail(score: DriftScore) -> dict[str, str]:
    """Return how far the middle and the tail are from what was expected, each by itself."""
    found = {}
    p50_s, expected_p50_s = (score.evidence.get(name) for name in ("p50_s", "expected_p50_s"))
    if p50_s is not None and expected_p50_s is not None:
        found["body"] = f"P50 {p50_s:.3g} s, expected {expected_p50_s:.3g} s"
    if score.p99_s is not None and score.expected_p99_s is not None:
        found["tail"] = f"P99 {score.p99_s:.3g} s, expected {score.expected_p99_s:.3g} s"
    limits = unresolved(score.evidence)
    if limits and "bucket_to_s" in score.evidence and "tail" in found:
        return found | {"tail": f"{found['tail']}; {limits}"}
    return found | ({"tail": limits} if limits else {})


def _against_reference(slowdown: float) -> str:
    if slowdown >= 1.0:
        return f"{1.0 + slowdown:.3g} times its reference"
    return f"{abs(slowdown):.0%} {'above' if slowdown >= 0.0 else 'below'} its reference"


def ceiling_condition(
    engine: str | None, signal: str, score: DriftScore, ceiling_s: float
) -> Condition:
    """Return whether P99 is surely above its ceiling, or has come to be above it as a habit."""
    expected_s = score.evidence.get("expected_p99_least_s", score.expected_p99_s or 0.0)
    least_s = max(score.evidence.get("p99_least_s", 0.0), expected_s)
    above = least_s > ceiling_s
    whose = f"engine {engine}" if engine else "the fleet"
    return Condition(
        name=CEILING,
        engine=engine,
        signal=signal,
        active=None if score.drifting is None else above,
        clear=not above,
        severity="critical",
        attribution=score.attribution,
        magnitude=least_s,
        annotations={
            "summary": f"P99 of {signal} of {whose} is {least_s:.3g} s or more, "
            f"above its ceiling of {ceiling_s:.3g} s",
            "ceiling_s": f"{ceiling_s:.6g}",
        },
    )


def silence_condition(
    name: str, engine: EngineState, now_s: float, silent_after_s: float, *, cell_silent: bool
) -> Condition:
    """Return whether an engine has fallen silent while its cell moved on.

    One that was heard a single time is not missed: a producer may have invented its name.
    """
    silent_s = now_s - engine.last_s
    silent = silent_s > silent_after_s
    return Condition(
        name=ENGINE_SILENT,
        engine=name,
        signal=None,
        # Where the whole cell is silent, nothing can be said about one engine.
        active=None if cell_silent or engine.heard_once else silent,
        clear=not silent,
        severity="critical",
        annotations={
            "summary": _silence_words(name, engine, silent_s, silent=silent),
            "last_record_s": f"{engine.last_s:.3f}",
        },
    )


def _silence_words(name: str, engine: EngineState, silent_s: float, *, silent: bool) -> str:
    if not silent:
        return f"engine {name} sends again"
    if engine.context.tells_of_itself():
        return (
            f"engine {name} sends records that are {silent_s:.0f} s behind those of others: they "
            "are held up, or its clock is wrong, and what comes too late is not judged"
        )
    return f"engine {name} has sent nothing for {silent_s:.0f} s while others have"


def stall_condition(
    name: str, engine: EngineState, now_s: float, stalled_after_s: float
) -> Condition:
    """Return whether an engine reports work in flight but finishes none of it."""
    idle_s = now_s - engine.progress_s
    patience_s = stalled_after_s
    if not engine.reports_steps:
        patience_s = max(_STALL_REQUESTS_MIN_S, _STALL_REQUESTS * engine.longest_request_s)
    stalled = engine.in_flight > 0 and idle_s > patience_s
    reporting = now_s - engine.last_s <= stalled_after_s
    words = f"engine {name} has nothing in flight, or finishes it"
    if stalled:
        words = f"engine {name} has {engine.in_flight:.0f} requests in flight and has finished "
        words += f"nothing for {idle_s:.0f} s"
    return Condition(
        name=ENGINE_STALLED,
        engine=name,
        signal=None,
        active=stalled if reporting else None,
        clear=not stalled,
        severity="critical",
        annotations={
            "summary": words,
            "last_progress_s": f"{engine.progress_s:.3f}",
        },
    )


def cell_silence_condition(last_record_s: float, now_s: float, silent_after_s: float) -> Condition:
    """Return whether the whole cell is silent; only a Tick can tell."""
    silent_s = now_s - last_record_s
    return Condition(
        name=CELL_SILENT,
        engine=None,
        signal=None,
        active=silent_s > silent_after_s,
        clear=silent_s <= silent_after_s,
        severity="critical",
        annotations={
            "summary": f"no engine of the model has sent anything for {silent_s:.0f} s"
            if silent_s > silent_after_s
            else "an engine of the model sends again"
        },
    )


def ended_condition(life: AlertLife, why: str) -> Condition:
    """Return the condition of an alert whose subject is gone."""
    return Condition(
        name=life.name,
        engine=life.engine,
        signal=life.signal,
        active=False,
        clear=True,
        severity=life.severity,
        annotations={"summary": why},
    )
