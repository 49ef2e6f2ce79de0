"""From conditions to alerts: lifecycle, suppression, and the root-cause trigger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from daom.events import Alert, AlertState, Output, RcaTrigger, Suppression, digest, fingerprint
from daom.lifecycle import AlertLife, Condition, Lifecycle, Wish
from daom.root_cause import Evidence, rank_causes
from daom.suppression import Muted, Rule, Surroundings, Window, objection

_REMEMBER_S: Final = 86_400.0
"""An alert that ended is remembered for so long: a relapse may come soon after."""

_REMEMBER_DRIFT_S: Final = 600.0
"""And one that never fired, for as long as rules ask for it."""

EvidenceFor = Callable[[Condition, float], Evidence]
"""Gathers what is known about a condition whose onset is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """How alerts live.

    Attributes:
        drift: The life of a drift alert.
        presence: Of silence and stall, which have waited long enough when they show.
        rules: Suppression rules, in order.
        root_cause_after_s: A drift that has lasted longer than this triggers root-cause analysis,
            alert or not; None: the alert triggers it when it fires.
    """

    drift: Lifecycle
    presence: Lifecycle
    rules: tuple[Rule, ...]
    root_cause_after_s: float | None = None


@dataclass(slots=True)
class DeskState:
    """Every alert of the cell as it stands, by its key, and the announced maintenance."""

    lives: dict[str, AlertLife] = field(default_factory=dict)
    maintenance: list[Window] = field(default_factory=list)


