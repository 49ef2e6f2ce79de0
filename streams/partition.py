"""One partition of the telemetry topic: its cells, how far they have come, and what is in flight.

The fold knows its own position in the log, so it does not matter how often, or by whom, a record is
delivered: one before the position is skipped, and a gap before a record is read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field

from daom.cell import CellSettings
from daom.fold import Fold, Folded
from daom.replay import LogRecord
from streams.checkpoint import Checkpoint, Marker, encode_checkpoint, judged_by


@dataclass(slots=True)
class Progress:
    """How far one cell has come.

    Attributes:
        offset: The next offset that it needs; ``saved`` is that of its last checkpoint.
        heard_s: When it was last heard of, monotonic seconds.
    """

    offset: int
    saved: int
    heard_s: float


@dataclass(slots=True)
class PartitionFold:
    """The fold of one partition.

    Args:
        number: The partition.
        fold: Its cells.
        position: The next offset to fold.
        partitions: Partitions of the topic, kept in every checkpoint.
        heard: The next offset that the partition itself has not heard of.
    """

    number: int
    fold: Fold
    position: int
    partitions: int
    progress: dict[str, Progress] = field(default_factory=dict)
    heard: int = 0

    def take(self, record: LogRecord, now_s: float) -> Folded | None:
        """Fold one record in; None if nothing of it is new. ``now_s`` is monotonic."""
        if record.offset < self.position:
            return None
        self.position = record.offset + 1
        is_new = record.offset >= self.heard
        known = self.progress.get(record.cell)
        if known is not None and record.offset < known.offset:
            overheard = (record.value, record.cell, record.timestamp_s)
            said = self.fold.overhear(*overheard) if is_new else []
            return Folded(None, said, ()) if said else None
        folded = self.fold.take(record.value, record.cell, record.timestamp_s, at_door=is_new)
        if folded.record is not None or folded.noted:
            if known is None:
                known = self.progress[record.cell] = Progress(0, 0, now_s)
            known.offset = self.position
            # Who is refused is not heard: the cell may be silent all the same.
            if folded.record is not None:
                known.heard_s = now_s
        return folded

    def restore(self, marker: Marker, checkpoints: Iterable[Checkpoint], now_s: float) -> None:
        """Let the cells go on from their checkpoints, and the partition from ``marker``."""
        self.position = self.heard = marker.offset
        self.fold.door.state = marker.door
        for checkpoint in checkpoints:
            offset = checkpoint.offset
            self.fold.restore(checkpoint.cell, checkpoint.model, checkpoint.state)
            self.progress[checkpoint.cell] = Progress(offset, offset, now_s)
            # An owner that had been declared dead wrote an older checkpoint over a newer one.
            if offset < marker.cells.get(checkpoint.cell, 0):
                self.position = min(self.position, offset)
        if marker.cells.keys() - self.progress.keys():
            # A cell's checkpoint is gone: only the log, from its beginning, can bring it back.
            self.position = 0

    def marker(self) -> Marker:
        """Return how far the partition has come, once ``unsaved`` is saved."""
        return Marker(
            offset=self.position,
            partitions=self.partitions,
            cells={name: known.offset for name, known in self.progress.items()},
            door=deepcopy(self.fold.door.state),
        )

    def saved(self) -> None:
        """Note that what ``unsaved`` returned has arrived."""
        for known in self.progress.values():
            known.saved = known.offset

    def unsaved(self, settings: CellSettings) -> list[tuple[str, bytes]]:
        """Return a checkpoint of every cell that has moved since its last one, by cell."""
        judged = judged_by(settings)
        changed = [name for name, known in self.progress.items() if known.offset > known.saved]
        saved: list[tuple[str, bytes]] = []
        for name in changed:
            checkpoint = Checkpoint(
                cell=name,
                model=self.fold.cells[name].model,
                offset=self.progress[name].offset,
                judged_by=judged,
                state=self.fold.cells[name].state,
            )
            saved.append((name, encode_checkpoint(checkpoint)))
        return saved
