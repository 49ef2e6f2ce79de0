"""What a partition says for itself: that records were refused of which no cell can speak.

A cell tells of the limits that its own records are beyond. Where the cell itself is refused, or a
message is refused unread that no cell is known for, there is nobody to tell but the partition. It
has what a cell has for that: a clock, for which a cell is what an engine is for a cell's, a note of
the limits that were hit, and the lives of its alerts. All of it comes from the records in log
order, those that a cell has folded already included, so it is the same live, after a restart and in
a replay of the partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from daom.alerting import AlertDesk, DeskState
from daom.cell import CellSettings
from daom.engine import PaneGrid
from daom.errors import MalformedRecord
from daom.event_time import ClockState
from daom.events import Output, Record, TelemetryBatch, Tick, is_cell_of
from daom.lifecycle import Condition
from daom.limit_conditions import limit_conditions, note_hit
from daom.limits import LimitHit, LimitName
from daom.root_cause import Evidence

_STRANGERS: Final = ""
"""All that is refused is one voice to the clock, whatever names it has."""


@dataclass(slots=True)
class DoorState:
    """All that a partition remembers of its own. Plain data: its marker holds it.

    Attributes:
        pane: The newest pane that the clock has come into.
    """

    clock: ClockState = field(default_factory=ClockState)
    pane: int | None = None
    limits: dict[LimitName, LimitHit] = field(default_factory=dict)
    desk: DeskState = field(default_factory=DeskState)


class Door:
    """The fold of what a partition refuses.

    Args:
        partition: Its number, a label of its alerts; None where the log has no partitions.
        settings: How its cells are judged.
    """

    def __init__(self, partition: int | None, settings: CellSettings) -> None:
        self.state = DoorState()
        self._settings = settings
        self._grid = PaneGrid(settings.pane_s)
        name = "partition" if partition is None else f"partition {partition}"
        labels: Mapping[str, str] = {} if partition is None else {"partition": str(partition)}
        self._desk = AlertDesk(name, labels, settings.alerts)

    def passed(self, record: Record, cell: str, fault: MalformedRecord | None) -> list[Output]:
        """Hear a record that could be read; return what it made due.

        Args:
            record: As it was read.
            cell: The key that it was filed under.
            fault: Why that cell was refused, if it was.
        """
        if not is_cell_of(cell, record.source.model):
            return []
        who = cell if fault is None else _STRANGERS
        clock = self.state.clock
        match record:
            case TelemetryBatch():
                self._settings.clock.admit(clock, who, record.end_s, record.logged_s)
            case Tick():
                self._settings.clock.tick(clock, record.time_s, record.logged_s)
        if fault is not None:
            self._note(fault)
        return self._walk()

    def refused(
        self, fault: MalformedRecord, cell: str | None, logged_s: float | None
    ) -> list[Output]:
        """Note that a record could not be read, unless its cell will; return what that made due."""
        if self._knows(cell, fault.model):
            return []
        if logged_s is not None:
            self._settings.clock.admit(self.state.clock, _STRANGERS, logged_s, logged_s)
        self._note(fault)
        return self._walk()

    def _knows(self, cell: str | None, model: str | None) -> bool:
        # Asked of what was heard, not of the cells: one that was restored is ahead of the log.
        heard = bool(cell) and cell in self.state.clock.own_s
        return heard and (model is None or is_cell_of(cell or "", model))

    def _note(self, fault: MalformedRecord) -> None:
        now_s = self.state.clock.now_s
        if fault.limit is not None and now_s is not None:
            note_hit(self.state.limits, fault.limit, fault.allowed, str(fault), now_s)

    def _walk(self) -> list[Output]:
        """Walk the alerts, once the clock has come into another pane."""
        state = self.state
        if state.clock.now_s is None:
            return []
        number = self._grid.number(state.clock.now_s)
        if state.pane is not None and number <= state.pane:
            return []
        state.pane = number
        end_s = self._grid.end_s(number - 1)
        conditions = limit_conditions(state.limits, end_s)
        return list(self._desk.walk(state.desk, conditions, {}, end_s, _no_evidence))


def _no_evidence(condition: Condition, onset_s: float) -> Evidence:
    raise AssertionError(f"{condition.name} since {onset_s} is of no signal, and has no causes")