class AlertDesk:
    """Walks the conditions of a cycle through their alerts' lives.

    Args:
        cell: The cell's key.
        whose: The labels that all its alerts have: the cell's model.
        settings: How alerts live.
    """

    def __init__(self, cell: str, whose: Mapping[str, str], settings: AlertSettings) -> None:
        self._cell = cell
        self._whose = whose
        self._settings = settings

    def walk(
        self,
        state: DeskState,
        conditions: Sequence[Condition],
        judged: Mapping[str, AbstractSet[str]],
        now_s: float,
        evidence_for: EvidenceFor,
        newcomers: Mapping[str, AbstractSet[str]] = MappingProxyType({}),
    ) -> Iterator[Output]:
        """Yield what the conditions of the cycle that ended at ``now_s`` make due, in their order.

        All lives advance before any alert moves, so that a rule sees them all at one time: see
        ``Surroundings`` for what it knows beside.
        """
        due: list[tuple[AlertLife, Condition, Wish | None]] = []
        for condition in conditions:
            life = state.lives.get(condition.key)
            if life is None:
                if not condition.active:
                    continue
                life = AlertLife(
                    condition.name, condition.engine, condition.signal, limit=condition.limit
                )
                state.lives[condition.key] = life
            is_presence = condition.signal is None
            lifecycle = self._settings.presence if is_presence else self._settings.drift
            due.append((life, condition, lifecycle.advance(life, condition, now_s)))
        around = Surroundings(now_s, state.lives, state.maintenance, judged, newcomers)
        for life, condition, wish in due:
            yield from self._move(life, condition, wish, around, evidence_for)
            resolved_ago_s = now_s - (life.resolved_s or 0.0)
            drifted_ago_s = now_s - (life.drifted_s or 0.0)
            is_old = resolved_ago_s > _REMEMBER_S and drifted_ago_s > _REMEMBER_DRIFT_S
            if life.phase == "inactive" and is_old:
                state.lives.pop(condition.key, None)

    def _move(
        self,
        life: AlertLife,
        condition: Condition,
        wish: Wish | None,
        around: Surroundings,
        evidence_for: EvidenceFor,
    ) -> Iterator[Output]:
        now_s = around.now_s
        match wish:
            case "pend" | "fire":
                yield from self._wait_or_fire(life, condition, wish, around, evidence_for)
            case "escalate":
                # A severity is a label, so the incident goes on under another fingerprint.
                yield self._alert("resolved", life, condition, now_s)
                life.severity = condition.severity
                yield self._speak(life, condition, now_s)
            case "update":
                yield self._speak(life, condition, now_s)
            case "resolve":
                yield self._alert("resolved", life, condition, now_s)
                life.resolved_s = now_s
                self._end(life)
            case "fade":
                if life.announced and life.muted_by is None:
                    muted = Muted("not_sustained", f"lasted only {now_s - life.since_s:.0f} s")
                    yield from self._mute(muted, life, condition, now_s)
                self._end(life)

    def _wait_or_fire(
        self,
        life: AlertLife,
        condition: Condition,
        wish: Wish,
        around: Surroundings,
        evidence_for: EvidenceFor,
    ) -> Iterator[Output]:
        now_s = around.now_s
        muted = objection(condition, life, around, self._settings.rules)
        life.objection = muted.rule if muted is not None else None
        if wish == "pend":
            # What a rule would mute anyway is not worth announcing.
            if condition.drifting and not life.announced and muted is None:
                life.announced = True
                yield self._alert("pending", life, condition, now_s)
        elif muted is not None:
            yield from self._mute(muted, life, condition, now_s)
        else:
            life.phase, life.muted_by = "firing", None
            yield self._speak(life, condition, now_s)
            if condition.signal is not None and self._settings.root_cause_after_s is None:
                # Of the alert as it is, which is more than what this pane says.
                said = replace(condition, severity=life.severity, attribution=life.attribution)
                yield self.trigger(said, life.since_s, now_s, evidence_for)

    def _speak(self, life: AlertLife, condition: Condition, now_s: float) -> Alert:
        """Say that it fires, with what is known by now."""
        life.magnitude, life.far_worse_since_s = condition.magnitude, None
        return self._alert("firing", life, condition, now_s)

    @staticmethod
    def _end(life: AlertLife) -> None:
        life.phase, life.clear_since_s, life.muted_by = "inactive", None, None
        life.attribution, life.objection = "none", None
        life.critical_since_s = life.worse_since_s = life.far_worse_since_s = None
        life.drifting = life.announced = False

    def _mute(
        self, muted: Muted, life: AlertLife, condition: Condition, now_s: float
    ) -> Iterator[Output]:
        """Say once which rule mutes an alert; again only when another rule takes over."""
        if muted.rule == life.muted_by:
            return
        life.muted_by = muted.rule
        labels = condition.labels(self._whose, condition.severity)
        print_of = fingerprint(labels)
        yield Suppression(
            id=digest(self._cell, print_of, f"suppression/{muted.rule}", now_s),
            event_time_s=now_s,
            cell=self._cell,
            fingerprint=print_of,
            name=condition.name,
            labels=labels,
            rule=muted.rule,
            why=muted.why,
            until_s=muted.until_s,
        )

    def _alert(
        self, alert_state: AlertState, life: AlertLife, condition: Condition, now_s: float
    ) -> Alert:
        labels = condition.labels(self._whose, life.severity)
        print_of = fingerprint(labels)
        incident = digest(self._cell, condition.key, "incident", life.since_s)
        return Alert(
            id=digest(self._cell, print_of, f"alert/{alert_state}", now_s),
            event_time_s=now_s,
            cell=self._cell,
            fingerprint=print_of,
            name=condition.name,
            labels=labels,
            state=alert_state,
            started_s=life.since_s,
            attribution=life.attribution,
            annotations=condition.annotations | {"incident": incident},
        )

    def trigger(
        self, condition: Condition, onset_s: float, now_s: float, evidence_for: EvidenceFor
    ) -> RcaTrigger:
        """Return the root-cause trigger for ``condition``, which began at ``onset_s``."""
        labels = condition.labels(self._whose, condition.severity)
        print_of = fingerprint(labels)
        return RcaTrigger(
            id=digest(self._cell, print_of, "rca", now_s),
            event_time_s=now_s,
            cell=self._cell,
            fingerprint=print_of,
            name=condition.name,
            labels=labels,
            onset_s=onset_s,
            causes=rank_causes(evidence_for(condition, onset_s)),
        )
