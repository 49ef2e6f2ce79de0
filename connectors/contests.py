"""A source replayed for a report: each part a contest of its own, side by side.

A contest is told when its part has been read: to its end, as far as it could be, or until Ctrl-C,
which stops every part between two records, so that what was read so far is whole.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing.synchronize import Event
from types import FrameType, TracebackType
from typing import Self

from connectors.kafka import Client
from connectors.processes import PartProcesses
from connectors.replaying import Chunk, chunks, jobs_for
from connectors.sources import Done, Part, Source
from daom.config import Config
from daom.errors import SourceError
from daom.replay import Sourced
from daom.report.contest import Contest, Setting

Told = Chunk | Contest


class Interrupt:
    """Ctrl-C as something that was asked for; it interrupts nothing but waiting for a record.

    While it is entered it is told of SIGINT, so enter it in the main thread.
    """

    def __init__(self) -> None:
        self.asked = False
        self.is_waiting = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, _: int, __: FrameType | None) -> None:
        if self.asked or self.is_waiting:
            # Asked twice, it is not for the sake of what was read so far.
            self.is_waiting, self.asked = False, True
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def contested(
    source: Source,
    config: Config,
    settings: Sequence[Setting],
    interrupt: Interrupt,
    jobs: int | None = None,
) -> Iterator[Iterator[tuple[int, Told]]]:
    """Replay ``source`` under several settings; the processes that this takes end with the context.

    Args:
        source: What to replay; it is only read.
        config: Where Kafka is.
        settings: As ``daom.report.contest.line_up`` returns them.
        interrupt: Entered; once it was asked for, every part ends.
        jobs: How many processes may fold; None: as many as there are cores, if it is worth it.

    Returns:
        By number of the part, each chunk that was read, whose entries tell faults alone, and
        at its end the contest.

    Raises:
        SinkUnavailable: While iterating, if no broker answers.
        KeyboardInterrupt: While iterating, on the second Ctrl-C.
    """
    if (jobs := jobs_for(source.parts, jobs)) > 1:
        # What the first process is connected by stays with it.
        parts = [part.using({}) for part in source.parts]
        stop = multiprocessing.get_context("spawn").Event()
        work = partial(_elsewhere, config, list(settings), stop)
        with PartProcesses(work, parts, jobs) as processes:
            yield _side_by_side(processes.items(), lambda: stop.set() if interrupt.asked else None)
        return
    streams = [
        _of_part(settings, _Waiting(part, interrupt), lambda: interrupt.asked)
        for part in source.parts
    ]
    try:
        yield _side_by_side(streams, lambda: None)
    finally:
        for stream in streams:
            stream.close()


def _elsewhere(
    config: Config, settings: Sequence[Setting], stop: Event, part: Part
) -> Iterator[Told]:
    return _of_part(settings, part.using(config.kafka.client()), stop.is_set)


def _of_part(
    settings: Sequence[Setting], part: Part, is_stopped: Callable[[], bool]
) -> Generator[Told, None, None]:
    contest = Contest(settings)
    fold = contest.open(part.partition)
    try:
        with closing(chunks(part, fold, tells_faults_alone=True)) as told:
            while not is_stopped() and (chunk := next(told, None)) is not None:
                yield chunk
    except SourceError as error:
        contest.broken_off.append(str(error))
    except KeyboardInterrupt:
        # It came while the part waited for a record: all that came before is folded.
        pass
    contest.tally.counted = fold.counters()
    yield contest


def _side_by_side(
    streams: Sequence[Iterator[Told]], after_each: Callable[[], None]
) -> Iterator[tuple[int, Told]]:
    live = dict(enumerate(streams))
    while live:
        for number, stream in list(live.items()):
            told = next(stream, None)
            after_each()
            if told is None:
                del live[number]
            else:
                yield number, told


class _Waiting:
    """A part that lets Ctrl-C interrupt it while it waits for its next record, and only then."""

    def __init__(self, part: Part, interrupt: Interrupt) -> None:
        self._part = part
        self._interrupt = interrupt
        self.name, self.size, self.unit = part.name, part.size, part.unit
        self.partition = part.partition

    def using(self, client: Client) -> Self:
        return type(self)(self._part.using(client), self._interrupt)

    def records(self, done: Done | None = None) -> Generator[Sourced, None, None]:
        with closing(self._part.records(done)) as values:
            while True:
                self._interrupt.is_waiting = True
                sourced = next(values, None)
                self._interrupt.is_waiting = False
                if sourced is None or self._interrupt.asked:
                    return
                yield sourced
