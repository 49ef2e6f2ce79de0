"""The clock of a cell: event time, as its own records tell it.

The clock is the latest event time that can be believed. One producer with a wrong clock must not
drag it along, so a record from far ahead is *restamped* to what is known:

* if the log noted when it took the record (``logged_s``), nothing can have happened much later;
* if other engines report, a leap far beyond them is believed once a second engine confirms it, or
  once the leaping engine has gone on by itself while no other was heard (the cell resumed).

Records from behind are not restamped: late is late, and is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Leap:
    """An engine that claims to be far ahead of its cell."""

    first_s: float
    latest_s: float
    others_heard: bool = False


@dataclass(slots=True)
class ClockState:
    """What the clock has seen. ``now_s`` is None before the first record."""

    now_s: float | None = None
    engines: set[str] = field(default_factory=set)
    leaps: dict[str, Leap] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellClock:
    """Admits the event times of a cell's records.

    Args:
        max_ahead_s: How far ahead of its cell, or of the log, a producer may be.
    """

    max_ahead_s: float = 60.0

    def admit(self, state: ClockState, engine: str, end_s: float, logged_s: float | None) -> float:
        """Return the event time to believe for a record that claims ``end_s``; move the clock."""
        believed_s = end_s
        if logged_s is not None:
            believed_s = min(believed_s, max(logged_s + self.max_ahead_s, state.now_s or 0.0))
        if state.leaps:
            for other, leap in state.leaps.items():
                leap.others_heard |= other != engine
        if state.now_s is not None and believed_s > state.now_s + self.max_ahead_s:
            if not self._believes_leap(state, engine, believed_s):
                state.engines.add(engine)
                return state.now_s
            state.leaps.clear()
        elif state.leaps:
            state.leaps.pop(engine, None)
        state.engines.add(engine)
        state.now_s = believed_s if state.now_s is None else max(state.now_s, believed_s)
        return believed_s

    def _believes_leap(self, state: ClockState, engine: str, claimed_s: float) -> bool:
        if not state.engines - {engine}:
            return True
        confirmed = any(
            other != engine and abs(leap.latest_s - claimed_s) <= self.max_ahead_s
            for other, leap in state.leaps.items()
        )
        leap = state.leaps.setdefault(engine, Leap(claimed_s, claimed_s))
        leap.latest_s = claimed_s
        alone = not leap.others_heard and claimed_s - leap.first_s >= self.max_ahead_s
        return confirmed or alone

    def tick(self, state: ClockState, time_s: float) -> None:
        """Move the clock by real time, which a Tick brings."""
        state.now_s = time_s if state.now_s is None else max(state.now_s, time_s)
