"""What a detector said of a stream: how long it judged, and its alarms."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, Self

from bench.detection.streams import Stream

CLEAR_S: Final = 300.0
"""Alarms closer together are one: as the default configuration's cooldown has it."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A stretch of event time in which a detector said that something had changed.

    Attributes:
        begin_s: When it first said so.
        end_s: When it last did.
        attributions: What it put the change down to, in any of its verdicts.
    """

    begin_s: float
    end_s: float
    attributions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Watched:
    """All that a detector said of a stream.

    Attributes:
        at_risk_s: Event time in which it judged and was not in alarm: learning is no calm, and a
            long alarm none either.
        alarms: In order.
    """

    at_risk_s: float
    alarms: tuple[Alarm, ...]

    @classmethod
    def of_firings(cls, judged_s: float, firings: Iterable[Alarm]) -> Self:
        """Return the alarms that ``firings`` make in ``judged_s`` seconds of judging."""
        alarms = joined(firings)
        in_alarm_s = sum(alarm.end_s - alarm.begin_s for alarm in alarms)
        return cls(max(0.0, judged_s - in_alarm_s), alarms)

    def is_in_alarm(self, time_s: float) -> bool:
        """Return whether an alarm that began before ``time_s`` was still on then."""
        return any(alarm.begin_s < time_s <= alarm.end_s for alarm in self.alarms)

    def attributions(self, since_s: float = -math.inf) -> frozenset[str]:
        """Return what the alarms that ended at ``since_s`` or later were put down to."""
        parts = (alarm.attributions for alarm in self.alarms if alarm.end_s >= since_s)
        return frozenset().union(*parts)


class Column(Hashable, Protocol):
    """A detector in the tables.

    Attributes:
        name: As the tables have it.
        max_seeds: More would take too long; None: as many as are asked for.
        interval_s: The false-alarm interval that it was built for; None: it takes none.
    """

    @property
    def name(self) -> str: ...
    @property
    def max_seeds(self) -> int | None: ...
    @property
    def interval_s(self) -> float | None: ...

    def watch(self, stream: Stream, *, until_found: bool = False) -> Watched:
        """Judge ``stream`` from its beginning to its end, or until the change has been found."""


def joined(firings: Iterable[Alarm]) -> tuple[Alarm, ...]:
    """Return ``firings``, which are in order, with those at most ``CLEAR_S`` apart made one."""
    alarms: list[Alarm] = []
    for firing in firings:
        if alarms and firing.begin_s - alarms[-1].end_s <= CLEAR_S:
            last = alarms.pop()
            attributions = last.attributions | firing.attributions
            alarms.append(Alarm(last.begin_s, firing.end_s, attributions))
        else:
            alarms.append(firing)
    return tuple(alarms)
