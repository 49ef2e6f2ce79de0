"""The life of an alert: inactive, pending, firing, resolved; with hysteresis.

A condition must hold for ``pending_s`` before its alert fires, and be clear for ``resolve_s``
before it resolves. Where nothing can be said (too few samples, a gap in the data) the alert stays
as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from daom.events import Attribution

DRIFT: Final = "LatencyDrift"
SLOWER_THAN_PEERS: Final = "EngineSlowerThanPeers"

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
Phase = Literal["inactive", "pending", "firing"]
_ESCALATION: Final = 2.0
"""Pending times that a worsening must last: a bad moment stays in the window for about one."""
_RELAPSE_S: Final = 1_800.0
_FAR_WORSE: Final = 2.0
"""An alert speaks again once it is so many times as bad as when it last spoke."""

Wish = Literal["pend", "fire", "escalate", "update", "resolve", "fade"]
"""The move that is due. ``pend``: still pending. ``update``: the same alert, but far worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What one cycle says about one possible alert.

    Attributes:
        name: The alert's name.
        engine: None for the whole fleet.
        signal: None where the alert is not about one signal.
        limit: The limit that the alert is about, if it is about one.
        active: True, False, or None where nothing can be said.
        clear: Active is over with a margin: the alert may resolve.
        drifting: False where only the threshold was exceeded.
        magnitude: How bad it is, in numbers of which twice is twice as bad; 0 where there are none.
    """

    name: str
    engine: str | None
    signal: str | None
    active: bool | None
    clear: bool
    severity: Severity
    attribution: Attribution = "none"
    drifting: bool = True
    magnitude: float = 0.0
    annotations: dict[str, str] = field(default_factory=dict)
    limit: str | None = None

    @property
    def key(self) -> str:
        """Identity of the alert within its cell, whatever its severity."""
        return f"{self.name}|{self.engine or '*'}|{self.signal or self.limit or ''}"

    def labels(self, whose: Mapping[str, str], severity: Severity) -> dict[str, str]:
        """Return the labels: the alert's identity, so never a value, an id or a time.

        Those of ``whose`` say who speaks: a model, or a partition.
        """
        labels = {"alertname": self.name, **whose, "severity": severity}
        if self.engine is not None:
            labels["engine"] = self.engine
        if self.signal is not None:
            labels["signal"] = self.signal
        if self.limit is not None:
            labels["limit"] = self.limit
        return labels


@dataclass(slots=True)
class AlertLife:
    """Where one alert stands. Times are event times.

    Attributes:
        since_s: When its condition began.
        critical_since_s: Since when it has been critical without a break.
        drifted_s: When it last drifted, if it ever has.
        announced: Its pending state has been published.
        muted_by: The rule that has been published as muting it.
        objection: The rule that would mute it now.
        worse_since_s: Since when it has been of a higher severity than what it fired with,
        far_worse_since_s: and since when far worse than when it last spoke, without a break.
        magnitude: How bad it was then.
    """

    name: str
    engine: str | None
    signal: str | None
    phase: Phase = "inactive"
    severity: Severity = "warning"
    attribution: Attribution = "none"
    since_s: float = 0.0
    critical_since_s: float | None = None
    drifting: bool = False
    drifted_s: float | None = None
    announced: bool = False
    muted_by: str | None = None
    objection: str | None = None
    worse_since_s: float | None = None
    far_worse_since_s: float | None = None
    magnitude: float = 0.0
    clear_since_s: float | None = None
    resolved_s: float | None = None
    limit: str | None = None


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """When an alert may move on.

    Args:
        pending_s: How long a condition must hold before its alert may fire.
        resolve_s: How long it must be clear before the alert resolves,
        relapse_resolve_s: and at least so long if it had resolved before, not long ago: an engine
            that crashes again and again is one incident.
    """

    pending_s: float = 60.0
    resolve_s: float = 120.0
    relapse_resolve_s: float = 0.0

    def advance(self, life: AlertLife, condition: Condition, now_s: float) -> Wish | None:
        """Note ``condition`` in ``life``; return the move that is now due, if any."""
        if condition.active is None:
            return None
        if condition.active:
            return self._hold(life, condition, now_s)
        if life.phase == "pending":
            return "fade"
        if life.phase == "firing" and condition.clear:
            life.clear_since_s = _since(life.clear_since_s, now_s)
            return "resolve" if now_s - life.clear_since_s >= self._resolve_s(life) else None
        life.clear_since_s = None
        return None

    def _resolve_s(self, life: AlertLife) -> float:
        relapsed = life.resolved_s is not None and life.since_s - life.resolved_s <= _RELAPSE_S
        return max(self.resolve_s, self.relapse_resolve_s) if relapsed else self.resolve_s

    def _hold(self, life: AlertLife, condition: Condition, now_s: float) -> Wish | None:
        life.clear_since_s = None
        # Sticky: a drift that flickers at its edge is one drift, and a threshold that is merely
        # exceeded says nothing of whose doing it is, nor how bad.
        if condition.drifting or not life.drifting:
            self._note(life, condition, now_s)
            if life.phase == "firing":
                return self._worsening(life, condition, now_s)
        if life.phase == "firing":
            return None
        return "fire" if now_s - life.since_s >= self.pending_s else "pend"

    def _note(self, life: AlertLife, condition: Condition, now_s: float) -> None:
        """Note what ``condition`` says of an alert that is active."""
        if condition.severity != "critical":
            life.critical_since_s = None
        elif life.critical_since_s is None:
            life.critical_since_s = now_s
        if condition.drifting:
            life.drifted_s = now_s
        if life.phase == "firing":
            return
        if life.phase == "inactive" or (condition.drifting and not life.drifting):
            # A threshold that was merely exceeded begins anew once the distribution has drifted.
            life.phase, life.since_s, life.muted_by = "pending", now_s, None
        life.drifting = condition.drifting
        life.severity = self._severity(life, condition, now_s)
        if condition.attribution != "none" and life.attribution != "mixed":
            life.attribution = condition.attribution

    def _severity(self, life: AlertLife, condition: Condition, now_s: float) -> Severity:
        """Return the severity to fire with: critical only if it has been for long enough.

        That is half the pending time; and for what has been muted for longer, as long as an
        escalation takes.
        """
        since_s = life.critical_since_s
        fresh = now_s - life.since_s <= _ESCALATION * self.pending_s
        needed_s = (0.5 if fresh else _ESCALATION) * self.pending_s
        if since_s is None or now_s - since_s >= needed_s:
            return condition.severity
        return "warning"

    def _worsening(self, life: AlertLife, condition: Condition, now_s: float) -> Wish | None:
        """Return how it has become worse for twice as long as it was pending, if it has."""
        since_s = now_s - _ESCALATION * self.pending_s
        is_worse = SEVERITIES.index(condition.severity) > SEVERITIES.index(life.severity)
        life.worse_since_s = _since(life.worse_since_s, now_s) if is_worse else None
        if life.worse_since_s is not None and life.worse_since_s <= since_s:
            return "escalate"
        is_far_worse = condition.magnitude >= _FAR_WORSE * life.magnitude > 0.0
        life.far_worse_since_s = _since(life.far_worse_since_s, now_s) if is_far_worse else None
        if life.far_worse_since_s is not None and life.far_worse_since_s <= since_s:
            return "update"
        return None


def _since(earlier_s: float | None, now_s: float) -> float:
    return now_s if earlier_s is None else earlier_s
