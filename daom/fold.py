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
from daom.pipeline import Cell


class Folded(NamedTuple):
    """What one value made due. ``record`` is None where nothing of it could be used."""

    record: Record | None
    outputs: Sequence[Output]
    faults: Sequence[MalformedRecord]


@dataclass(slots=True)
class Fold:
    """The cells of one partition, or of one recording.

    Args:
        settings: How every cell is judged.
        max_message_bytes: Larger values are refused unread.
        cells: By key; those of a checkpoint, or none.
    """

    settings: CellSettings
    max_message_bytes: int = DEFAULT_MAX_BYTES
    cells: dict[str, Cell] = field(default_factory=dict)

    def take(self, value: bytes | None, key: str | None, logged_s: float | None = None) -> Folded:
        """Fold one value in. ``key`` is the cell that the log filed it under; None: its model's."""
        try:
            record, faults = decode(value, logged_s=logged_s, max_bytes=self.max_message_bytes)
            cell = self._cell_of(record, key)
        except MalformedRecord as error:
            return Folded(None, (), (error,))
        return Folded(record, cell.step(record), faults)

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
        if cell is None:
            cell = self.cells[name] = Cell(name, model, self.settings)
        return cell

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
