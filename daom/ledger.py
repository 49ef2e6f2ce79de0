"""What should have been said and what has been: two lists of messages, compared to the byte.

Consumers tell messages apart by their ids, so a repeat must be the same to the byte. A message is
kept as a few numbers, 53 bytes: digests of its id and of all that it says, its event time, and
where it comes from. To compare a million messages with what is due takes some 250 MB.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from daom.published import DEAD_LETTER_SCHEMA, Message

Kind = Literal["different", "missing", "beyond"]

_OURS: Final = frozenset(
    {"schema", "kind", "reason", "source_topic", "source_partition", "source_offset"}
    | {"source_bytes", "source_key"}
)
"""Headers that DAOM writes: others are of those who pass messages on."""

Indices = NDArray[np.intp]


class _Said(msgspec.Struct):
    """What tells an output apart."""

    id: str = ""
    event_time_s: float = math.nan
    cell: str = ""


_DECODER: Final = msgspec.json.Decoder(_Said)


class Named(NamedTuple):
    """What tells a message apart: its id, its event time (Unix seconds; NaN: none) and its cell."""

    id: str
    event_s: float
    cell: str


def named(message: Message) -> Named:
    """Return what tells ``message`` apart; a dead letter's id is its key, kind and reason."""
    headers = dict(message.headers)
    if headers.get("schema") == DEAD_LETTER_SCHEMA:
        parts = (message.key, headers.get("kind", b""), headers.get("reason", b""))
        letter = " ".join(part.decode(errors="replace") for part in parts)
        return Named(letter, math.nan, headers.get("source_key", b"").decode(errors="replace"))
    try:
        said = _DECODER.decode(message.value)
    except (msgspec.DecodeError, RecursionError):
        return Named("", math.nan, "")
    return Named(said.id, said.event_time_s, said.cell)


def id_digest(message: Message) -> int:
    """Return the digest of a message's id; without one it is told apart by all that it says."""
    return _digest(named(message).id.encode() or message.value)


