"""The owner of some partitions: loads them, folds their records, publishes, saves.

It knows no Faust: what it needs of Kafka comes in as ports. What is promised:

* A record is acknowledged only when a checkpoint covers it, and a checkpoint is written only when
  every output before it has arrived. So a crash repeats outputs (same ids, same bytes) and loses
  none.
* A record that cannot be used is a dead letter with its reason, and the stream goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from daom.cell import CellSettings
from daom.codec import encode_json, schema_of
from daom.errors import CheckpointError, SinkUnavailable, SourceError
from daom.events import Source, Tick
from daom.fold import Fold
from daom.published import published
from daom.replay import LogRecord
from daom.topics import Topics
from streams.checkpoint import (
    MARKER_KEY,
    Checkpoint,
    Marker,
    decode_checkpoint,
    decode_marker,
    encode_marker,
)
from streams.metrics import WorkerMetrics
from streams.partition import PartitionFold
from streams.watch import Standing

_LOGGER: Final = logging.getLogger(__name__)

_MAX_IN_FLIGHT: Final = 10_000

Headers = list[tuple[str, bytes]]


class Send(Protocol):
    """Hands a message to the producer; what it returns is done once the message has arrived."""

    async def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Headers,
    ) -> Awaitable[object]:
        """Raise only if the producer cannot take it."""


class Read(Protocol):
    """Reads one partition of a topic from ``start`` (None: its beginning) to its present end."""

    def __call__(
        self, topic: str, partition: int, start: int | None
    ) -> AsyncGenerator[LogRecord, None]:
        """Raise SourceError if the log no longer holds ``start``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the owner needs of the world. ``clock`` is monotonic seconds."""

    send: Send
    read: Read
    clock: Callable[[], float]


@dataclass(slots=True)
class _Held:
    """One loaded partition, and the acknowledgements that its next checkpoint will release.

    Attributes:
        saved: The position that checkpoints cover.
    """

    fold: PartitionFold
    saved: int
    acknowledge: list[Callable[[], None]] = field(default_factory=list)


class Owner:
    """Folds the records of the partitions that it is given.

    Args:
        settings: How cells are judged.
        topics: Names of the topics.
        partitions: Partitions of the telemetry topic.
        ports: Kafka and time.
        metrics: Counters to keep.
        max_message_bytes: Longer records are dead letters.
        tick_after_s: Real time without a record of a cell after which a Tick is appended for it.
    """

    def __init__(
        self,
        *,
        settings: CellSettings,
        topics: Topics,
        partitions: int,
        ports: Ports,
        metrics: WorkerMetrics,
        max_message_bytes: int,
        tick_after_s: float,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._partitions = partitions
        self._ports = ports
        self._metrics = metrics
        self._max_message_bytes = max_message_bytes
        self._tick_after_s = tick_after_s
        self._held: dict[int, _Held] = {}
        self._in_flight: list[Awaitable[object]] = []
        self._failure: BaseException | None = None
        # One thing at a time: a checkpoint between two outputs of a record would lose the second.
        self._turn = asyncio.Lock()

    # Partitions come and go

    async def own(self, partitions: Iterable[int]) -> None:
        """Own exactly ``partitions`` from now on: forget the others, load the new ones."""
        wanted = set(partitions)
        async with self._turn:
            for number in self._held.keys() - wanted:
                del self._held[number]
            for number in sorted(wanted):
                await self._hold(number)

    async def _hold(self, number: int) -> _Held:
        held = self._held.get(number)
        if held is None:
            fold = await self._load(number)
            held = self._held[number] = _Held(fold, fold.position)
        return held

    def standing(self, number: int) -> Standing | None:
        """Return how far partition ``number`` has come; None while it is not loaded.

        For a watch in another thread: it takes no turn, since whoever has it may hang.
        """
        held = self._held.get(number)
        if held is None:
            return None
        states = [cell.state for cell in list(held.fold.fold.cells.values())]
        times_s = [state.clock.now_s for state in states if state.clock.now_s is not None]
        return Standing(
            position=held.fold.position,
            saved=held.saved,
            event_s=max(times_s, default=None),
            cells=len(states),
            engines=sum(len(state.engines) for state in states),
        )

    async def _load(self, number: int) -> PartitionFold:
        fold = PartitionFold(
            number, Fold(self._settings, self._max_message_bytes, number), 0, self._partitions
        )
        marker, saved = Marker(offset=0, partitions=self._partitions, cells={}), {}
        async with aclosing(self._ports.read(self._topics.checkpoints, number, None)) as records:
            async for record in records:
                if record.key == MARKER_KEY and record.value is not None:
                    marker = decode_marker(record.value)
                elif record.key is not None and record.value is not None:
                    saved[record.key] = record.value
        if marker.partitions != self._partitions:
            raise CheckpointError(
                f"{self._topics.telemetry} has {self._partitions} partitions, but partition "
                f"{number} was saved when it had {marker.partitions}, and cells have moved since. "
                "Let the workers drain it, then go on with new topics: another kafka.topic_prefix"
            )
        checkpoints = [self._decode(key, value) for key, value in saved.items()]
        fold.restore(marker, checkpoints, self._ports.clock())
        _LOGGER.info(
            "partition %d: goes on at offset %d with %d cells", number, fold.position, len(saved)
        )
        return fold

    def _decode(self, key: bytes, value: bytes) -> Checkpoint:
        try:
            return decode_checkpoint(value, self._settings)
        except CheckpointError as error:
            raise CheckpointError(f"cell {key.decode(errors='replace')}: {error}") from error

    # Records come in

    async def take(self, number: int, record: LogRecord, acknowledge: Callable[[], None]) -> None:
        """Fold one record of partition ``number`` in, and publish what it made due."""
        async with self._turn:
            held = await self._hold(number)
            if record.offset > held.fold.position:
                await self._fill_gap(held.fold, record.offset)
            await self._fold(held.fold, record)
            held.acknowledge.append(acknowledge)

    async def _fill_gap(self, fold: PartitionFold, until: int) -> None:
        """Read what lies between the fold's position and ``until`` from the log itself."""
        try:
            await self._refold(fold, fold.position, until)
        except SourceError as error:
            first = fold.position
            await self._refold(fold, None, until)
            if fold.position > first:
                _LOGGER.warning("partition %d: from offset %d: %s", fold.number, first, error)

    async def _refold(self, fold: PartitionFold, start: int | None, until: int) -> None:
        telemetry = self._ports.read(self._topics.telemetry, fold.number, start)
        async with aclosing(telemetry) as records:
            async for record in records:
                if record.offset >= until:
                    return
                await self._fold(fold, record)

    async def _fold(self, fold: PartitionFold, record: LogRecord) -> None:
        folded = fold.take(record, self._ports.clock())
        if folded is None:
            return
        self._metrics.record(folded)
        telemetry = self._topics.telemetry
        for message in published(self._topics, telemetry, fold.number, record, folded):
            await self._send(message.topic, message.key, message.value, None, list(message.headers))

    async def _send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Headers,
    ) -> None:
        with self._unless_failed():
            self._in_flight.append(await self._ports.send(topic, key, value, partition, headers))
        if len(self._in_flight) >= _MAX_IN_FLIGHT:
            await self._arrive()

    async def _arrive(self) -> None:
        """Wait until everything sent has arrived."""
        with self._unless_failed():
            await asyncio.gather(*self._in_flight)
        self._in_flight.clear()

    @contextmanager
    def _unless_failed(self) -> Iterator[None]:
        """Refuse after a failure, and remember one: then nothing is ever sent or saved again."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise

    # State goes out

    def give_up(self, error: BaseException) -> None:
        """Save nothing from now on: ``error`` leaves the operator to decide."""
        self._failure = self._failure or error

    async def save(self, partitions: Sequence[int] | None = None) -> None:
        """Checkpoint the cells that have moved, of all partitions or of some; then acknowledge."""
        async with self._turn:
            for number in sorted(self._held) if partitions is None else partitions:
                held = self._held.get(number)
                if held is not None and held.acknowledge:
                    await self._save(held)

    async def _save(self, held: _Held) -> None:
        number, topic = held.fold.number, self._topics.checkpoints
        await self._arrive()
        for cell, value in held.fold.unsaved(self._settings):
            await self._send(topic, cell.encode(), value, number, [("schema", b"Checkpoint/1")])
        await self._arrive()
        marker = encode_marker(held.fold.marker())
        await self._send(topic, MARKER_KEY, marker, number, [("schema", b"Marker/1")])
        await self._arrive()
        held.fold.saved()
        held.saved = held.fold.position
        for release in held.acknowledge:
            release()
        held.acknowledge.clear()
        self._metrics.saved(held.fold)

    async def tick(self) -> None:
        """Append a Tick for every cell that has been silent for too long, by real time."""
        async with self._turn:
            for held in self._held.values():
                now_s = self._ports.clock()
                silent = {
                    name: now_s - known.heard_s
                    for name, known in held.fold.progress.items()
                    if now_s - known.heard_s >= self._tick_after_s
                }
                if silent and await self._has_read_all(held.fold):
                    for name, silent_s in silent.items():
                        await self._tick(held.fold, name, silent_s)

    async def _has_read_all(self, fold: PartitionFold) -> bool:
        """Return whether the log holds no more: a broker that is away, or a lag, is no silence."""
        records = self._ports.read(self._topics.telemetry, fold.number, fold.position)
        try:
            async with aclosing(records):
                async for _ in records:
                    return False
        except (SourceError, SinkUnavailable):
            return False
        return True

    async def _tick(self, fold: PartitionFold, name: str, silent_s: float) -> None:
        cell = fold.fold.cells[name]
        event_s = cell.state.clock.now_s
        if event_s is None:
            return
        fold.progress[name].heard_s += silent_s
        tick = Tick(source=Source(model=cell.model), time_s=event_s + silent_s)
        value, headers = encode_json(tick), [("schema", schema_of(tick).encode())]
        await self._send(self._topics.telemetry, name.encode(), value, fold.number, headers)
