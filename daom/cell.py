"""What a cell is made of: how it is judged, and all that it remembers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from daom.alerting import AlertSettings, DeskState
from daom.conditions import DriftRules
from daom.engine import EngineState
from daom.event_time import CellClock, ClockState
from daom.events import ChangeEvent, Source
from daom.limits import DEFAULT_LIMITS, LimitHit, LimitName, Limits
from daom.series import SeriesState, SignalSettings
from detectors.peers import PeersState


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """How a cell is judged; the same for every cell of a configuration.

    Attributes:
        pane_s: Length of a pane.
        lateness_s: How long a pane waits for samples that are late,
        wait_s: and at most so long for an engine that has not come so far yet.
        silent_after_s: An engine is silent after this long without a record,
        forget_after_s: and forgotten after this long.
        stalled_after_s: An engine with work in flight is stalled after this long without progress.
        limits: How much it holds.
    """

    signals: tuple[SignalSettings, ...]
    drift: DriftRules
    alerts: AlertSettings
    clock: CellClock = field(default_factory=CellClock)
    pane_s: float = 10.0
    lateness_s: float = 5.0
    wait_s: float = 60.0
    silent_after_s: float = 60.0
    forget_after_s: float = 21_600.0
    stalled_after_s: float = 60.0
    limits: Limits = DEFAULT_LIMITS


@dataclass(slots=True)
class CellState:
    """All that a cell remembers. Plain data: a checkpoint holds it."""

    clock: ClockState = field(default_factory=ClockState)
    next_pane: int | None = None
    last_record_s: float = 0.0
    engines: dict[str, EngineState] = field(default_factory=dict)
    fleet: dict[str, SeriesState] = field(default_factory=dict)
    stopped: dict[str, float] = field(default_factory=dict)
    desk: DeskState = field(default_factory=DeskState)
    peers: dict[str, PeersState] = field(default_factory=dict)
    changes: list[ChangeEvent] = field(default_factory=list)
    renewals: list[ChangeEvent] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    limits: dict[LimitName, LimitHit] = field(default_factory=dict)

    def engines_of(self, source: Source) -> Iterator[EngineState]:
        """Yield the engines that a GPU sample of ``source`` is about: one, or all of a host."""
        if source.engine is not None:
            if source.engine in self.engines:
                yield self.engines[source.engine]
            return
        for engine in self.engines.values():
            if source.host in {engine.host, None}:
                yield engine

    @property
    def heard_s(self) -> float:
        """When a producer was last heard, one that was refused included."""
        refused = self.limits.get("engines")
        return self.last_record_s if refused is None else max(self.last_record_s, refused.last_s)