@dataclass(slots=True)
class Rows:
    """Messages as numbers, in the order in which they were added.

    Attributes:
        ids, values, cells, keys: Digests: of the id, of all that it says, of its cell, of topic and
            key together.
        events_s: Event times, Unix seconds; NaN: none is known.
        partitions, offsets: Of what should be said, where the record lies that makes it due; of
            what has been said, where it lies itself.
        topics: Of the topics that messages belong to, the number in ``topic_names``.
    """

    topic_names: tuple[str, ...]
    ids: array[int] = field(default_factory=lambda: array("Q"))
    values: array[int] = field(default_factory=lambda: array("Q"))
    cells: array[int] = field(default_factory=lambda: array("Q"))
    keys: array[int] = field(default_factory=lambda: array("Q"))
    events_s: array[float] = field(default_factory=lambda: array("d"))
    partitions: array[int] = field(default_factory=lambda: array("I"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    topics: array[int] = field(default_factory=lambda: array("B"))

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, message: Message, partition: int, offset: int, time_s: float) -> None:
        """Add ``message``; ``time_s`` is for one that has no event time, Unix seconds."""
        name = named(message)
        self.ids.append(_digest(name.id.encode() or message.value))
        self.values.append(_digest(*_all_of(message)))
        self.cells.append(_digest(name.cell.encode()))
        self.keys.append(_digest(message.topic.encode(), message.key))
        self.events_s.append(time_s if math.isnan(name.event_s) else name.event_s)
        self.partitions.append(partition)
        self.offsets.append(offset)
        self.topics.append(self.topic_names.index(message.topic))

    def extend(self, more: Rows) -> None:
        """Add the rows of ``more``, of the same topics."""
        for name in _COLUMNS:
            getattr(self, name).extend(getattr(more, name))


_COLUMNS: Final = (
    "ids", "values", "cells", "keys", "events_s", "partitions", "offsets", "topics",
)  # fmt: skip


def _all_of(message: Message) -> Iterator[bytes]:
    yield from (message.topic.encode(), message.key, message.value)
    for name, value in sorted(message.headers):
        if name in _OURS:
            yield from (name.encode(), value)


def _digest(*parts: bytes) -> int:
    # The length of each part goes in: else ("a", "bc") would be ("ab", "c").
    hashed = hashlib.blake2b(digest_size=8)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return int.from_bytes(hashed.digest(), "little")


class Kept(NamedTuple):
    """What a topic still holds of all that was ever put there.

    Attributes:
        is_cut: Its log no longer begins with its first message.
        is_compacted: Messages within it are gone, of whose key there is a later one.
    """

    is_cut: bool = False
    is_compacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is compared.

    Attributes:
        ranges: Offsets of the source, by partition: the first, and the one before which it ends.
        said_before: The offset, by partition, before which the fleet promises to have said all;
            where it promises nothing, that of the newest that it has said.
        cut: Partitions whose log no longer begins with its first record.
        is_whole: All partitions were recomputed: what nothing makes due is beyond, whoever said it.
        kept: What each topic still holds, in the order of ``Rows.topic_names``.
    """

    ranges: Mapping[int, tuple[int, int]]
    said_before: Mapping[int, int]
    cut: Collection[int] = ()
    is_whole: bool = True
    kept: tuple[Kept, ...] = ()


class Difference(NamedTuple):
    """Rows that differ: of what is right, and of what was written; None: there is none.

    ``is_sure`` is whether it cannot come from what was before the beginning of a cut log.
    """

    kind: Kind
    right: int | None
    written: int | None
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of comparing.

    Attributes:
        same: Messages that are as they should be.
        repeats: What was said again, the same to the byte.
        counts: Messages that are not, by kind.
        unsure: How many of these may come from what was before the beginning of a cut log.
        first: The earliest by event time, of those that are sure if any is; None: there is none.
        not_yet: Messages that the fleet has not promised yet, and not said.
        gone: Messages that may have been said, and that their topic no longer holds.
    """

    same: int
    repeats: int
    counts: Mapping[Kind, int]
    unsure: int
    first: Difference | None
    not_yet: int
    gone: int


def compare(right: Rows, written: Rows, scope: Scope) -> Comparison:
    """Return whether ``written`` says what is ``right``, within ``scope``.

    ``right`` holds what all records of the partitions make due, also outside the range: so what was
    said beyond it is told from what is due elsewhere.
    """
    return _Comparing(_columns(right), _columns(written), scope).result()


class _Columns(NamedTuple):
    ids: NDArray[np.uint64]
    values: NDArray[np.uint64]
    cells: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    events_s: NDArray[np.float64]
    partitions: NDArray[np.uint32]
    offsets: NDArray[np.uint64]
    topics: NDArray[np.uint8]


def _columns(rows: Rows) -> _Columns:
    # Views, so that nothing is held twice; nothing may be added to the rows while they live.
    return _Columns(*(np.asarray(getattr(rows, name)) for name in _COLUMNS))


class _Found(NamedTuple):
    """Differences of one kind; -1: there is no such row."""

    kind: Kind
    right: Indices
    written: Indices
    events_s: NDArray[np.float64]
    is_sure: NDArray[np.bool_]


class _Comparing:
    def __init__(self, right: _Columns, written: _Columns, scope: Scope) -> None:
        self._right, self._written, self._scope = right, written, scope
        self._in_range = self._meant()
        order = np.argsort(right.ids, kind="stable")
        # A last one that equals none, so that every search ends at something.
        at = np.searchsorted(right.ids[order], written.ids)
        found = np.append(right.ids[order], np.uint64(0))[at] == written.ids
        self._is_due = found & (at < order.size)
        self._due = np.append(order, -1)[at]

    def result(self) -> Comparison:
        said = np.isin(self._right.ids, self._written.ids)
        lacking = self._in_range & ~said
        promised = self._right.offsets < self._bounds(self._said_before(said))
        gone, missing = self._divide_by_what_is_kept(np.flatnonzero(lacking & promised))
        due = np.flatnonzero(self._is_due)
        due = due[self._in_range[self._due[due]]]
        is_wrong = self._written.values[due] != self._right.values[self._due[due]]
        found = [
            self._found("different", self._due[due[is_wrong]], due[is_wrong]),
            self._found("missing", missing, np.full(missing.size, -1)),
            self._found_beyond(),
        ]
        right_said = int(np.count_nonzero(self._in_range & said))
        return Comparison(
            same=right_said - np.unique(self._due[due[is_wrong]]).size,
            repeats=self._repeats(due[~is_wrong]),
            counts={one.kind: one.right.size for one in found if one.right.size},
            unsure=sum(int(np.count_nonzero(~one.is_sure)) for one in found),
            first=_first(found),
            not_yet=int(np.count_nonzero(lacking & ~promised)),
            gone=gone.size,
        )

    def _repeats(self, alike: Indices) -> int:
        """Return how many of the written rows ``alike`` say once more what was said."""
        said = self._in_range & np.isin(self._right.ids, self._written.ids[alike])
        return alike.size - int(np.count_nonzero(said))

    def _said_before(self, said: NDArray[np.bool_]) -> dict[int, int]:
        """Return by partition before which offset all should have been said."""
        partitions, offsets = self._right.partitions, self._right.offsets
        before = dict(self._scope.said_before)
        for number in np.unique(partitions).tolist():
            # Without a promise: what was said newest shows how far the fleet had come at least.
            of_it = offsets[said & (partitions == number)]
            before.setdefault(number, int(of_it.max(initial=0)))
        return before

    def _meant(self) -> NDArray[np.bool_]:
        ranges = self._scope.ranges
        starts = self._bounds({number: start for number, (start, _) in ranges.items()})
        ends = self._bounds({number: end for number, (_, end) in ranges.items()})
        return (self._right.offsets >= starts) & (self._right.offsets < ends)

    def _bounds(self, offsets: Mapping[int, int]) -> NDArray[np.uint64]:
        """Return of each right row the offset that its partition has in ``offsets``, else 0."""
        count = max(offsets, default=0)
        if self._right.partitions.size:
            count = max(count, int(self._right.partitions.max()))
        table = np.zeros(count + 1, np.uint64)
        for number, offset in offsets.items():
            table[number] = offset
        return table[self._right.partitions]

    def _divide_by_what_is_kept(self, lacking: Indices) -> tuple[Indices, Indices]:
        """Return which of the right rows ``lacking`` may have been said, and which were not."""
        kept = self._scope.kept or (Kept(),) * 256
        topics = self._right.topics[lacking]
        is_cut = np.array([of.is_cut for of in kept])[topics]
        is_compacted = np.array([of.is_compacted for of in kept])[topics]
        if not (is_cut | is_compacted).any():
            return lacking[:0], lacking
        keys, group = np.unique(self._written.keys, return_inverse=True)
        first_s, last_s = np.full(keys.size + 1, np.inf), np.full(keys.size + 1, -np.inf)
        np.minimum.at(first_s, group, self._written.events_s)
        np.maximum.at(last_s, group, self._written.events_s)
        at = np.searchsorted(keys, self._right.keys[lacking])
        found = np.append(keys, np.uint64(0))[at] == self._right.keys[lacking]
        at[~found | (at >= keys.size)] = keys.size
        # Of a key that nothing is left of nobody knows which partition, and so since when.
        event_s = self._right.events_s[lacking]
        is_gone = (is_cut & (event_s <= first_s[at])) | (is_compacted & (event_s <= last_s[at]))
        return lacking[is_gone], lacking[~is_gone]

    def _found_beyond(self) -> _Found:
        beyond = np.flatnonzero(~self._is_due)
        if not self._scope.is_whole:
            beyond = beyond[np.isin(self._written.cells[beyond], self._right.cells)]
        if not self._in_range.all():
            within_s = self._right.events_s[self._in_range]
            event_s = self._written.events_s[beyond]
            low, high = within_s.min(initial=np.inf), within_s.max(initial=-np.inf)
            beyond = beyond[(event_s >= low) & (event_s <= high)]
        return self._found("beyond", np.full(beyond.size, -1), beyond)

    def _found(self, kind: Kind, right: Indices, written: Indices) -> _Found:
        if kind == "beyond":
            # Whose it is nobody knows: it is sure only where every log begins at its beginning.
            events_s = self._written.events_s[written]
            is_sure = np.full(written.size, not self._scope.cut)
        else:
            events_s = self._right.events_s[right]
            is_sure = ~np.isin(self._right.partitions[right], np.array([*self._scope.cut], int))
        return _Found(kind, right, written, events_s, is_sure)


def _first(found: list[_Found]) -> Difference | None:
    """Return the earliest difference, of those that are sure if any is."""
    best: tuple[tuple[bool, float], Difference] | None = None
    for one in found:
        if not one.right.size:
            continue
        at = int(np.lexsort((one.events_s, ~one.is_sure))[0])
        is_sure = bool(one.is_sure[at])
        right, written = int(one.right[at]), int(one.written[at])
        rank = (not is_sure, float(one.events_s[at]))
        if best is None or rank < best[0]:
            rows = (right if right >= 0 else None, written if written >= 0 else None)
            best = rank, Difference(one.kind, *rows, is_sure)
    return None if best is None else best[1]
