"""The player: a recording into the telemetry topic, at its own pace or faster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from connectors.recordings import Line, record_time_s
from daom.codec import decode, encode_json
from daom.errors import MalformedRecord, SinkRejected, SinkUnavailable
from daom.events import ChangeEvent, Record, Table, TelemetryBatch

_MAX_REQUEST_BYTES: Final = 16 * 2**20
_IN_FLIGHT: Final = 2_000


class Played(NamedTuple):
    """How far the player is."""

    records: int
    event_time_s: float


async def play(
    lines: Iterable[Line],
    client: dict[str, object],
    topic: str,
    *,
    speed: float | None,
    shift_s: float = 0.0,
    on_progress: Callable[[Played], None] = lambda _: None,
) -> int:
    """Send ``lines`` to ``topic`` under their cells' keys; return how many.

    Every record is stamped with the time at which it was logged, so that a replay of the topic sees
    what a replay of the recording would. A line that is no record is sent as it is: the worker
    dead-letters it. Delivery is at least once, in order.

    Args:
        lines: The recording.
        client: The aiokafka settings.
        topic: The telemetry topic.
        speed: Event seconds a real second; None is as fast as Kafka takes it.
        shift_s: Added to every time in every record.
        on_progress: Called after each record.

    Raises:
        SinkUnavailable: If the broker went away for longer than a message can wait.
        SinkRejected: If the broker refuses a record, such as one that is too long.
    """
    try:
        return await _play(lines, client, topic, speed, shift_s, on_progress)
    except KafkaError as error:
        kind = SinkUnavailable if error.retriable else SinkRejected
        raise kind(f"{topic}: {error}") from error


async def _play(
    lines: Iterable[Line],
    client: dict[str, object],
    topic: str,
    speed: float | None,
    shift_s: float,
    on_progress: Callable[[Played], None],
) -> int:
    producer = AIOKafkaProducer(
        **client, acks="all", linger_ms=5, max_request_size=_MAX_REQUEST_BYTES
    )
    await producer.start()
    sent = 0
    try:
        began: tuple[float, float] | None = None
        in_flight: list[asyncio.Future[object]] = []
        for line in lines:
            key, value, time_s = _message(line.value, shift_s)
            if time_s is not None and speed is not None:
                began = began or (time_s, time.monotonic())
                due_s = began[1] + (time_s - began[0]) / speed
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            stamp_ms = None if time_s is None else round(time_s * 1_000)
            in_flight.append(await producer.send(topic, value, key=key, timestamp_ms=stamp_ms))
            if len(in_flight) >= _IN_FLIGHT:
                await asyncio.gather(*in_flight)
                in_flight.clear()
            sent += 1
            on_progress(Played(sent, time_s or 0.0))
        await asyncio.gather(*in_flight)
    finally:
        await producer.stop()
    return sent


def _message(value: bytes, shift_s: float) -> tuple[bytes, bytes, float | None]:
    """Return key, value and log time of a line."""
    try:
        record = decode(value).record
    except MalformedRecord:
        return b"?", value, None
    if shift_s:
        record = shifted(record, shift_s)
        value = encode_json(record)
    time_s = record_time_s(record) if record.logged_s is None else record.logged_s
    return (record.source.cell or record.source.model).encode(), value, time_s


def shifted(record: Record, by_s: float) -> Record:
    """Return ``record`` as if everything in it had happened ``by_s`` later."""
    logged_s = None if record.logged_s is None else record.logged_s + by_s
    if isinstance(record, TelemetryBatch):
        return msgspec.structs.replace(
            record,
            start_s=record.start_s + by_s,
            end_s=record.end_s + by_s,
            requests=_shifted_rows(record.requests, by_s),
            steps=_shifted_rows(record.steps, by_s),
            logged_s=logged_s,
        )
    moved = msgspec.structs.replace(record, time_s=record.time_s + by_s, logged_s=logged_s)
    if isinstance(moved, ChangeEvent) and moved.until_s is not None:
        moved = msgspec.structs.replace(moved, until_s=moved.until_s + by_s)
    return moved


def _shifted_rows(table: Table, by_s: float) -> Table:
    return msgspec.structs.replace(table, end_s=table.end_s + by_s)
