"""The clock of a cell: event time, as its own records tell it.

The clock is the latest event time that can be believed. One producer with a wrong clock must not
drag it along, so a record from far ahead is *restamped* to what is known:

* if the log noted when it took the record (``logged_s``), nothing can have happened much later;
* if other engines report, a time far beyond the furthest of them is believed once a second engine
  confirms it, or once that engine has gone on alone while no other was heard (the cell resumed).

Records from behind are not restamped: late is late, and is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from daom.bounded import put

_MAX_LEAPS: Final = 64
"""Claims that are remembered: two that agree are enough to be believed."""


@dataclass(slots=True)
class Leap:
    """An engine that claims to be far ahead of its cell."""

    first_s: float
    latest_s: float
    others_heard: bool = False


@dataclass(slots=True)
class ClockState:
    """What the clock has seen; ``now_s`` is None before the first record.

    Attributes:
        leader: The engine that is furthest ahead, and when it is.
        second_s: Where the furthest of the others is; None while there is only one.
        own_s: How far each engine is, as far as it is believed.
        newest: The engine that the newest record was of.
        leaps: Engines whose claims are not believed yet.
    """

    now_s: float | None = None
    leader: tuple[str, float] | None = None
    second_s: float | None = None
    own_s: dict[str, float] = field(default_factory=dict)
    newest: str | None = None
    leaps: dict[str, Leap] = field(default_factory=dict)

    def others_s(self, engine: str) -> float | None:
        """Return how far the furthest engine but ``engine`` is."""
        if self.leader is None or self.leader[0] == engine:
            return self.second_s
        return self.leader[1]

    def note(self, engine: str, time_s: float) -> None:
        """Note that ``engine`` has come to ``time_s``."""
        self.own_s[engine] = max(time_s, self.own_s.get(engine, time_s))
        if self.leader is None or self.leader[0] == engine:
            self.leader = (engine, time_s if self.leader is None else max(self.leader[1], time_s))
        elif time_s > self.leader[1]:
            self.second_s, self.leader = self.leader[1], (engine, time_s)
        else:
            self.second_s = time_s if self.second_s is None else max(self.second_s, time_s)
        self.now_s = self.leader[1] if self.now_s is None else max(self.now_s, self.leader[1])


@dataclass(frozen=True, slots=True)
class CellClock:
    """Admits the event times of a cell's records.

    Args:
        max_ahead_s: How far ahead of the other engines, or of the log, a producer may be.
    """

    max_ahead_s: float = 60.0

    def admit(self, state: ClockState, engine: str, end_s: float, logged_s: float | None) -> float:
        """Return the event time to believe for a record that claims ``end_s``; move the clock."""
        claimed_s = end_s
        if logged_s is not None:
            claimed_s = min(claimed_s, max(logged_s + self.max_ahead_s, state.now_s or 0.0))
        for other, leap in state.leaps.items():
            leap.others_heard |= other != engine
        others_s = state.others_s(engine)
        believed_s = claimed_s
        if others_s is not None and self._is_leap(state, engine, claimed_s, others_s):
            if self._believes_leap(state, engine, claimed_s):
                state.leaps.clear()
            else:
                believed_s = others_s
        elif state.leaps:
            state.leaps.pop(engine, None)
        state.newest = engine
        state.note(engine, believed_s)
        return believed_s

    def _is_leap(self, state: ClockState, engine: str, claimed_s: float, others_s: float) -> bool:
        """Return whether the engine is far beyond others that are alive, or has jumped.

        An engine that goes on step by step while no other is heard is alone, not ahead.
        """
        if claimed_s <= others_s + self.max_ahead_s:
            return False
        jumped = claimed_s > state.own_s.get(engine, others_s) + self.max_ahead_s
        return jumped or state.newest != engine

    def _believes_leap(self, state: ClockState, engine: str, claimed_s: float) -> bool:
        confirmed = any(
            other != engine and abs(leap.latest_s - claimed_s) <= self.max_ahead_s
            for other, leap in state.leaps.items()
        )
        leap = state.leaps.get(engine, Leap(claimed_s, claimed_s))
        put(state.leaps, engine, leap, _MAX_LEAPS)
        leap.latest_s = claimed_s
        alone = not leap.others_heard and claimed_s - leap.first_s >= self.max_ahead_s
        return confirmed or alone

    def tick(self, state: ClockState, time_s: float, logged_s: float | None = None) -> None:
        """Move the clock by real time, which a Tick brings."""
        if logged_s is not None:
            time_s = min(time_s, logged_s + self.max_ahead_s)
        state.now_s = time_s if state.now_s is None else max(state.now_s, time_s)
