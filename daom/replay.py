"""Recorded telemetry through the same fold as live: what would have been said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from daom.errors import MalformedRecord
from daom.events import Output
from daom.fold import Folded


class Sourced(NamedTuple):
    """One value of a recording or topic, and where it came from, in words."""

    where: str
    value: bytes | None
    key: str | None = None
    logged_s: float | None = None


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


class Folding(Protocol):
    """A ``daom.fold.Fold``, or what folds for several settings at once."""

    def take(self, value: bytes | None, key: str | None, logged_s: float | None = None) -> Folded:
        """Fold one value in."""

    def counters(self) -> dict[str, int]:
        """Return what has been counted."""


def replay(values: Iterable[Sourced], fold: Folding, tally: Tally) -> Iterator[Output | Fault]:
    """Yield what each value makes due, in log order, and what of it could not be used."""
    for sourced in values:
        folded = fold.take(sourced.value, sourced.key, sourced.logged_s)
        yield from _note(folded, sourced.where, tally)
    tally.counted = fold.counters()


def _note(folded: Folded, where: str, tally: Tally) -> Iterator[Output | Fault]:
    tally.records += folded.record is not None
    for fault in folded.faults:
        tally.faults[fault.kind] += 1
        yield Fault(where, fault)
    for output in folded.outputs:
        tally.outputs[type(output).__name__] += 1
        yield output
