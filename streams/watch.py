"""The watch over a worker: whether it gets on, which is being alive, and whether it is ready.

It looks from a thread and a connection of its own, so that it sees an owner that hangs. What it
sees is judged by ``daom.liveness``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from daom.errors import SinkUnavailable
from daom.liveness import Liveness, Seen, Stuck

LOOK_EVERY_S: Final = 5.0
_LOOKS_A_WAIT: Final = 10.0
"""A short ``stuck_after_s`` asks for so many looks at least."""

Phase = Literal["starting", "rebalancing", "loading", "working", "stopping"]


@dataclass(slots=True)
class Membership:
    """Where the worker stands with its group: written by the app, read by the watch.

    Attributes:
        why: Of the phase, for a person.
        owned: The partitions that it has been given.
        joins: How often it has come into the group.
    """

    phase: Phase = "starting"
    why: str = "it waits for a broker and its topics"
    owned: frozenset[int] = frozenset()
    joins: int = 0

    def enter(self, phase: Phase, why: str) -> None:
        """Go on to ``phase``; a worker that stops does nothing else any more."""
        if self.phase != "stopping":
            self.phase, self.why = phase, why

    def given(self, partitions: Collection[int]) -> None:
        """Note that the group has given it ``partitions``, whose state is not loaded yet."""
        self.owned = frozenset(partitions)
        self.joins += 1
        self.enter("loading", f"it loads partitions {sorted(partitions)}")


class Standing(NamedTuple):
    """How far an owner has come with one partition; ``event_s`` is None before any record."""

    position: int
    saved: int
    event_s: float | None
    cells: int
    engines: int


class LogOffsets(Protocol):
    """What the broker says of one partition."""

    @property
    def end(self) -> int:
        """Where the log ends."""

    @property
    def committed(self) -> int | None:
        """The group's next offset."""


class Ask(Protocol):
    """Asks the broker for the offsets of partitions; of none, whether it answers."""

    async def __call__(self, partitions: Collection[int], /) -> Mapping[int, LogOffsets]:
        """Raise SinkUnavailable if no broker answers."""


class Watched(NamedTuple):
    """One partition as it was last seen; ``standing`` is None while it is loaded."""

    standing: Standing | None
    seen: Seen
    waits_s: float


@dataclass(slots=True)
class Watch:
    """Looks at a worker, and answers for it.

    Args:
        membership: Where it stands with its group.
        clock: Monotonic seconds.
        stuck_after_s: How long a partition with more to do may stand still.
        standing: How far its owner has come with a partition; None while it is not loaded.
    """

    membership: Membership
    clock: Callable[[], float]
    stuck_after_s: float
    standing: Callable[[int], Standing | None] = lambda _: None
    _partitions: dict[int, Watched] = field(default_factory=dict)
    _liveness: Liveness = field(init=False)
    _looked_s: float = field(init=False)
    _stuck: list[Stuck] = field(default_factory=list)
    _away: str | None = None

    def __post_init__(self) -> None:
        self._liveness = Liveness(self.stuck_after_s)
        self._looked_s = self.clock()

    async def run(self, ask: Ask) -> None:
        """Look at regular intervals, for ever."""
        while True:
            await self.look(ask)
            await asyncio.sleep(min(LOOK_EVERY_S, self.stuck_after_s / _LOOKS_A_WAIT))

    async def look(self, ask: Ask) -> None:
        """Look once, at what the worker and the broker say."""
        owned = self.membership.owned
        try:
            offsets = await ask(owned)
        except SinkUnavailable as error:
            self._away = str(error)
            self._looked_s = self.clock()
            self._liveness.no_answer(self._looked_s)
            self._stuck = []
            return
        standings = {number: self.standing(number) for number in sorted(owned)}
        seen = {number: _seen(s, offsets[number]) for number, s in standings.items()}
        outside = self.membership.phase in {"starting", "rebalancing"}
        self._away, self._looked_s = None, self.clock()
        self._liveness.observe(seen, self.membership.joins if outside else None, self._looked_s)
        self._stuck = self._liveness.stuck()
        self._partitions = {
            number: Watched(standings[number], seen[number], self._liveness.waits_s(number))
            for number in seen
        }

    def owned(self) -> dict[int, Watched]:
        """Return what is known of the partitions that are the worker's now."""
        owned = self.membership.owned
        return {number: watched for number, watched in self._partitions.items() if number in owned}

    def health(self) -> dict[str, object]:
        """Return whether a restart would help, and if so why: ``healthy`` and ``stuck``."""
        unseen_s = self.clock() - self._looked_s
        if unseen_s >= self.stuck_after_s:
            return {"healthy": False, "why": f"nobody has looked for {unseen_s:.0f} s", "stuck": []}
        stuck = [
            {"partition": s.partition, "task": s.task, "for_s": round(s.for_s, 1), "why": s.why}
            for s in self._stuck
        ]
        return {"healthy": not stuck, "stuck": stuck}

    def readiness(self) -> dict[str, object]:
        """Return whether the worker does its work; if not, ``why``."""
        membership = self.membership
        if membership.phase != "working":
            return {"ready": False, "phase": membership.phase, "why": membership.why}
        if self._away is not None:
            return {"ready": False, "phase": membership.phase, "why": self._away}
        return {
            "ready": True,
            "phase": membership.phase,
            "partitions": sorted(membership.owned),
        }


def _seen(standing: Standing | None, offsets: LogOffsets) -> Seen:
    return Seen(
        position=None if standing is None else standing.position,
        saved=0 if standing is None else standing.saved,
        committed=offsets.committed,
        end=offsets.end,
    )
