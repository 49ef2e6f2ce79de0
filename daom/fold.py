"""Records of many cells, folded: what the live worker and ``daom replay`` both call.

A value goes in as it came from the log; outputs, and the reasons for what could not be used, come
out. Which cells exist is found out from the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from daom.cell import CellSettings, CellState
from daom.codec import DEFAULT_MAX_BYTES, Decoded, decode
from daom.door import Door
from daom.errors import MalformedRecord
from daom.events import Output, Record, is_cell_of
from daom.limits import LIMIT_WORDS
from daom.pipeline import Cell


class Folded(NamedTuple):
    """What one value made due.

    Attributes:
        record: None where nothing of it could be used,
        noted: but a cell may have noted so much: it has changed, though nobody was heard.
        others: What it made due under each of the fold's other settings.
    """

    record: Record | None
    outputs: Sequence[Output]
    faults: Sequence[MalformedRecord]
    noted: bool = False
    others: Sequence[Sequence[Output]] = ()


@dataclass(slots=True)
class Fold:
    """The cells of one partition, or of one recording.

    Args:
        settings: How every cell is judged.
        max_message_bytes: Larger values are refused unread.
        partition: Its number, where the log has partitions.
        cells: By key; those of a checkpoint, or none.
        others: Settings that differ from ``settings`` in how alerts live alone (``daom.pipeline``).

    Attributes:
        door: Speaks of what is refused and no cell's.
    """

    settings: CellSettings
    max_message_bytes: int = DEFAULT_MAX_BYTES
    partition: int | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    others: Sequence[CellSettings] = ()
    door: Door = field(init=False)

    def __post_init__(self) -> None:
        self.door = Door(self.partition, self.settings)

    def take(
        self,
        value: bytes | None,
        key: str | None,
        logged_s: float | None = None,
        *,
        at_door: bool = True,
    ) -> Folded:
        """Fold one value in.

        Args:
            value: As it came from the log.
            key: The cell that the log filed it under; None: what the value says itself, as one of a
                recording may, and else its model's.
            logged_s: When the log took it, if the log says.
            at_door: False where the partition has heard it before, and only its cell has not.
        """
        try:
            record, faults = self._decode(value, logged_s)
        except MalformedRecord as error:
            return self.refuse(error, key, logged_s, at_door=at_door)
        return self.take_record(record, faults, key, at_door=at_door)

    def take_record(
        self,
        record: Record,
        faults: Sequence[MalformedRecord],
        key: str | None,
        *,
        at_door: bool = True,
    ) -> Folded:
        """Fold in a record that has been decoded, maybe for several folds; it is not changed."""
        folded = self._step(record, faults, key)
        if not at_door:
            return folded
        refused = next((fault for fault in folded.faults if fault.limit == "cells"), None)
        said = self.door.passed(record, _cell_name(record, key), refused)
        return folded._replace(outputs=[*folded.outputs, *said]) if said else folded

    def refuse(
        self,
        fault: MalformedRecord,
        key: str | None,
        logged_s: float | None = None,
        *,
        at_door: bool = True,
    ) -> Folded:
        """Take note of a value that could not be decoded; the rest is as ``take`` has it."""
        name = fault.model if key is None else key
        said = self.door.refused(fault, name, logged_s) if at_door else []
        return Folded(None, said, (fault,), noted=self._note(fault, name))

    def overhear(self, value: bytes | None, key: str, logged_s: float | None) -> list[Output]:
        """Let the partition hear a value that its cell has folded before; return what is due."""
        try:
            record = self._decode(value, logged_s).record
        except MalformedRecord as error:
            return self.door.refused(error, key, logged_s)
        return self.door.passed(record, key, None)

    def _decode(self, value: bytes | None, logged_s: float | None) -> Decoded:
        return decode(
            value,
            logged_s=logged_s,
            max_bytes=self.max_message_bytes,
            limits=self.settings.limits,
        )

    def _step(self, record: Record, faults: Sequence[MalformedRecord], key: str | None) -> Folded:
        """Let the cell of a record take what there is room for."""
        try:
            cell = self._cell_of(record, _cell_name(record, key))
        except MalformedRecord as error:
            return Folded(None, (), (error,), noted=self._note(error, key))
        admitted = cell.admit(record)
        if admitted.fault is not None:
            faults = (*faults, admitted.fault)
        if admitted.record is None:
            return Folded(None, (), faults, noted=True)
        outputs = cell.step(admitted.record)
        return Folded(record, outputs, faults, others=cell.said_by_others())

    def _note(self, fault: MalformedRecord, name: str | None) -> bool:
        """Let the cell know that a record filed under it was beyond a limit, if there is one."""
        cell = self.cells.get(name or "")
        if fault.limit is None or cell is None or fault.model not in {None, cell.model}:
            return False
        cell.note(fault)
        return True

    def _cell_of(self, record: Record, name: str) -> Cell:
        model = record.source.model
        if not is_cell_of(name, model):
            raise MalformedRecord(
                "wrong_key",
                "",
                f"filed under {name!r:.80}; its model's cells are {model!r:.80}"
                " and the same with /0, /1, ...",
            )
        cell = self.cells.get(name)
        at_most = self.settings.limits.cells
        if cell is None and len(self.cells) >= at_most:
            raise MalformedRecord(
                "limit",
                "source.model",
                f"got {name!r}, beyond the {at_most} {LIMIT_WORDS['cells']} allowed; left out",
                limit="cells",
                allowed=at_most,
            )
        if cell is None:
            cell = self.cells[name] = Cell(name, model, self.settings, others=self.others)
        return cell

    def resettle(self, name: str, settings: CellSettings) -> None:
        """Let a cell, if it is there, go on under ``settings``, with all that it remembers."""
        cell = self.cells.get(name)
        if cell is not None:
            self.cells[name] = Cell(name, cell.model, settings, cell.state)

    def restore(self, name: str, model: str, state: CellState) -> None:
        """Let a cell go on from ``state``."""
        self.cells[name] = Cell(name, model, self.settings, state)

    def counters(self) -> dict[str, int]:
        """Return what the cells have counted, added up."""
        return add_counts(cell.state.counters for cell in self.cells.values())


def _cell_name(record: Record, key: str | None) -> str:
    named = record.source.cell if key is None else key
    return record.source.model if named is None else named


def add_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sum of several counters, name by name."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)
