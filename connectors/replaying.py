"""A source replayed, its parts side by side: what each record makes due, in one order.

Entries come in the order in which the log took the records; where parts tie, the first comes first.
A record stamped earlier than one before it in its part counts as that one, so the order within a
part is always its own. It is the same order however many processes there are, and that of a
recording which ``daom record`` makes of the source.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from connectors.processes import PartProcesses, cores
from connectors.recordings import record_time_s
from connectors.sources import Done, Part, Source
from daom.codec import encode_output
from daom.config import Config
from daom.errors import MalformedRecord
from daom.events import Output
from daom.fold import Fold, Folded
from daom.presets import cell_settings
from daom.replay import Folding, Sourced, steps

_T = TypeVar("_T")
_Part = TypeVar("_Part", bound=Part)

GAP_S: Final = 86_400.0
"""A longer time without a record is told: a day that is not there can look like a calm one."""

_CHUNK_RECORDS: Final = 500
_CHUNK_S: Final = 0.2
_WORTH_PROCESSES: Final = 5_000
"""Records from which on a second process has earned the second that it takes to start."""


class Entry(NamedTuple):
    """What one record made due.

    Attributes:
        time_s: The latest log time of its part so far, Unix seconds.
        where: Where the record came from, in words, and its ``offset`` if it has one.
        said: Each output as ``daom.codec.encode_output`` has it.
        faults: What could not be used: kind and reason.
    """

    time_s: float
    where: str
    offset: int | None
    said: tuple[bytes, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()


class Gap(NamedTuple):
    """A time without a record, Unix seconds; ``where`` is the first record after it."""

    where: str
    from_s: float
    to_s: float


@dataclass(slots=True)
class Chunk:
    """Some records of a part, folded.

    Attributes:
        entries: Those that made something due, and the last one.
        records: How many could be used.
        done: How much of the part has been read by now.
        event_s: The latest event time so far; None: none is known.
        gaps: Between these records.
        counted: What the fold has counted, with the last chunk.
    """

    entries: list[Entry] = field(default_factory=list)
    records: int = 0
    done: int = 0
    event_s: float | None = None
    gaps: list[Gap] = field(default_factory=list)
    counted: dict[str, int] | None = None


def chunks(
    part: Part, fold: Folding, *, tells_faults_alone: bool = False
) -> Generator[Chunk, None, None]:
    """Yield what the records of ``part`` make due, in a fold of its own."""
    done, clock = Done(), _Clock()
    chunk, read, began_s = Chunk(), 0, time.monotonic()
    for sourced, folded in steps(part.records(done), fold):
        clock.take(sourced, folded, chunk.gaps)
        read += 1
        chunk.records += folded.record is not None
        is_full = read >= _CHUNK_RECORDS or time.monotonic() - began_s > _CHUNK_S
        if is_full or folded.faults or (folded.outputs and not tells_faults_alone):
            said = () if tells_faults_alone else folded.outputs
            chunk.entries.append(_entry(clock.log_s, sourced, said, folded.faults))
        if is_full:
            chunk.done, chunk.event_s = done.amount, clock.event_s
            yield chunk
            chunk, read, began_s = Chunk(), 0, time.monotonic()
    chunk.done, chunk.event_s, chunk.counted = done.amount, clock.event_s, fold.counters()
    yield chunk


@dataclass(slots=True)
class _Clock:
    """How far the times of a part have come."""

    log_s: float = 0.0
    event_s: float | None = None

    def take(self, sourced: Sourced, folded: Folded, gaps: list[Gap]) -> None:
        if folded.record is not None:
            event_s = record_time_s(folded.record)
            self.event_s = event_s if self.event_s is None else max(self.event_s, event_s)
        log_s = sourced.logged_s
        if log_s is None and folded.record is not None:
            log_s = folded.record.logged_s or record_time_s(folded.record)
        if log_s is None or log_s <= self.log_s:
            return
        if self.log_s and log_s - self.log_s >= GAP_S:
            gaps.append(Gap(sourced.where, self.log_s, log_s))
        self.log_s = log_s


def _entry(
    time_s: float, sourced: Sourced, said: Sequence[Output], faults: Sequence[MalformedRecord]
) -> Entry:
    return Entry(
        time_s,
        sourced.where,
        sourced.offset,
        tuple(encode_output(output) for output in said),
        tuple((fault.kind, str(fault)) for fault in faults),
    )


def jobs_for(parts: Sequence[Part], jobs: int | None) -> int:
    """Return how many processes share ``parts``, at most ``jobs``; None: the cores.

    Of themselves only where there is enough to do.
    """
    if jobs is None:
        enough = sum(part.size for part in parts) >= _WORTH_PROCESSES
        jobs = cores() if enough else 1
    return max(1, min(jobs, len(parts)))


@contextmanager
def replaying(
    source: Source,
    config: Config,
    jobs: int | None = None,
    on_chunk: Callable[[int, Chunk], None] = lambda _, __: None,
) -> Iterator[Iterator[Entry]]:
    """Replay ``source``; the processes that this takes end with the context.

    Args:
        source: What to replay; it is only read.
        config: How it is judged, and where Kafka is.
        jobs: How many processes may fold; None: as many as there are cores, if it is worth it.
        on_chunk: Told of each chunk that was read, and of which part, by number.

    Raises:
        SourceError: While iterating, if a part cannot be read any further.
        SinkUnavailable: While iterating, if no broker answers.
    """
    with side_by_side(source.parts, config, _folded, jobs) as streams:
        yield _merged(streams, on_chunk)


@contextmanager
def side_by_side(
    parts: Sequence[_Part],
    config: Config,
    work: Callable[[Config, _Part], Generator[_T, None, None]],
    jobs: int | None = None,
) -> Iterator[Sequence[Iterator[_T]]]:
    """Give what ``work`` makes of each part, in the order of the parts, as it is asked for.

    It works in ``jobs`` processes, as ``replaying`` says; so it and what it yields are pickled.
    """
    if (jobs := jobs_for(parts, jobs)) > 1:
        # What the first process is connected by stays with it.
        moved = [part.using({}) for part in parts]
        with PartProcesses(partial(_elsewhere, work, config), moved, jobs) as processes:
            yield processes.items()
        return
    streams = [work(config, part) for part in parts]
    try:
        yield streams
    finally:
        for stream in streams:
            stream.close()


def _elsewhere(
    work: Callable[[Config, _Part], Generator[_T, None, None]], config: Config, part: _Part
) -> Iterator[_T]:
    return work(config, part.using(config.kafka.client()))


def _folded(config: Config, part: Part) -> Generator[Chunk, None, None]:
    max_bytes = config.worker.max_message_bytes
    return chunks(part, Fold(cell_settings(config), max_bytes, part.partition))


def _merged(
    streams: Sequence[Iterator[Chunk]], on_chunk: Callable[[int, Chunk], None]
) -> Iterator[Entry]:
    entries = (_entries(number, stream, on_chunk) for number, stream in enumerate(streams))
    return heapq.merge(*entries, key=attrgetter("time_s"))


def _entries(
    number: int, stream: Iterator[Chunk], on_chunk: Callable[[int, Chunk], None]
) -> Iterator[Entry]:
    for chunk in stream:
        on_chunk(number, chunk)
        yield from chunk.entries
