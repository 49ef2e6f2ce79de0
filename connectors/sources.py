"""What SOURCE means to a command: a recording, a directory of them, or a topic.

A source has parts, each of which is one log and needs a fold of its own: a partition of a topic,
or a whole recording or directory. It is only read: no consumer group is joined, nothing is
committed, and reading it again reads the same.
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import ExitStack, aclosing, closing
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal, Protocol, Self

import msgspec

from connectors.kafka import Client, read_batches
from connectors.ranges import in_this_thread, log_record, topic_ranges
from connectors.recordings import Line, Position, read_lines, record_time_s
from daom.codec import decode
from daom.errors import ConfigError, MalformedRecord, SourceError
from daom.logged import read_line
from daom.replay import LogRecord, Sourced
from daom.span import Span, Times

TOPIC: Final = "topic:"
SOURCE_WORDS: Final = (
    "a recording (.jsonl, .gz, .zst; - is standard input), a directory of them, or topic:NAME"
)
RECORDING_NAMES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")

_STDIN: Final = "-"
_LATE_RECORDS: Final = 1_000
"""After so many in a row that are stamped at or after its end, a range by time has ended: clocks
of producers differ, so the first of them says little."""


@dataclass(slots=True)
class Done:
    """How much of a part has been read: records of a topic, bytes of a recording."""

    amount: int = 0


class Part(Protocol):
    """One log.

    Attributes:
        name: What a person calls it.
        size: How much it holds, in ``unit``; 0: nobody knows.
        partition: Of its topic; None: it is of no topic.
    """

    @property
    def name(self) -> str: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def size(self) -> int: ...
    @property
    def unit(self) -> Literal["records", "bytes"]: ...

    def records(self, done: Done | None = None) -> Generator[Sourced, None, None]:
        """Yield what it holds, in log order, and keep ``done`` at how much has been read.

        Raises:
            SourceError: If it cannot be read any further.
            SinkUnavailable: If no broker answers.
        """

    def using(self, client: Client) -> Self:
        """Return the same part, read through ``client``: a TLS context cannot change process."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a command reads.

    Attributes:
        name: As it was asked for.
        parts: Its logs, in the order of partitions.
        newest_s: When the log took its newest record, Unix seconds; None: nobody has looked.
    """

    name: str
    parts: tuple[Part, ...]
    newest_s: float | None = None


@dataclass(frozen=True, slots=True)
class TopicPart:
    """A range of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    times: Times
    client: Client

    unit: Literal["records"] = "records"

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}/{self.partition}"

    @property
    def size(self) -> int:
        """Offsets in the range."""
        return self.end - self.start

    def using(self, client: Client) -> Self:
        """Return the same part, read through ``client``."""
        return replace(self, client=client)

    def records(self, done: Done | None = None) -> Generator[Sourced, None, None]:
        """Yield its records, as ``Part`` says."""
        with closing(self.log(done)) as found:
            for record in found:
                yield Sourced.of_log(self.topic, self.partition, record)

    def log(self, done: Done | None = None) -> Generator[LogRecord, None, None]:
        """Yield its records as the log has them, else as ``records`` does."""
        if self.size <= 0:
            return
        done, chosen = done or Done(), _Chosen(self.times)
        with closing(in_this_thread(self._batches())) as batches:
            for record in (record for batch in batches for record in batch):
                done.amount = record.offset + 1 - self.start
                if chosen.has(record.timestamp_s or 0.0):
                    yield record
                if chosen.ended:
                    break
        done.amount = self.size

    async def _batches(self) -> AsyncGenerator[list[LogRecord], None]:
        batches = read_batches(
            self.client,
            self.topic,
            start={self.partition: self.start},
            end={self.partition: self.end},
            partitions=[self.partition],
        )
        async with aclosing(batches):
            async for batch in batches:
                yield [log_record(record) for record in batch]


@dataclass(frozen=True, slots=True)
class FilePart:
    """Recordings, one after the other as one log."""

    name: str
    paths: tuple[str, ...]
    times: Times

    unit: Literal["bytes"] = "bytes"
    partition: None = None

    @property
    def size(self) -> int:
        """Bytes of all files; 0 of a pipe, or where one is missing."""
        try:
            return sum(0 if path == _STDIN else Path(path).stat().st_size for path in self.paths)
        except OSError:
            return 0

    def using(self, client: Client) -> Self:  # noqa: ARG002 - files need none.
        """Return itself."""
        return self

    def records(self, done: Done | None = None) -> Generator[Sourced, None, None]:
        """Yield its lines, as ``Part`` says.

        Raises:
            SourceError: Also if a recording ends in the middle of a line; every whole one has been
                yielded.
        """
        done = done or Done()
        chosen, time_s = _Chosen(self.times), 0.0
        for sourced in self._lines(done):
            if chosen.chooses:
                time_s = _log_time_s(sourced) or time_s
                if not chosen.has(time_s):
                    if chosen.ended:
                        return
                    continue
            yield sourced

    def _lines(self, done: Done) -> Iterator[Sourced]:
        before = 0
        for path in self.paths:
            position = Position()
            for line in _whole(path, read_lines(path, position=position)):
                yield read_line(f"{path}:{line.number}", line.value)
                done.amount = before + position.read_bytes()
            before += Path(path).stat().st_size if path != _STDIN else 0


