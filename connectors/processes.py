"""Work on the parts of a source in processes of their own, as far ahead as is asked for.

A process yields a part's next item when it is told to. So what waits is bounded, however far one
part could run ahead of another, and the processes end with the one that started them: where it is
gone, nobody tells them anything any more.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final, Generic, NamedTuple, Self, TypeVar

from connectors.sources import Part
from daom.errors import DaomError

_T = TypeVar("_T")
_Part = TypeVar("_Part", bound=Part)

_AHEAD: Final = 4
"""Items of a part that may wait: enough that no process waits for the one that merges."""
_END_WITHIN_S: Final = 5.0


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Item(NamedTuple):
    """What a process sends: of ``number`` the next item, or that there is none (None)."""

    number: int
    value: object


class _Failure(NamedTuple):
    """A process cannot go on."""

    error: Exception


class PartProcesses(Generic[_Part, _T]):
    """The parts of a source, each worked on by one of several processes.

    Args:
        work: Yields the items of a part; it and they are pickled. It runs in another process.
        parts: What to work on; they are pickled, so they must not hold a TLS context.
        jobs: How many processes, at most.
    """

    def __init__(
        self, work: Callable[[_Part], Iterator[_T]], parts: Sequence[_Part], jobs: int
    ) -> None:
        self._work = work
        self._parts = parts
        self._jobs = min(jobs, len(parts))
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        # A new interpreter, not a fork: it holds no copy of the other processes' connections.
        context = multiprocessing.get_context("spawn")
        shares = _shares(self._parts, self._jobs)
        ignoring = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            # Ctrl-C is for the first process alone, and this is inherited.
            for share in shares:
                self._workers.append(_Worker(context, self._work, share))
        except BaseException:
            self._end()
            raise
        finally:
            signal.signal(signal.SIGINT, ignoring)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for worker in self._workers:
            worker.end()

    def items(self) -> list[Iterator[_T]]:
        """Return the items of each part, in the order of the parts."""
        owner = {number: worker for worker in self._workers for number in worker.waiting}
        return [owner[number].items(number) for number in range(len(self._parts))]


class _Worker:
    """One process, as the first one sees it."""

    def __init__(self, context: multiprocessing.context.SpawnContext, work: object, share: object):
        assert isinstance(share, Mapping)
        self.waiting: dict[int, deque[object]] = {number: deque() for number in share}
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, work, share), daemon=True)
        self._process.start()
        theirs.close()
        for number in share:
            for _ in range(_AHEAD):
                self._connection.send(number)

    def items(self, number: int) -> Iterator[_T]:
        waiting = self.waiting[number]
        while True:
            while not waiting:
                self._receive()
            item = waiting.popleft()
            if item is None:
                return
            self._tell(number)
            yield item  # type: ignore[misc]

    def _tell(self, number: int) -> None:
        # Whether it is still there is told by what it sends.
        with contextlib.suppress(OSError):
            self._connection.send(number)

    def _receive(self) -> None:
        try:
            received = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(_END_WITHIN_S)
            raise DaomError(
                f"a process of this command ended by itself (exit code {self._process.exitcode}); "
                "was there too little memory?"
            ) from error
        if isinstance(received, _Failure):
            raise received.error
        self.waiting[received.number].append(received.value)

    def end(self) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.join(_END_WITHIN_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _shares(parts: Sequence[_Part], jobs: int) -> list[dict[int, _Part]]:
    """Return the parts by number, shared so that all processes have about as much to do."""
    shares: list[dict[int, _Part]] = [{} for _ in range(jobs)]
    sizes = [0] * jobs
    for number in sorted(range(len(parts)), key=lambda n: -parts[n].size):
        least = sizes.index(min(sizes))
        shares[least][number] = parts[number]
        sizes[least] += max(1, parts[number].size)
    return shares


def _serve(
    connection: Connection, work: Callable[[Part], Iterator[object]], parts: Mapping[int, Part]
) -> None:
    """Send the next item of a part whenever its number comes, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        items = {number: work(part) for number, part in parts.items()}
        while True:
            number = connection.recv()
            try:
                answer: object = _Item(number, next(items[number], None))
            except DaomError as error:
                answer = _Failure(error)
            except Exception:  # noqa: BLE001 - whatever it is, the first process must tell it.
                answer = _Failure(RuntimeError(traceback.format_exc()))
            connection.send(answer)
