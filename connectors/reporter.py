"""Records to Kafka from a thread of its own, for those who must never wait.

A probe inside an engine, an agent on a host: they hand over a function that says what has happened
lately, and it is called a few times a second from the thread. What Kafka does not take at once is
kept in a bounded buffer that forgets the oldest and counts it. Nothing that goes wrong here is ever
raised: it is counted, and said once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from daom.codec import encode_msgpack, schema_of
from daom.events import Record, TelemetryBatch

PERIOD_S: Final = 0.25
BUFFER_BYTES: Final = 32 * 2**20
FLUSH_WITHIN_S: Final = 1.8
"""A stop is to be over within two seconds."""

_ATTEMPT_MS: Final = 5_000
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_IN_FLIGHT: Final = 64
_SCHEMA_HEADER: Final = "schema"
_NOT_ALLOWED: Final = 29
"""Kafka's code for a topic that this user may not write to."""
_RIGHT_LACKED: Final = "; this user needs Write on the topic"

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class ReporterCounts:
    """What has become of the records, and of the errors.

    Attributes:
        sent: Records that Kafka has taken.
        dropped: Those forgotten because it did not take them in time,
        refused: and those that it will never take.
        errors: Exceptions that were caught, by type.
    """

    sent: int = 0
    dropped: int = 0
    refused: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def note(self, error: BaseException) -> bool:
        """Count ``error``; return whether it is the first of its type."""
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1
        return self.errors[name] == 1


@dataclass(frozen=True, slots=True)
class _Message:
    key: bytes
    value: bytes
    schema: bytes
    timestamp_ms: int


