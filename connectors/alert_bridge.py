"""From the alert topic to every Alertmanager replica: read, keep the book, send what is due.

All decisions are the book's (``daom.alert_book``). The topic is read from its beginning at every
start, without a consumer group: a bridge has no state to lose, and several may run at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal, Protocol, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from connectors.alertmanager import AlertmanagerSink, AlertsRejected, Rejection
from connectors.kafka import describe_topics
from daom.alert_book import (
    DEFAULT_SETTINGS,
    AlertBatch,
    AlertBook,
    BookSettings,
    Posting,
    TopicValue,
    decode_batch,
)
from daom.errors import SinkError, SourceError

logger = logging.getLogger(__name__)

BATCH_ALERTS: Final = 64  # As Prometheus has it.
PASS_ALERTS: Final = 8 * BATCH_ALERTS  # Then the book is asked again, for it may have changed.
POLL_S: Final = 1.0
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 15.0
"""Retries of one outage start after the first and are never further apart than the last."""

LONGEST_REST_S: Final = 10.0
"""Timers do not see a clock that was set forward; this bounds how long that goes unnoticed."""

CHECK_EVERY_S: Final = 30.0
CONNECT_S: Final = 30.0
UNSUBSCRIBED_S: Final = 0.05
STALLED_POLLS: Final = 10
"""So many polls that bring nothing are an end too: compaction may have removed the last records."""


class AlertSource(Protocol):
    """Where the alert records come from."""

    def restore(self) -> AsyncIterator[AlertBatch]:
        """Yield everything up to the topic's end as it was at the start; wait where it must."""

    async def next(self, timeout_s: float) -> AlertBatch:
        """Return what came since, or an empty batch after ``timeout_s`` seconds without any.

        Where the topic had to be read again, the batch reaches to its end.
        """


Counted = Literal["restored", "sent", "failed", "rejected", "malformed"]
EventKind = Counted | Literal["unavailable", "available"]


@dataclass(frozen=True, slots=True)
class BridgeEvent:
    """Something that the bridge did or met, with how many alerts; ``words`` is the log line.

    ``replica`` is a url without credentials, or empty where it is about no replica.
    """

    kind: EventKind
    alerts: int
    replica: str
    words: str


@dataclass(slots=True)
class BridgeCounters:
    """What the bridge did since its start; an alert sent to two replicas counts twice."""

    restored: int = 0
    sent: int = 0
    failed: int = 0
    rejected: int = 0
    malformed: int = 0

    def count(self, event: BridgeEvent) -> None:
        """Add ``event``, if its kind is counted."""
        if hasattr(self, event.kind):
            setattr(self, event.kind, getattr(self, event.kind) + event.alerts)


async def run_bridge(
    source: AlertSource,
    sinks: Sequence[AlertmanagerSink],
    settings: BookSettings = DEFAULT_SETTINGS,
    *,
    clock: Callable[[], float],
    counters: BridgeCounters | None = None,
    on_event: Callable[[BridgeEvent], None] | None = None,
    first_retry_s: float = FIRST_RETRY_S,
) -> None:
    """Keep every replica of Alertmanager told, until cancelled.

    Nothing is sent before the topic is read to its end. Then each replica has its own loop, its
    own retries and its own record of deliveries: one that is down neither stops nor delays the
    others. Delivery is at least once. The caller closes ``source`` and ``sinks``.

    Args:
        source: The alert topic.
        sinks: The replicas; every one is sent every alert.
        settings: How often alerts are repeated.
        clock: Wall-clock time, Unix seconds.
        counters: Counted up as things happen, for others to export.
        on_event: Called for everything that happens, after it was logged and counted.
        first_retry_s: Wait before the first retry of an outage, seconds; it doubles from there.

    Raises:
        ValueError: If two sinks have one url.
    """
    urls = [sink.url for sink in sinks]
    book, news = AlertBook(urls, settings), {url: asyncio.Event() for url in urls}
    bridge = _Bridge(source, book, news, clock, counters or BridgeCounters(), on_event)
    await bridge.restore()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bridge.follow())
        for sink in sinks:
            tasks.create_task(bridge.feed(sink, first_retry_s))


