"""The rules that mute an alert, each with its reason.

Their order is a list; the first objection wins.

A rule sees an alert that is about to fire and what else is known of its cell, and returns a
``Muted`` or None. Nothing is dropped silently: the pipeline publishes every ``Muted``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from daom.lifecycle import DRIFT, SEVERITIES, SLOWER_THAN_PEERS, AlertLife, Condition


@dataclass(frozen=True, slots=True)
class Muted:
    """Why an alert was not raised, and until when (None: as long as the reason lasts)."""

    rule: str
    why: str
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A maintenance window, of one engine or (None) of all."""

    engine: str | None
    start_s: float
    end_s: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a rule may know beside the alert.

    Attributes:
        now_s: Event time.
        lives: Every alert of the cell by its key, as it stands.
        maintenance: Windows that somebody announced.
        judged: The engines that are there and have been judged, by signal, most important first.
        newcomers: By signal, the engines that have only just begun, where all that are not judged
            yet have.
    """

    now_s: float
    lives: Mapping[str, AlertLife]
    maintenance: Sequence[Window]
    judged: Mapping[str, AbstractSet[str]]
    newcomers: Mapping[str, AbstractSet[str]] = field(default_factory=dict)

    def firing(self, name: str, engine: str | None) -> list[AlertLife]:
        """Return the firing alerts of ``name`` and ``engine`` (None: the fleet's)."""
        return [
            life
            for life in self.lives.values()
            if life.phase == "firing" and life.name == name and life.engine == engine
        ]

    def about_to_fire(self, condition: Condition, rank: int) -> str | None:
        """Return a more important signal of the same scope whose own alert is about to fire.

        Args:
            rank: Its severity is this at least, counted from the mildest.
        """
        order = list(self.judged)
        if condition.signal not in order:
            return None
        before = order[: order.index(condition.signal)]
        return next(
            (
                life.signal
                for life in self.lives.values()
                if life.name == condition.name
                and life.engine == condition.engine
                and life.signal in before
                and SEVERITIES.index(life.severity) >= rank
                and _will_fire(life)
            ),
            None,
        )

    def drifting_share(
        self, condition: Condition, within_s: float = 0.0, *, with_peers: bool = False
    ) -> float:
        """Return for which share of the model's engines the same signal drifts.

        Silence and stall are no matter of a signal: each engine speaks for itself.

        Args:
            within_s: Engines count that drift, or did so long ago.
            with_peers: So do those that are not judged yet, but slower than their peers.
        """
        if condition.signal is None:
            return 0.0
        judged = self.judged.get(condition.signal, frozenset())
        lives = [life for life in self.lives.values() if life.signal == condition.signal]
        drifting = sum(
            life.drifting or (within_s > 0.0 and self._drifted(life, within_s))
            for life in lives
            if life.name == condition.name and life.engine in judged
        )
        slow = sum(
            life.phase != "inactive"
            for life in lives
            if with_peers and life.name == SLOWER_THAN_PEERS and life.engine not in judged
        )
        return (drifting + slow) / max(1, len(judged) + slow)

    def _drifted(self, life: AlertLife, within_s: float) -> bool:
        return life.drifted_s is not None and self.now_s - life.drifted_s <= within_s

    def own_drift(self, engine: str | None, within_s: float) -> AlertLife | None:
        """Return an alert on a drift of ``engine`` that lasts, or did so long ago."""
        return next(
            (
                life
                for life in self.lives.values()
                if life.name == DRIFT
                and life.engine == engine
                and ((life.drifting and life.phase != "inactive") or self._drifted(life, within_s))
            ),
            None,
        )


_FEW_ENGINES: Final = "few_engines"
_FLEET_WIDE: Final = "fleet_wide"
_NEWCOMERS: Final = "newcomers"
_AMONG_PEERS_S: Final = 300.0
Rule = Callable[[Condition, AlertLife, Surroundings], Muted | None]


def _will_fire(life: AlertLife) -> bool:
    """Return whether an alert is about to fire, and is not left to others to tell."""
    told_by_others = life.objection in {_FEW_ENGINES, _FLEET_WIDE, _NEWCOMERS}
    return life.phase == "pending" and life.drifting and not told_by_others


def maintenance(condition: Condition, life: AlertLife, around: Surroundings) -> Muted | None:  # noqa: ARG001
    """Mute what happens inside an announced maintenance window."""
    for window in around.maintenance:
        covers = window.engine is None or window.engine == condition.engine
        if covers and window.start_s <= around.now_s < window.end_s:
            return Muted("maintenance", f"maintenance {window.detail}".strip(), window.end_s)
    return None


def not_drifting(condition: Condition, life: AlertLife, around: Surroundings) -> Muted | None:  # noqa: ARG001
    """Mute a P99 above its threshold while the distribution has not moved: a burst."""
    if life.drifting:
        return None
    return Muted("not_drifting", "P99 is above its threshold, but the distribution has not drifted")


@dataclass(frozen=True, slots=True)
class FleetWide:
    """Mute an engine's alert when the whole fleet has the same trouble.

    Engines recover one after the other: the last one is not in trouble of its own until it has been
    alone for ``alone_s``.
    """

    share: float = 0.5
    alone_s: float = 60.0

    def __call__(
        self,
        condition: Condition,
        life: AlertLife,  # noqa: ARG002
        around: Surroundings,
    ) -> Muted | None:
        share = around.drifting_share(condition, self.alone_s)
        if condition.engine is None or share <= self.share:
            return None
        return Muted(_FLEET_WIDE, f"{share:.0%} of the engines drift: the fleet's alert covers it")


@dataclass(frozen=True, slots=True)
class FewEngines:
    """Mute the fleet's alert when it comes from a few engines, which have alerts of their own."""

    share: float = 0.5

    def __call__(
        self,
        condition: Condition,
        life: AlertLife,
        around: Surroundings,
    ) -> Muted | None:
        if condition.engine is not None:
            return None
        share = around.drifting_share(condition, with_peers=True)
        # What came from one engine is in the fleet's window for a while after that engine has gone.
        remains = share == 0.0 and life.objection == _FEW_ENGINES
        if not remains and not 0.0 < share <= self.share:
            return None
        return Muted(_FEW_ENGINES, f"{share:.0%} of the engines drift: their own alerts say which")


def newcomers(condition: Condition, life: AlertLife, around: Surroundings) -> Muted | None:  # noqa: ARG001
    """Mute the fleet's alert while only engines that have just begun can be what has slowed it.

    The first requests of a replica compile and find empty caches; one that stays slow is told from
    its peers, and is new for some minutes only.
    """
    if condition.engine is not None or condition.signal is None:
        return None
    new = around.newcomers.get(condition.signal)
    if not new or not around.judged.get(condition.signal) or around.drifting_share(condition):
        return None
    return Muted(_NEWCOMERS, f"no known engine drifts, and {len(new)} have only just begun")


def same_incident(condition: Condition, life: AlertLife, around: Surroundings) -> Muted | None:
    """Mute a further signal of a scope that already has an alert at least as severe.

    One that is about to escalate counts as what it will be.
    """
    rank = SEVERITIES.index(life.severity)
    for scope in dict.fromkeys((condition.engine, None)):
        for other in around.firing(condition.name, scope):
            other_rank = SEVERITIES.index(other.severity) + (other.worse_since_s is not None)
            if other.signal != condition.signal and other_rank >= rank:
                whose = f"engine {scope}" if scope else "the fleet"
                return Muted("same_incident", f"{other.signal} of {whose} is already firing")
    for other in around.lives.values():
        is_worse = SEVERITIES.index(other.severity) > rank and other.since_s <= life.since_s
        same_scope = other.name == condition.name and other.engine == condition.engine
        if same_scope and is_worse and _will_fire(other):
            return Muted("same_incident", f"{other.signal}, which is worse, is about to fire")
    sooner = around.about_to_fire(condition, rank)
    if sooner is not None:
        return Muted("same_incident", f"{sooner}, which explains it, is about to fire")
    return None


def drifts_itself(condition: Condition, life: AlertLife, around: Surroundings) -> Muted | None:  # noqa: ARG001
    """Mute that an engine is slower than its peers where its own drift already says so.

    Among the peers' panes a drift that is over remains for a while.
    """
    if condition.name != SLOWER_THAN_PEERS:
        return None
    own = around.own_drift(condition.engine, _AMONG_PEERS_S)
    if own is None:
        return None
    whose = f"{own.signal} of engine {condition.engine}"
    return Muted("drifts_itself", f"{whose} has drifted from its own past, too")


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Mute an alert within ``interval_s`` of another's end: a relapse, whatever signal shows it."""

    interval_s: float = 300.0

    def __call__(
        self,
        condition: Condition,
        life: AlertLife,  # noqa: ARG002
        around: Surroundings,
    ) -> Muted | None:
        resolved = [
            other.resolved_s
            for other in around.lives.values()
            if other.name == condition.name
            and other.engine == condition.engine
            and other.limit == condition.limit
            and other.resolved_s is not None
        ]
        if not resolved or around.now_s >= max(resolved) + self.interval_s:
            return None
        ago_s = around.now_s - max(resolved)
        whose = f"engine {condition.engine}" if condition.engine else "the fleet"
        why = f"an alert of {whose} resolved {ago_s:.0f} s ago"
        return Muted("cooldown", why, max(resolved) + self.interval_s)


def objection(
    condition: Condition, life: AlertLife, around: Surroundings, rules: Sequence[Rule]
) -> Muted | None:
    """Return the first objection, asking ``rules`` in order."""
    objections = (rule(condition, life, around) for rule in rules)
    return next((found for found in objections if found is not None), None)