class Reporter:
    """Sends what ``collect`` returns to ``topic``.

    Args:
        client: The settings that all aiokafka clients share.
        topic: The telemetry topic.
        collect: Called every ``period_s``, and once more at the stop, in the reporter's thread.
        period_s: Time between calls.
        buffer_bytes: So much is kept while Kafka takes nothing.
    """

    def __init__(
        self,
        client: Mapping[str, object],
        topic: str,
        collect: Callable[[], Iterable[tuple[str, Record]]],
        *,
        period_s: float = PERIOD_S,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.counts = ReporterCounts()
        self._client = dict(client)
        self._topic = topic
        self._collect = collect
        self._period_s = period_s
        self._buffer_bytes = buffer_bytes
        self._waiting: deque[_Message] = deque()
        self._waiting_bytes = 0
        self._kept = 0
        self._stop_by_s = float("inf")
        self._thread = threading.Thread(target=self._run, name="daom-reporter", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._wake = asyncio.Event()
        self._fresh = asyncio.Event()

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def stop(self, within_s: float = FLUSH_WITHIN_S) -> None:
        """Send what is there, for as long as ``within_s``, and end; once is enough."""
        if not self._thread.ident or self._stopping.is_set():
            return
        self._stop_by_s = time.monotonic() + within_s
        self._stopping.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop may have ended just now.
                self._loop.call_soon_threadsafe(self._wake.set)
        self._thread.join(within_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._report())
        except Exception as error:  # noqa: BLE001 - nothing may reach who is served.
            self.note_error(error, "reporting has ended")

    async def _report(self) -> None:
        self._loop = asyncio.get_running_loop()
        sender = asyncio.create_task(self._send_all_there_is())
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._period_s)
            self._take()
        self._take()
        await asyncio.wait({sender}, timeout=max(0.0, self._stop_by_s - time.monotonic()))
        sender.cancel()
        await asyncio.wait({sender})
        counts = self.counts
        if self._kept > counts.sent:
            _LOGGER.warning(
                "daom: at the end Kafka had not confirmed %d of %d records "
                "(%d of them dropped, %d refused)",
                *(self._kept - counts.sent, self._kept, counts.dropped, counts.refused),
            )

    def _take(self) -> None:
        """Put what ``collect`` has into the buffer; forget the oldest if it is too much."""
        try:
            for key, record in self._collect():
                self._keep(_message(key, record))
        except Exception as error:  # noqa: BLE001 - see _run.
            self.note_error(error, "some telemetry could not be collected")
        self._fresh.set()

    def _keep(self, message: _Message) -> None:
        self._kept += 1
        self._waiting.append(message)
        self._waiting_bytes += len(message.value)
        while self._waiting_bytes > self._buffer_bytes and len(self._waiting) > 1:
            self._waiting_bytes -= len(self._waiting.popleft().value)
            self.counts.dropped += 1

    async def _send_all_there_is(self) -> None:
        """Send what is taken, until there is nothing more and nothing more will come."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                async with _producer(self._client) as producer:
                    pause_s = _FIRST_PAUSE_S
                    return await self._send_with(producer)
            except Exception as error:  # noqa: BLE001 - see _run.
                self.note_error(error, "what is to be sent waits")
            await asyncio.sleep(pause_s)
            pause_s = min(2.0 * pause_s, _LONGEST_PAUSE_S)

    async def _send_with(self, producer: Any) -> None:
        while self._waiting or not self._stopping.is_set():
            if not self._waiting:
                self._fresh.clear()
                await self._fresh.wait()
                continue
            messages = [self._waiting.popleft() for _ in range(min(len(self._waiting), _IN_FLIGHT))]
            self._waiting_bytes -= sum(len(message.value) for message in messages)
            unsent = await _send_all(producer, self._topic, messages)
            failed = [(m, e) for m, e in zip(messages, unsent, strict=True) if e is not None]
            self.counts.sent += len(messages) - len(failed)
            again = [message for message, error in failed if _is_passing(error)]
            self.counts.refused += len(failed) - len(again)
            # Older than all that wait: they go back to the front, and are the first to be dropped.
            for message in reversed(again):
                self._waiting.appendleft(message)
                self._waiting_bytes += len(message.value)
            for _, error in failed:
                self.note_error(error, f"{self._topic} at {self._client.get('bootstrap_servers')}")
            if again:
                await asyncio.sleep(_FIRST_PAUSE_S)

    def note_error(self, error: BaseException, what: str) -> None:
        """Count ``error``; log the first of its type, and ``what`` became of it."""
        if self.counts.note(error):
            _LOGGER.warning(
                "daom: %s: %s: %s%s (said once, counted from now on)",
                what,
                type(error).__name__,
                error,
                _RIGHT_LACKED if getattr(error, "errno", None) == _NOT_ALLOWED else "",
            )


def _message(key: str, record: Record) -> _Message:
    end_s = record.end_s if isinstance(record, TelemetryBatch) else record.time_s
    # Kafka refuses stamps far in the future, and with one record all that were sent with it.
    stamp_s = end_s if record.logged_s is None else record.logged_s
    return _Message(
        key=key.encode(),
        value=encode_msgpack(record),
        schema=schema_of(record).encode(),
        timestamp_ms=round(1_000 * stamp_s),
    )


@contextlib.asynccontextmanager
async def _producer(client: Mapping[str, object]) -> Any:
    # Imported by the thread: an engine that starts need not wait for it.
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415

    from connectors.bootstrap import bootstrap_reasons  # noqa: PLC0415

    producer = AIOKafkaProducer(
        **client,
        acks="all",
        linger_ms=5,
        request_timeout_ms=_ATTEMPT_MS,
        max_request_size=BUFFER_BYTES,
    )
    try:
        async with bootstrap_reasons(client):
            await producer.start()
        yield producer
    finally:
        # A broker that hangs would keep it waiting for what will not come.
        with contextlib.suppress(Exception):
            await asyncio.wait_for(producer.stop(), 1.0)


async def _send_all(
    producer: Any, topic: str, messages: list[_Message]
) -> list[BaseException | None]:
    """Return what kept each message from arriving; None if it did."""
    sending = [
        producer.send_and_wait(
            topic,
            message.value,
            key=message.key,
            timestamp_ms=message.timestamp_ms,
            headers=[(_SCHEMA_HEADER, message.schema)],
        )
        for message in messages
    ]
    results = await asyncio.gather(*sending, return_exceptions=True)
    return [result if isinstance(result, BaseException) else None for result in results]


def _is_passing(error: BaseException | None) -> bool:
    """Return whether sending again may help."""
    return bool(getattr(error, "retriable", False)) or isinstance(error, OSError | TimeoutError)
