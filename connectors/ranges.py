"""Ranges of a topic: which offsets of each partition are meant, by time or by offset.

By time Kafka's own index is asked. Some brokers answer it wrongly (the embedded one says 0 to any
time), so the answer is checked against the log, and records are chosen by their own stamps in any
case: an answer that is too low costs time, one that is too high is found out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Collection, Generator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from connectors.bootstrap import bootstrap_reasons
from connectors.kafka import Client, partitions_of, read_batches
from connectors.log_reader import READING
from daom.errors import SourceError
from daom.replay import LogRecord
from daom.span import Span, Times

_T = TypeVar("_T")


class Range(NamedTuple):
    """Offsets of a partition that hold all that is meant; ``end`` is not one of them."""

    partition: int
    start: int
    end: int


class Log(NamedTuple):
    """What a partition holds: offsets from ``start`` to before ``end``, stamped until ``newest_s``.

    ``newest_s`` is that of its last records; None where there are none.
    """

    start: int
    end: int
    newest_s: float | None


def log_record(record: ConsumerRecord) -> LogRecord:
    """Return what ``record`` says."""
    return LogRecord(record.offset, record.key, record.value, record.timestamp / 1_000.0)


class Ranges(NamedTuple):
    """What is meant of a topic.

    Attributes:
        ranges: Of each partition that something is meant of, in order.
        times: Between which the records are meant.
        newest_s: The stamp of the newest record of these partitions; None: there is none.
    """

    ranges: tuple[Range, ...]
    times: Times
    newest_s: float | None


async def topic_ranges(client: Client, topic: str, span: Span) -> Ranges:
    """Return what ``span`` means of ``topic``.

    A range by time holds every record that is stamped so, and may hold others.

    Raises:
        SourceError: If there is no such topic or partition, or offsets are not in the log.
        ConfigError: If the times leave no range.
        SinkUnavailable: If no broker answers.
    """
    numbers = await partitions_of(client, topic, span.offsets.keys() or None)
    logs = await _logs(client, topic, numbers)
    newest_s = max((log.newest_s for log in logs.values() if log.newest_s), default=None)
    times = span.times(newest_s or 0.0)
    starts: Mapping[int, int] = {}
    if times.since_s is not None:
        starts = await _first_since(client, topic, logs, times.since_s)
    ranges = []
    for number, log in logs.items():
        start, end = span.offsets.get(number, (None, None))
        _check_offset(topic, number, log, start)
        _check_offset(topic, number, log, end)
        first = starts.get(number, log.start) if start is None else start
        ranges.append(Range(number, first, log.end if end is None else end))
    return Ranges(tuple(ranges), times, newest_s)


def _check_offset(topic: str, number: int, log: Log, offset: int | None) -> None:
    if offset is None or log.start <= offset <= log.end:
        return
    why = "is no longer there" if offset < log.start else "is beyond its end"
    raise SourceError(
        f"{topic}/{number} holds offsets from {log.start} to before {log.end}; {offset} {why}"
    )


async def _logs(client: Client, topic: str, numbers: Collection[int]) -> dict[int, Log]:
    """Return what each partition holds. An end that a broker tells may be too low."""
    wanted = [TopicPartition(topic, number) for number in numbers]
    begin = await _ask(client, topic, "beginning_offsets", wanted)
    told = await _ask(client, topic, "end_offsets", wanted)
    logs = {w.partition: Log(begin[w], max(begin[w], told[w]), None) for w in wanted}
    last = {n: log.end - 1 for n, log in logs.items() if log.end > log.start}
    for record in await _read(client, topic, last):
        log = logs[record.partition]
        stamp_s = max(log.newest_s or 0.0, record.timestamp / 1_000.0)
        logs[record.partition] = Log(log.start, max(log.end, record.offset + 1), stamp_s)
    return logs


async def _first_since(
    client: Client, topic: str, logs: Mapping[int, Log], since_s: float
) -> dict[int, int]:
    """Return an offset of each partition before which nothing is stamped ``since_s`` or later."""
    asked = {TopicPartition(topic, number): math.ceil(since_s * 1_000.0) for number in logs}
    answers = await _ask(client, topic, "offsets_for_times", asked)
    found = {}
    for where in asked:
        log, answer = logs[where.partition], answers.get(where)
        nothing = answer is None or answer.offset < 0
        found[where.partition] = log.end if nothing else max(log.start, answer.offset)
    before = {n: at - 1 for n, at in found.items() if at > logs[n].start}
    for record in await _read(client, topic, before, {n: at + 1 for n, at in before.items()}):
        if record.timestamp / 1_000.0 >= since_s:
            # The broker is wrong: nothing is known but the stamps of the records themselves.
            found[record.partition] = logs[record.partition].start
    return found


async def _read(
    client: Client, topic: str, start: Mapping[int, int], end: Mapping[int, int] | None = None
) -> list[ConsumerRecord]:
    if not start:
        return []
    batches = read_batches(client, topic, start=start, end=end, partitions=start.keys())
    async with aclosing(batches):
        return [record async for batch in batches for record in batch]


async def _ask(client: Client, topic: str, question: str, about: Any) -> Any:
    consumer = AIOKafkaConsumer(**client, **READING)
    try:
        async with bootstrap_reasons(client):
            await consumer.start()
        return await getattr(consumer, question)(about) if about else {}
    except KafkaError as error:
        raise SourceError(f"topic {topic} cannot be read: {error}") from error
    finally:
        await consumer.stop()


def in_this_thread(items: AsyncGenerator[_T, None]) -> Generator[_T, None, None]:
    """Yield what ``items`` yields, for a caller that knows no event loop; close it, or read on."""
    with asyncio.Runner() as runner:
        try:
            while (item := runner.run(_next_of(items))) is not None:
                yield item
        finally:
            runner.run(_close(items))


async def _next_of(items: AsyncGenerator[_T, None]) -> _T | None:
    return await anext(items, None)


async def _close(items: AsyncGenerator[_T, None]) -> None:
    await items.aclose()