def open_source(
    source: str, client: Client, default_topic: str, span: Span | None = None
) -> Source:
    """Return what ``source`` means, and of it what ``span`` does (None: all).

    Args:
        source: A recording, a directory of recordings, ``-``, or ``topic:NAME``.
        client: The aiokafka settings; unused unless it is a topic.
        default_topic: What ``topic:`` means.
        span: Times, or offsets of a topic.

    Raises:
        SourceError: If there is no such thing, or offsets are not in the log.
        ConfigError: If ``span`` says nothing of such a source, or leaves nothing.
        SinkUnavailable: If no broker answers.
    """
    span = span or Span()
    if source.startswith(TOPIC):
        topic = source.removeprefix(TOPIC) or default_topic
        found = asyncio.run(topic_ranges(client, topic, span))
        parts = (TopicPart(topic, *part, found.times, client) for part in found.ranges)
        return Source(source, tuple(parts), found.newest_s)
    if span.offsets:
        raise ConfigError(f"{source}: a recording has no offsets; use --since and --until")
    part = FilePart(source, _paths(source), Times())
    if span.needs_newest and source == _STDIN:
        raise ConfigError(
            "standard input cannot be read twice, as a duration back from its newest record needs: "
            "give --since and --until as times"
        )
    newest_s = _newest_s(part) if span.needs_newest else None
    return Source(source, (replace(part, times=span.times(newest_s or 0.0)),), newest_s)


def in_log_order(
    source: Source, on_read: Callable[[int, int], None] = lambda _, __: None
) -> Generator[Sourced, None, None]:
    """Yield the records of all parts in the order in which the log took them.

    A record stamped earlier than one before it in its part counts as that one; where parts tie, the
    first comes first. So it is the order of ``connectors.replaying``.

    Args:
        source: What to read.
        on_read: Told of each record which part it is of, by number, and how much of that is read.

    Raises:
        SourceError: If a part cannot be read any further.
        SinkUnavailable: If no broker answers.
    """
    with ExitStack() as stack:
        parts = [
            stack.enter_context(closing(_stamped(number, part, on_read)))
            for number, part in enumerate(source.parts)
        ]
        for _, sourced in heapq.merge(*parts, key=itemgetter(0)):
            yield sourced


def _stamped(
    number: int, part: Part, on_read: Callable[[int, int], None]
) -> Generator[tuple[float, Sourced], None, None]:
    done, latest_s = Done(), 0.0
    with closing(part.records(done)) as records:
        for sourced in records:
            latest_s = max(latest_s, sourced.logged_s or 0.0)
            on_read(number, done.amount)
            yield latest_s, sourced


def _paths(source: str) -> tuple[str, ...]:
    if source == _STDIN or not Path(source).is_dir():
        return (source,)
    try:
        found = sorted(
            path for path in Path(source).iterdir() if path.name.endswith(RECORDING_NAMES)
        )
    except OSError as error:
        raise SourceError(f"{source}: {error.strerror or error}") from error
    if not found:
        raise SourceError(
            f"{source}: a directory without recordings; their names end in "
            f"{', '.join(RECORDING_NAMES)}"
        )
    return tuple(map(str, found))


class _Chosen:
    """Which records lie between two times, by when the log took them."""

    def __init__(self, times: Times) -> None:
        self._since_s, self._until_s = times
        self._late = 0

    @property
    def chooses(self) -> bool:
        """Whether it leaves anything out."""
        return self._since_s is not None or self._until_s is not None

    @property
    def ended(self) -> bool:
        """Whether the records have come past its end, by more than clocks may differ."""
        return self._late >= _LATE_RECORDS

    def has(self, time_s: float) -> bool:
        """Return whether the next record, of ``time_s``, is meant."""
        if self._until_s is not None and time_s >= self._until_s:
            self._late += 1
            return False
        self._late = 0
        return self._since_s is None or time_s >= self._since_s


class _Stamps(msgspec.Struct):
    """What a record says of its time, without the rest of it."""

    logged_s: float | None = None
    end_s: float | None = None
    time_s: float | None = None


_STAMPS: Final = msgspec.json.Decoder(_Stamps)


def _log_time_s(sourced: Sourced) -> float | None:
    """Return when the log took a record, else when it was complete; None: it cannot be told."""
    if sourced.logged_s is not None:
        return sourced.logged_s
    try:
        stamps = _STAMPS.decode(sourced.value or b"")
        told = (stamps.logged_s, stamps.end_s, stamps.time_s)
        time_s = next((told_s for told_s in told if told_s is not None), None)
        return record_time_s(decode(sourced.value).record) if time_s is None else time_s
    except (msgspec.DecodeError, MalformedRecord):
        return None


def _newest_s(part: FilePart) -> float:
    times_s = (_log_time_s(sourced) for sourced in part.records())
    return max((time_s for time_s in times_s if time_s is not None), default=0.0)


def _whole(path: str, lines: Iterator[Line]) -> Iterator[Line]:
    """Yield ``lines``, but not a last one that breaks off."""
    if not _lacks_its_end(path):
        yield from lines
        return
    line = next(lines, None)
    while line is not None:
        following = next(lines, None)
        if following is None and not _is_json(line.value):
            raise SourceError(
                f"{path}: breaks off in the middle of line {line.number}; "
                f"the {line.number - 1} whole lines before it have been used"
            )
        yield line
        line = following


def _lacks_its_end(path: str) -> bool:
    """Return whether a file that is not packed ends without the end of a line."""
    if path == _STDIN or path.endswith((".gz", ".zst")):
        return False
    try:
        with Path(path).open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False


def _is_json(value: bytes) -> bool:
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
