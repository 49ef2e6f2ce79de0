"""Recorded telemetry through the same fold as live: what would have been said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

from daom.errors import MalformedRecord
from daom.events import Output
from daom.fold import Folded, add_counts


class LogRecord(NamedTuple):
    """One record of a partition, as the log has it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_s: float | None

    @property
    def cell(self) -> str:
        """The cell that the log filed it under; "" is none."""
        return "" if self.key is None else self.key.decode(errors="replace")


class Sourced(NamedTuple):
    """One value of a recording or topic, and where it came from, in words.

    Attributes:
        key: The cell that the log filed it under; None: what it says itself, else its model's.
        logged_s: When the log took it; None: it says so itself, if anybody does.
        offset: Of its partition; None: it comes from a recording.
    """

    where: str
    value: bytes | None
    key: str | None = None
    logged_s: float | None = None
    offset: int | None = None

    @classmethod
    def of_log(cls, topic: str, partition: int, record: LogRecord) -> Self:
        """Return ``record`` as it came from a partition of ``topic``."""
        where = f"{topic} partition {partition} offset {record.offset}"
        return cls(where, record.value, record.cell, record.timestamp_s, record.offset)


class Fault(NamedTuple):
    """Something that could not be used, and where it was."""

    where: str
    reason: MalformedRecord


@dataclass(slots=True)
class Tally:
    """What a replay met, to be printed at its end."""

    records: int = 0
    outputs: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    counted: dict[str, int] = field(default_factory=dict)

    def note(self, folded: Folded) -> None:
        """Take what became of one value."""
        self.records += folded.record is not None
        self.faults.update(fault.kind for fault in folded.faults)
        self.outputs.update(type(output).__name__ for output in folded.outputs)

    def absorb(self, other: Tally) -> None:
        """Take what was met in another part of the same source."""
        self.records += other.records
        self.outputs.update(other.outputs)
        self.faults.update(other.faults)
        self.counted = add_counts([self.counted, other.counted])


class Folding(Protocol):
    """A ``daom.fold.Fold``, or what folds for several settings at once."""

    def take(self, value: bytes | None, key: str | None, logged_s: float | None = None) -> Folded:
        """Fold one value in."""

    def counters(self) -> dict[str, int]:
        """Return what has been counted."""


def replay(values: Iterable[Sourced], fold: Folding, tally: Tally) -> Iterator[Output | Fault]:
    """Yield what each value makes due, in log order, and what of it could not be used."""
    for sourced, folded in steps(values, fold):
        yield from _note(folded, sourced.where, tally)
    tally.counted = fold.counters()


def steps(values: Iterable[Sourced], fold: Folding) -> Iterator[tuple[Sourced, Folded]]:
    """Yield each value, in log order, with what it makes due."""
    for sourced in values:
        yield sourced, fold.take(sourced.value, sourced.key, sourced.logged_s)


def _note(folded: Folded, where: str, tally: Tally) -> Iterator[Output | Fault]:
    tally.note(folded)
    for fault in folded.faults:
        yield Fault(where, fault)
    yield from folded.outputs
