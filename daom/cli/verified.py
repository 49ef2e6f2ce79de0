"""What ``daom replay --verify`` tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from connectors.sources import TopicPart
from connectors.verifying import Explained
from daom.cli.options import EXIT_NO, EXIT_NOT_JUDGED
from daom.differing import NOTHING
from daom.ledger import Comparison, Kind, Scope
from daom.published import Message

Outcome = Literal["same", "different", "unsure", "nothing"]

EXITS: Final[Mapping[Outcome, int]] = {
    "same": 0,
    "different": EXIT_NO,
    "unsure": EXIT_NOT_JUDGED,
    "nothing": EXIT_NOT_JUDGED,
}
_KINDS: Final[tuple[Kind, ...]] = ("different", "missing", "beyond")
_LONGEST_SHOWN: Final = 400


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of it.

    Attributes:
        records: How many were folded.
        parts: The partitions that were recomputed, by number.
        scope: What was compared,
        found: and what was found.
        first: The first difference; None: there is none.
    """

    records: int
    parts: Mapping[int, TopicPart]
    scope: Scope
    found: Comparison
    first: Explained | None

    @property
    def outcome(self) -> Outcome:
        """The answer."""
        if self.found.first is not None:
            return "different" if self.found.first.is_sure else "unsure"
        return "same" if self.found.same else "nothing"

    def report(self) -> dict[str, Any]:
        """Return it for scripts."""
        counts: dict[str, int] = {kind: self.found.counts.get(kind, 0) for kind in _KINDS}
        return {
            "outcome": self.outcome,
            "records": self.records,
            "same": self.found.same,
            "repeats": self.found.repeats,
            **counts,
            "not_yet": self.found.not_yet,
            "not_kept": self.found.gone,
            "partitions": [self._partition(number) for number in sorted(self.parts)],
            "first": None if self.first is None else _as_json(self.first),
        }

    def _partition(self, number: int) -> dict[str, int | None]:
        part = self.parts[number]
        start, end = self.scope.ranges.get(number, (None, None))
        return {
            "partition": number,
            "log_from": part.start,
            "log_until": part.end,
            "compared_from": start,
            "compared_until": end,
            "promised_until": self.scope.said_before.get(number),
        }

    def lines(self) -> Iterator[str]:
        """Yield it for people."""
        found, partitions = self.found, len(self.parts)
        yield f"recomputed  {self.records:,} records of {partitions} partitions"
        again = f", and {found.repeats:,} repeats" if found.repeats else ""
        yield f"the same    {found.same:,} messages{again}"
        for kind in _KINDS:
            if found.counts.get(kind):
                yield f"{kind:<11} {found.counts[kind]:,}"
        if self.first is not None:
            yield from told(self.first)
        yield from self._unverified()
        yield _ANSWERS[self.outcome]

    def _unverified(self) -> Iterator[str]:
        """Yield what could not be verified, and why."""
        if self.found.not_yet:
            behind = sum(
                max(0, part.end - self.scope.said_before.get(number, 0))
                for number, part in self.parts.items()
            )
            yield (
                f"not yet     {self.found.not_yet:,} messages: the fleet has saved nothing of the "
                f"last {behind:,} records"
            )
        if self.found.gone:
            yield f"not kept    {self.found.gone:,} messages that their topics may have deleted"
        for number in sorted(self.scope.cut):
            part = self.parts[number]
            yield (
                f"{part.name} begins at offset {part.start}: what its cells had learnt before is "
                "gone, so that a difference there proves nothing"
            )
        if self.found.first is not None:
            yield "is this the configuration that the fleet had? it decides what is said"


_ANSWERS: Final[Mapping[Outcome, str]] = {
    "same": "verified: the fleet said what a replay says",
    "different": "NOT verified: the fleet said something else",
    "unsure": "could not be verified: what differs may come from before the beginning of the log",
    "nothing": "could not be verified: nothing to compare",
}


def told(first: Explained) -> Iterator[str]:
    """Yield the first difference, for people."""
    where = f"first {first.kind}: {first.topic}"
    if first.partition is not None:
        where += f" partition {first.partition} offset {first.offset}"
    yield f"{where}, id {first.id}" + (f", field {first.field.path}" if first.field else "")
    written, right = _shown(first)
    yield f"  written   {written}"
    yield f"  right     {right}"
    if first.due is not None:
        yield "  due to    {} partition {} offset {}".format(*first.due)


def _shown(first: Explained) -> tuple[str, str]:
    if first.field is not None:
        return _cut(repr(first.field.written)), _cut(repr(first.field.right))
    return _words(first.written), _words(first.right)


def _words(message: Message | None) -> str:
    return "nothing" if message is None else _cut(message.value.decode(errors="replace"))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _as_json(first: Explained) -> dict[str, Any]:
    told: dict[str, Any] = {
        "kind": first.kind,
        "topic": first.topic,
        "partition": first.partition,
        "offset": first.offset,
        "id": first.id,
        "field": None,
        "written": None if first.written is None else _value(first.written),
        "right": None if first.right is None else _value(first.right),
        "due": None,
    }
    if first.field is not None:
        written, right = (None if v is NOTHING else v for v in first.field[1:])
        told |= {"field": first.field.path, "written": written, "right": right}
    if first.due is not None:
        told["due"] = dict(zip(("topic", "partition", "offset"), first.due, strict=True))
    return told


def _value(message: Message) -> str:
    return message.value.decode(errors="replace")
