"""Liveness is progress: which partition has more to do, and does not get on with it.

Pure: whoever observes a worker says what it saw and when, by a monotonic clock. Nothing is stuck
while nothing is due, nor while no broker answers: a restart would help neither. So every wait
begins anew when its position moves, when there is nothing more to do, and when the broker has been
away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Task = Literal["join", "load", "read", "save", "commit"]
_Key = tuple[int | None, Task]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One partition as it was at one moment; offsets are the next ones.

    Attributes:
        position: The next offset to fold; None while its state is being loaded.
        saved: What checkpoints cover.
        committed: What the group has committed; None: nothing yet.
        end: Where the log ends.
    """

    position: int | None
    saved: int
    committed: int | None
    end: int

    @property
    def lag(self) -> int:
        """Records that are still to be folded."""
        return max(0, self.end - (self.position or 0))


class Stuck(NamedTuple):
    """Something that is due and has not moved for ``for_s`` seconds; ``why`` is for a person."""

    partition: int | None
    task: Task
    for_s: float
    why: str


class _Due(NamedTuple):
    """A task that is not done; ``at`` moves when it gets on."""

    task: Task
    at: int
    why: str


class _Waiting(NamedTuple):
    since_s: float
    at: int
    why: str


def _since(before: _Waiting | None, at: int, now_s: float) -> float:
    """Return since when a task has stood where it is."""
    return before.since_s if before is not None and before.at == at else now_s


@dataclass(slots=True)
class Liveness:
    """How long each partition of a worker has been waiting for itself.

    Args:
        stuck_after_s: How long something that is due may stand still.
    """

    stuck_after_s: float
    _waiting: dict[_Key, _Waiting] = field(default_factory=dict)
    _loaded_at: dict[int, int] = field(default_factory=dict)
    _now_s: float = 0.0

    def observe(self, seen: Mapping[int, Seen], joins: int | None, now_s: float) -> None:
        """Take what was seen of the worker's partitions; what is not among them is forgotten.

        Args:
            seen: The partitions that the worker owns.
            joins: None while it is in its group; outside of it, how often it has come into it.
            now_s: Monotonic seconds, never less than before.
        """
        self._now_s = now_s
        due: dict[_Key, _Due] = {
            (number, task.task): task
            for number, one in seen.items()
            for task in self._due(number, one)
        }
        if joins is not None:
            due[None, "join"] = _Due("join", joins, "it is not in its consumer group")
        before = self._waiting
        self._waiting = {
            key: _Waiting(_since(before.get(key), task.at, now_s), task.at, task.why)
            for key, task in due.items()
        }
        for number in self._loaded_at.keys() - seen.keys():
            del self._loaded_at[number]

    def no_answer(self, now_s: float) -> None:
        """Note that no broker answers: nobody can be blamed for what does not move now."""
        self._now_s = now_s
        self._waiting.clear()

    def _due(self, number: int, seen: Seen) -> list[_Due]:
        """Return what is to be done for one partition."""
        if seen.position is None:
            return [_Due("load", 0, "its checkpoints are not loaded")]
        due: list[_Due] = []
        if seen.lag:
            why = f"its position stands at {seen.position}, and the log ends at {seen.end}"
            due.append(_Due("read", seen.position, why))
        if seen.position > seen.saved:
            why = f"its checkpoints stand at {seen.saved}, and its position is {seen.position}"
            due.append(_Due("save", seen.saved, why))
        # What an earlier owner saved may have been committed under a group long forgotten.
        committed = -1 if seen.committed is None else seen.committed
        if committed < seen.saved and seen.saved > self._loaded_at.setdefault(number, seen.saved):
            why = f"its commits stand at {seen.committed}, and its checkpoints at {seen.saved}"
            due.append(_Due("commit", committed, why))
        return due

    def waits_s(self, number: int) -> float:
        """Return for how long partition ``number`` has not got on with what is due; 0: it does."""
        return max(
            (self._now_s - w.since_s for (n, _), w in self._waiting.items() if n == number),
            default=0.0,
        )

    def stuck(self) -> list[Stuck]:
        """Return what had not moved for ``stuck_after_s`` or longer when last observed."""
        waits = [
            Stuck(number, task, self._now_s - waiting.since_s, waiting.why)
            for (number, task), waiting in self._waiting.items()
        ]
        return [wait for wait in waits if wait.for_s >= self.stuck_after_s]
