"""Replays over the cores: a process each, that reads the source for itself."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Final

from daom.config import Config
from daom.errors import SourceError
from daom.evaluate import Rules
from daom.replay import Sourced
from daom.tuning.candidates import Replay
from daom.tuning.holdout import Split
from daom.tuning.journal import Pair
from daom.tuning.rehearsal import listen

_EVERY_RECORDS: Final = 200
"""The progress bar moves so often."""
_POLL_S: Final = 0.2

Parts = Callable[[], Iterable[Iterable[Sourced]]]
"""Opens a source anew: its partitions, each in log order. It must be possible to pickle it."""


@dataclass(frozen=True, slots=True)
class Task:
    """How one replay is judged."""

    parts: Parts
    split: Split
    grace_s: float

    def run(self, configs: Sequence[Config], advance: Callable[[int], None]) -> list[Pair]:
        """Return the figures of each of ``configs``, which judge alike."""
        heard = listen((_counted(part, advance) for part in self.parts()), configs)
        return [
            self.split.figures(said, Rules.of(config, self.grace_s))
            for config, said in zip(configs, heard, strict=True)
        ]


def _counted(part: Iterable[Sourced], advance: Callable[[int], None]) -> Iterator[Sourced]:
    for number, sourced in enumerate(part, start=1):
        if number % _EVERY_RECORDS == 0:
            advance(_EVERY_RECORDS)
        yield sourced


class InThisProcess:
    """Judges replays one after the other."""

    def __init__(self, task: Task, advance: Callable[[int], None]) -> None:
        self._task = task
        self._advance = advance

    def __call__(self, replays: Sequence[Replay]) -> Iterator[tuple[int, Sequence[Pair]]]:
        for number, replay in enumerate(replays):
            configs = [candidate.config for candidate in replay.candidates]
            yield number, self._task.run(configs, self._advance)


class OverProcesses:
    """Judges up to ``jobs`` replays at a time; leaving it in the middle stops them.

    Args:
        task: How a replay is judged.
        jobs: How many at a time.
        advance: Is told, now and then, how many records more were read.
    """

    def __init__(self, task: Task, jobs: int, advance: Callable[[int], None]) -> None:
        self._task = task
        self._jobs = jobs
        self._advance = advance

    def __call__(self, replays: Sequence[Replay]) -> Iterator[tuple[int, Sequence[Pair]]]:
        if not replays:
            return
        # Processes of their own: a fork of one with threads, such as a progress bar's, may hang.
        context = multiprocessing.get_context("spawn")
        count, stop = context.Value("q", 0), context.Event()
        pool = ProcessPoolExecutor(
            min(self._jobs, len(replays)), context, _begin, (self._task, count, stop)
        )
        try:
            futures = {
                pool.submit(_work, [candidate.config for candidate in replay.candidates]): number
                for number, replay in enumerate(replays)
            }
            yield from self._results(futures, count)
        except BrokenProcessPool as error:
            raise SourceError(
                "a process that replayed the source has died: too little memory? --jobs 1 needs "
                "less"
            ) from error
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)

    def _results(
        self, futures: dict[Future[list[Pair]], int], count: Any
    ) -> Iterator[tuple[int, Sequence[Pair]]]:
        waiting, seen = set(futures), 0
        while waiting:
            done, waiting = wait(waiting, _POLL_S, FIRST_COMPLETED)
            self._advance(count.value - seen)
            seen = count.value
            for future in done:
                yield futures[future], future.result()


_SHARED: Final[dict[str, Any]] = {}
"""What a process was given when it began."""


class _Stopped(Exception):  # noqa: N818 - named for what it is.
    """Nobody waits for this replay any more."""


def _begin(task: Task, count: Any, stop: Any) -> None:
    # Ctrl-C goes to every process; the first one tells the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _SHARED.update(task=task, count=count, stop=stop)


def _work(configs: Sequence[Config]) -> list[Pair]:
    task: Task = _SHARED["task"]
    return task.run(configs, _advance)


def _advance(records: int) -> None:
    if _SHARED["stop"].is_set():
        raise _Stopped
    count = _SHARED["count"]
    with count.get_lock():
        count.value += records
