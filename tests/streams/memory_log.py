"""Kafka in memory for the owner of partitions: topics as lists, and what can go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from daom.codec import encode_json, encode_output
from daom.config import Config
from daom.errors import SourceError
from daom.fold import Fold
from daom.presets import cell_settings
from daom.replay import LogRecord
from daom.topics import Topics
from streams.metrics import WorkerMetrics
from streams.owner import Headers, Owner, Ports
from tests.daom.stories import MODEL, calm, story

TOPICS = Topics("t")
SETTINGS = cell_settings(Config())
VALUES = [encode_json(record) for record in story(calm(4), engines=("e1",))]
TICK_AFTER_S = 60.0
MAX_MESSAGE_BYTES = 2 * 2**20


class Message(NamedTuple):
    """What was sent, but for where it goes."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass
class Log:
    """Kafka as an owner sees it.

    Attributes:
        partitions: Of the telemetry topic.
        topics: Each partition's records; an output is in partition 0.
        headers: Of each message of a topic, in the order in which they arrived.
        acknowledged: Offsets that the owner has acknowledged.
        slow: What is sent to these topics arrives only with ``arrive``.
        broken: What is sent to these topics never arrives.
        reads: What was read: topic, partition, first offset.
        now_s: Monotonic seconds.
    """

    partitions: int = 1
    topics: dict[tuple[str, int], list[LogRecord]] = field(default_factory=dict)
    headers: dict[str, list[dict[str, bytes]]] = field(default_factory=dict)
    acknowledged: list[int] = field(default_factory=list)
    slow: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    reads: list[tuple[str, int, int | None]] = field(default_factory=list)
    now_s: float = 1_000.0
    _waiting: list[tuple[asyncio.Future[None], str, int, Message]] = field(default_factory=list)

    # What tests do to it

    def partition(self, topic: str, number: int = 0) -> list[LogRecord]:
        return self.topics.setdefault((topic, number), [])

    def write(self, *values: bytes | None, cell: str | None = MODEL, number: int = 0) -> None:
        """Append telemetry."""
        key = None if cell is None else cell.encode()
        for value in values:
            self._append(TOPICS.telemetry, number, Message(key, value, []))

    async def deliver(
        self, owner: Owner, start: int = 0, stop: int | None = None, number: int = 0
    ) -> None:
        """Hand over the telemetry from offset ``start`` to before ``stop``."""
        for record in list(self.partition(TOPICS.telemetry, number)):
            if start <= record.offset and (stop is None or record.offset < stop):
                await owner.take(number, record, self._acknowledger(record.offset))

    def _acknowledger(self, offset: int) -> Any:
        return lambda: self.acknowledged.append(offset)

    def arrive(self) -> None:
        """Let everything arrive that is under way."""
        waiting, self._waiting = self._waiting, []
        for arrived, topic, number, message in waiting:
            self._append(topic, number, message)
            arrived.set_result(None)

    def owner(self, metrics: WorkerMetrics | None = None) -> Owner:
        """A worker that starts."""
        return Owner(
            settings=SETTINGS,
            topics=TOPICS,
            partitions=self.partitions,
            ports=Ports(send=self.send, read=self.read, clock=lambda: self.now_s),
            metrics=metrics or WorkerMetrics(CollectorRegistry()),
            max_message_bytes=MAX_MESSAGE_BYTES,
            tick_after_s=TICK_AFTER_S,
        )

    # What an owner does to it

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Headers,
    ) -> asyncio.Future[None]:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        message = Message(key, value, headers)
        if topic in self.broken:
            arrived.set_exception(ConnectionError(f"{topic} is away"))
        elif topic in self.slow:
            self._waiting.append((arrived, topic, partition or 0, message))
        else:
            self._append(topic, partition or 0, message)
            arrived.set_result(None)
        return arrived

    async def read(
        self, topic: str, partition: int, start: int | None
    ) -> AsyncGenerator[LogRecord, None]:
        self.reads.append((topic, partition, start))
        kept = list(self.partition(topic, partition))
        if start is not None and kept and start < kept[0].offset:
            raise SourceError(f"{topic}/{partition} begins at offset {kept[0].offset}")
        for record in kept:
            if start is None or record.offset >= start:
                yield record

    def _append(self, topic: str, number: int, message: Message) -> None:
        kept = self.partition(topic, number)
        offset = kept[-1].offset + 1 if kept else 0
        kept.append(LogRecord(offset, message.key, message.value, None))
        self.headers.setdefault(topic, []).append(dict(message.headers))

    # What came of it

    def published(self) -> list[bytes]:
        """Every output, repeats and all."""
        topics = (
            TOPICS.verdicts,
            TOPICS.thresholds,
            TOPICS.alerts,
            TOPICS.suppressions,
            TOPICS.rca,
            TOPICS.audit,
        )
        return [record.value or b"" for topic in topics for record in self.partition(topic)]

    def said(self) -> list[bytes]:
        """Every output once, sorted; a repeat must be the same to the byte."""
        by_id: dict[bytes, bytes] = {}
        for value in self.published():
            identity = value.partition(b'"id":"')[2][:32]
            assert by_id.setdefault(identity, value) == value, "a repeat differs"
        return sorted(by_id.values())

    def saved(self, number: int = 0) -> list[bytes | None]:
        """Keys of the checkpoint topic, in the order in which they arrived."""
        return [record.key for record in self.partition(TOPICS.checkpoints, number)]


def folded(*values: bytes | None, cell: str = MODEL) -> list[bytes]:
    """What ``values`` say, sorted."""
    fold = Fold(SETTINGS, MAX_MESSAGE_BYTES)
    return sorted(encode_output(o) for value in values for o in fold.take(value, cell).outputs)


def run(story: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that must end; return what it returns."""
    return asyncio.run(asyncio.wait_for(story, 20.0))


async def a_moment() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)
