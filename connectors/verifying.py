"""What a fleet wrote and what it should have written: both read from Kafka, neither changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from connectors.kafka import Client, read_batches
from connectors.recordings import record_time_s
from connectors.replaying import Chunk
from connectors.sources import Done, TopicPart
from daom.config import Config
from daom.differing import Field, first_field
from daom.errors import SourceError
from daom.fold import Fold, Folded
from daom.ledger import Difference, Kept, Kind, Rows, id_digest, named
from daom.presets import cell_settings
from daom.published import Message, published
from daom.replay import LogRecord
from daom.topics import Topics

_CHUNK_RECORDS: Final = 1_000
_CHUNK_S: Final = 0.2


def message_of(record: ConsumerRecord) -> Message:
    """Return what a record of an output topic says."""
    headers = tuple((name, value or b"") for name, value in record.headers)
    return Message(record.topic, record.key or b"", record.value or b"", headers)


class Written:
    """What the workers have put on the output topics, as far as it has been read.

    Attributes:
        rows: One for each message, also for a repeat; where each lies.
    """

    def __init__(self, client: Client, topics: Topics) -> None:
        self._client = client
        self._names = topics.said
        self._next: dict[str, dict[int, int]] = {name: {} for name in self._names}
        self._cut: set[str] = set()
        self._compacted: set[str] = set()
        self.rows = Rows(self._names)

    def update(self) -> None:
        """Read on from where it was last to the present end.

        Raises:
            SourceError: If a topic is missing or cannot be read; reading on is safe.
            SinkUnavailable: If no broker answers.
        """
        for name in self._names:
            asyncio.run(self._read(name))

    async def _read(self, name: str) -> None:
        places = self._next[name]
        batches = read_batches(self._client, name, start=dict(places))
        async with aclosing(batches):
            async for batch in batches:
                for record in batch:
                    self._note(name, record, places)

    def _note(self, name: str, record: ConsumerRecord, places: dict[int, int]) -> None:
        # Offsets follow one another: what is not there any more was deleted or compacted away.
        if record.partition not in places:
            if record.offset > 0:
                self._cut.add(name)
        elif record.offset > places[record.partition]:
            self._compacted.add(name)
        places[record.partition] = record.offset + 1
        stamp_s = record.timestamp / 1_000.0
        self.rows.add(message_of(record), record.partition, record.offset, stamp_s)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """What each topic still holds, as ``Scope`` wants it."""
        return tuple(Kept(name in self._cut, name in self._compacted) for name in self._names)


class Step(NamedTuple):
    """A record of the source, folded, and what a worker publishes of it."""

    record: LogRecord
    folded: Folded
    messages: tuple[Message, ...]


def published_of(
    config: Config, part: TopicPart, done: Done | None = None
) -> Generator[Step, None, None]:
    """Yield of each record of ``part``, in a fold of its own, what a worker publishes."""
    fold = Fold(cell_settings(config), config.worker.max_message_bytes, part.partition)
    topics = Topics(config.kafka.topic_prefix)
    with closing(part.log(done)) as records:
        for record in records:
            folded = fold.take(record.value, record.cell, record.timestamp_s)
            messages = published(topics, part.topic, part.partition, record, folded)
            yield Step(record, folded, tuple(messages))


@dataclass(slots=True, kw_only=True)
class Owed(Chunk):
    """Some records of a part, folded.

    Attributes:
        rows: What they make due.
        meant: Offsets of the range so far: the first, and the one before which it ends.
    """

    rows: Rows
    meant: tuple[int, int] | None = None


def owed(
    meant: Mapping[int, TopicPart], config: Config, part: TopicPart
) -> Generator[Owed, None, None]:
    """Yield what the records of ``part`` make due, and which of its offsets are ``meant``.

    A range by time begins and ends once: with the first record that is stamped so or later.
    """
    names = Topics(config.kafka.topic_prefix).said
    done, asked = Done(), _Asked(meant[part.partition])
    chunk, read, began_s = Owed(rows=Rows(names)), 0, time.monotonic()
    event_s: float | None = None
    for record, folded, messages in published_of(config, part, done):
        asked.take(record)
        for message in messages:
            stamp_s = record.timestamp_s or 0.0
            chunk.rows.add(message, part.partition, record.offset, stamp_s)
        if folded.record is not None:
            chunk.records += 1
            event_s = max(event_s or 0.0, record_time_s(folded.record))
        read += 1
        if read >= _CHUNK_RECORDS or time.monotonic() - began_s > _CHUNK_S:
            chunk.done, chunk.event_s, chunk.meant = done.amount, event_s, asked.offsets
            yield chunk
            chunk, read, began_s = Owed(rows=Rows(names)), 0, time.monotonic()
    chunk.done, chunk.event_s, chunk.meant = done.amount, event_s, asked.offsets
    yield chunk


class _Asked:
    """Which offsets of a partition are meant, found out while reading it."""

    def __init__(self, part: TopicPart) -> None:
        self._part = part
        self._latest_s = 0.0
        self.offsets: tuple[int, int] | None = None

    def take(self, record: LogRecord) -> None:
        since_s, until_s = self._part.times
        self._latest_s = max(self._latest_s, record.timestamp_s or 0.0)
        if until_s is not None and self._latest_s >= until_s:
            return
        if since_s is not None and self._latest_s < since_s:
            return
        # By time its offsets are those that a broker told, which some tell wrongly.
        by_offset = since_s is None and until_s is None
        if by_offset and not self._part.start <= record.offset < self._part.end:
            return
        first = record.offset if self.offsets is None else self.offsets[0]
        self.offsets = first, record.offset + 1


@dataclass(frozen=True, slots=True)
class Explained:
    """A difference, told.

    Attributes:
        topic: Where it is, or should be,
        partition: and in which partition,
        offset: and at which offset of it; None: nowhere.
        id: Of the message.
        field: What of it differs; None: all of it is missing, or beyond.
        due: Topic, partition and offset of the record that makes it due; None: none does.
        written, right: The whole messages.
    """

    kind: Kind
    topic: str
    partition: int | None
    offset: int | None
    id: str
    field: Field | None
    due: tuple[str, int, int] | None
    written: Message | None
    right: Message | None


def explain(
    config: Config, parts: Mapping[int, TopicPart], right: Rows, written: Rows, found: Difference
) -> Explained:
    """Return ``found`` in full: its bytes are read, and made, once more.

    Args:
        config: How it is judged, and where Kafka is.
        parts: The partitions of the source, each from its beginning, by number.
        right: What should be said,
        written: and what was said, as ``found`` was found in them.
        found: The difference.

    Raises:
        SourceError: If the topics have changed meanwhile.
        SinkUnavailable: If no broker answers.
    """
    is_message, should_be, place, due = None, None, None, None
    if found.written is not None:
        row = found.written
        topic = written.topic_names[written.topics[row]]
        place = written.partitions[row], written.offsets[row]
        is_message = _message_at(config.kafka.client(), topic, *place)
    if found.right is not None:
        part = parts[right.partitions[found.right]]
        due = part.topic, part.partition, right.offsets[found.right]
        should_be = _message_due(config, part, due[2], right.ids[found.right])
    told = is_message or should_be
    assert told is not None, "a difference is of something"
    differs = first_field(is_message, should_be) if is_message and should_be else None
    partition, offset = place or (None, None)
    return Explained(
        kind=found.kind,
        topic=told.topic,
        partition=partition,
        offset=offset,
        id=named(told).id,
        field=differs,
        due=due,
        written=is_message,
        right=should_be,
    )


def _message_at(client: Client, topic: str, partition: int, offset: int) -> Message:
    async def read() -> Message:
        batches = read_batches(
            client,
            topic,
            start={partition: offset},
            end={partition: offset + 1},
            partitions=[partition],
        )
        async with aclosing(batches):
            async for batch in batches:
                return message_of(batch[0])
        raise SourceError(f"{topic}/{partition} holds nothing at offset {offset} any more")

    return asyncio.run(read())


def _message_due(config: Config, part: TopicPart, offset: int, digest: int) -> Message:
    with closing(published_of(config, part)) as steps:
        for record, _, messages in steps:
            if record.offset == offset:
                return next(m for m in messages if id_digest(m) == digest)
    raise SourceError(f"{part.name} holds nothing at offset {offset} any more")
