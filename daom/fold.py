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
from daom.codec import DEFAULT_MAX_BYTES, decode
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
        cells: By key; those of a checkpoint, or none.
        others: Settings that differ from ``settings`` in how alerts live alone (``daom.pipeline``).
    """

    settings: CellSettings
    max_message_bytes: int = DEFAULT_MAX_BYTES
    cells: dict[str, Cell] = field(default_factory=dict)
    others: Sequence[CellSettings] = ()

    def take(self, value: bytes | None, key: str | None, logged_s: float | None = None) -> Folded:
        """Fold one value in.

        ``key`` is the cell that the log filed it under; None: what the value says itself, as one of
        a recording may, and else its model's.
        """
        try:
            record, faults = decode(
                value,
                logged_s=logged_s,
                max_bytes=self.max_message_bytes,
                limits=self.settings.limits,
            )
        except MalformedRecord as error:
            return self.refuse(error, key)
        return self.take_record(record, faults, key)

    def take_record(
        self, record: Record, faults: Sequence[MalformedRecord], key: str | None
    ) -> Folded:
        """Fold in a record that has been decoded, maybe for several folds; it is not changed."""
        try:
            cell = self._cell_of(record, record.source.cell if key is None else key)
        except MalformedRecord as error:
            return self.refuse(error, key)
        admitted = cell.admit(record)
        if admitted.fault is not None:
            faults = (*faults, admitted.fault)
        if admitted.record is None:
            return Folded(None, (), faults, noted=True)
        outputs = cell.step(admitted.record)
        return Folded(record, outputs, faults, others=cell.said_by_others())

    def refuse(self, fault: MalformedRecord, key: str | None) -> Folded:
        """Take note of a value that could not be used; ``key`` is as ``take`` has it."""
        return Folded(None, (), (fault,), noted=self._note(fault, key))

    def _note(self, fault: MalformedRecord, key: str | None) -> bool:
        """Let the cell know that a record filed under it was beyond a limit, if there is one."""
        name = fault.model if key is None else key
        cell = self.cells.get(name or "")
        if fault.limit is None or cell is None or fault.model not in {None, cell.model}:
            return False
        cell.note(fault)
        return True

    def _cell_of(self, record: Record, key: str | None) -> Cell:
        model = record.source.model
        name = model if key is None else key
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


def add_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sum of several counters, name by name."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)