@dataclass
class _Bridge:
    """The parts of ``run_bridge`` that share the book."""

    source: AlertSource
    book: AlertBook
    news: Mapping[str, asyncio.Event]
    clock: Callable[[], float]
    counters: BridgeCounters
    on_event: Callable[[BridgeEvent], None] | None

    async def restore(self) -> None:
        async for batch in self.source.restore():
            self._apply(batch)
        held = len(self.book.alerts)
        self._tell("restored", held, "", f"restored {held} alerts ({self.book.firing} firing)")

    async def follow(self) -> None:
        while True:
            if self._apply(await self.source.next(POLL_S)):
                for news in self.news.values():
                    news.set()

    def _apply(self, batch: AlertBatch) -> bool:
        now_s = self.clock()
        # A producer's clock that is ahead must not make a resolve repeat for ever.
        news = [self.book.apply(alert, min(time_s, now_s)) for alert, time_s in batch.alerts]
        if batch.malformed:
            words = (
                f"skipped {batch.malformed} malformed alerts of the topic, such as {batch.fault}"
            )
            self._tell("malformed", batch.malformed, "", words, logging.WARNING)
        return any(news)

    async def feed(self, sink: AlertmanagerSink, first_retry_s: float) -> None:
        """Send to one replica what is due there, for ever."""
        down, retries_s = False, _doubling(first_retry_s)
        while True:
            now_s = self.clock()
            postings = self.book.due(now_s, sink.url)[:PASS_ALERTS]
            if not postings:
                await self._rest(sink.url, now_s)
                continue
            failure = None
            while postings and failure is None:
                batch, postings = postings[:BATCH_ALERTS], postings[BATCH_ALERTS:]
                failure = await self._deliver(sink, batch, now_s)
            if failure is not None:
                if not down:
                    words = f"replica unavailable, retrying until it is back: {failure}"
                    self._tell("unavailable", 0, sink.url, words, logging.WARNING)
                down = True
                await asyncio.sleep(next(retries_s))
            elif down:
                self._tell("available", 0, sink.url, f"replica available again: {sink.url}")
                down, retries_s = False, _doubling(first_retry_s)

    async def _rest(self, replica: str, now_s: float) -> None:
        """Wait for the next repeat or for news, whichever comes first."""
        news = self.news[replica]
        news.clear()
        rest_s = min(self.book.next_due_s(now_s, replica) - now_s, LONGEST_REST_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await news.wait()

    async def _deliver(
        self, sink: AlertmanagerSink, postings: Sequence[Posting], now_s: float
    ) -> SinkError | None:
        """Send and record ``postings``; return why if the replica took none of them."""
        rejections: Sequence[Rejection] = ()
        try:
            await sink.send(postings)
        except AlertsRejected as error:
            rejections = error.rejections
        except SinkError as error:
            self._tell("failed", len(postings), sink.url, str(error), logging.DEBUG)
            return error
        rejected = [posting for posting, _ in rejections]
        delivered = [posting for posting in postings if posting not in rejected]
        self.book.rejected(rejected, now_s)
        self.book.sent(delivered, now_s)
        for posting, reason in rejections:
            words = f"{sink.url} rejected an alert: {dict(posting.alert.labels)}: {reason}"
            self._tell("rejected", 1, sink.url, words, logging.WARNING)
        if delivered:
            new = sum(not posting.repeat for posting in delivered)
            firing = sum(posting.alert.state == "firing" for posting in delivered)
            words = f"sent {len(delivered)} alerts ({firing} firing, {new} new) to {sink.url}"
            self._tell(
                "sent", len(delivered), sink.url, words, logging.INFO if new else logging.DEBUG
            )
        return None

    def _tell(
        self, kind: EventKind, alerts: int, replica: str, words: str, level: int = logging.INFO
    ) -> None:
        logger.log(level, "%s", words)
        event = BridgeEvent(kind, alerts, replica, words)
        self.counters.count(event)
        if self.on_event is not None:
            self.on_event(event)


def _doubling(first_s: float) -> Iterator[float]:
    wait_s = first_s
    while True:
        yield wait_s
        wait_s = min(2.0 * wait_s, LAST_RETRY_S)


# A refusal of what was good at the start passes, too: a broker may come up before its users.
_OUTAGES: Final = (KafkaError, SinkError, SourceError, OSError)


class KafkaAlertSource:
    """The alert topic on Kafka: all of it first, then what is appended.

    Reads at least once and commits nothing. A broker that is away is waited for, and afterwards
    the topic is read from its beginning again: the book ignores what it knows.
    """

    def __init__(
        self, topic: str, client: Mapping[str, object], *, first_retry_s: float = FIRST_RETRY_S
    ) -> None:
        """Describe the topic; nothing is opened before ``restore``.

        Args:
            topic: Name of the alert topic.
            client: Keyword arguments that all aiokafka clients share: ``bootstrap_servers``,
                ``security_protocol`` and the like.
            first_retry_s: Wait before the first retry of an outage, seconds; it doubles.
        """
        self._topic = topic
        self._client = client
        self._first_retry_s = first_retry_s
        self._retries_s = _doubling(first_retry_s)
        self._consumer: Any = None
        self._partitions = 0
        self._checked_s = 0.0
        self._down = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the broker."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            # Stopped while a fetch waits for its retry, aiokafka raises that one's cancellation
            # and stays half open; so the fetches end first.
            consumer.unsubscribe()
            await asyncio.sleep(UNSUBSCRIBED_S)
            await asyncio.gather(consumer.stop(), return_exceptions=True)

    async def restore(self) -> AsyncIterator[AlertBatch]:
        """Yield the topic from its beginning to its end, however long a broker is away.

        Raises:
            ConfigError: If aiokafka refuses the settings of the client.
        """
        while True:
            try:
                await self._connect()
                async for records in self._read_to_end():
                    yield _decoded(records)
            except _OUTAGES as error:
                await self._lose(error)
            else:
                break
        if self._down:
            logger.info("topic %s can be read again", self._topic)
        self._down, self._retries_s = False, _doubling(self._first_retry_s)

    async def next(self, timeout_s: float) -> AlertBatch:
        """Return what came since, or nothing after ``timeout_s``; later in an outage."""
        try:
            return _decoded(await self._poll(timeout_s))
        except _OUTAGES as error:
            await self._lose(error)
        return AlertBatch.joined([batch async for batch in self.restore()])

    async def _lose(self, error: Exception) -> None:
        """Say once that the topic cannot be read, and wait before the next try."""
        if not self._down:
            why = str(error) or type(error).__name__
            logger.warning("topic %s cannot be read, retrying: %s", self._topic, why)
        self._down = True
        await self.close()
        await asyncio.sleep(next(self._retries_s))

    async def _connect(self) -> None:
        """Put a consumer at the beginning of every partition."""
        await self.close()
        self._partitions = await self._count_partitions()
        self._consumer = AIOKafkaConsumer(
            **self._client,
            group_id=None,
            enable_auto_commit=False,
            # Jumping to where the log begins now would bring back states long superseded.
            auto_offset_reset="none",
        )
        async with asyncio.timeout(CONNECT_S):
            await self._consumer.start()
            self._consumer.assign([TopicPartition(self._topic, n) for n in range(self._partitions)])
            await self._consumer.seek_to_beginning()

    async def _read_to_end(self) -> AsyncIterator[Sequence[Any]]:
        """Yield the records up to where each partition ended at its first fetch.

        Fetches tell the end; some brokers answer a question for the end offset with too low a one.
        """
        consumer, ends, empty_polls = self._consumer, dict[Any, int](), 0
        unread = consumer.assignment()
        while unread and empty_polls < STALLED_POLLS:
            records = await self._poll(POLL_S)
            yield records
            for partition in unread - ends.keys():
                if (end := consumer.highwater(partition)) is not None:
                    ends[partition] = end
            unread = {p for p in unread if p not in ends or await consumer.position(p) < ends[p]}
            empty_polls = 0 if records else empty_polls + 1
            if unread and empty_polls:
                await self._check()
        if unread:
            logger.warning("topic %s: taken as read, before its end: %s", self._topic, unread)

    async def _poll(self, timeout_s: float) -> Sequence[Any]:
        if asyncio.get_running_loop().time() - self._checked_s > CHECK_EVERY_S:
            await self._check()
        polled = await self._consumer.getmany(timeout_ms=int(1000 * timeout_s))
        for partition in () if polled else self._consumer.assignment():
            end = self._consumer.highwater(partition)
            if end is not None and end < await self._consumer.position(partition):
                raise SourceError(f"partition {partition.partition} ends before what was read")
        return list(chain.from_iterable(polled.values()))

    async def _check(self) -> None:
        """Ask the broker: a consumer tells neither a lost broker nor a new partition."""
        partitions = await self._count_partitions()
        if partitions != self._partitions:
            raise SourceError(f"it has {partitions} partitions now, {self._partitions} before")

    async def _count_partitions(self) -> int:
        found = await describe_topics(self._client, [self._topic])
        if not found:
            raise SourceError("there is no such topic")
        self._checked_s = asyncio.get_running_loop().time()
        return found[0].partitions


def _decoded(records: Sequence[Any]) -> AlertBatch:
    return decode_batch(
        TopicValue(
            f"partition {record.partition}, offset {record.offset}",
            record.value,
            record.timestamp / 1000.0 if (record.timestamp or 0) > 0 else None,
        )
        for record in records
    )
