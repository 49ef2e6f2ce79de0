"""One cell: ``step(record) -> outputs``. The whole order is on this screen.

A cell is a model's engines. Its state is a fold over its records in log order; nothing else enters:
no clock, no randomness, no thread. So it is the same live, after a restart, and in a replay.

    record -> intake (seen before?) -> clock (when was it?) -> panes of its series
           -> each pane that the watermark has passed is closed:
              detector -> threshold -> verdict -> condition -> lifecycle -> suppression?
              -> alert, rca
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from daom.alerting import AlertDesk, AlertSettings, DeskState
from daom.conditions import (
    DriftRules,
    cell_silence_condition,
    ended_condition,
    silence_condition,
    stall_condition,
)
from daom.context import mean_shifts
from daom.engine import EngineState, PaneGrid, take_rows
from daom.event_time import CellClock, ClockState
from daom.events import ChangeEvent, GpuSample, Output, Record, Series, TelemetryBatch, Tick
from daom.lifecycle import Condition
from daom.root_cause import Evidence
from daom.series import SeriesState, SignalSettings, judge
from daom.suppression import Window
from detectors.protocol import DriftScore, Pane

_MAX_CHANGES: Final = 64
_AFTER_STOP_S: Final = 60.0
_MAX_CLOSED_PANES: Final = 360


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


@dataclass(slots=True)
class _Cycle:
    """What the closing of one pane finds out, for the alerts to be walked at its end."""

    now_s: float
    conditions: list[Condition] = field(default_factory=list)
    judged: dict[str, set[str]] = field(default_factory=dict)
    agitated: set[str] = field(default_factory=set)

    def note(self, condition: Condition, score: DriftScore) -> None:
        self.conditions.append(condition)
        if condition.engine is not None and (score.suspected or score.drifting):
            self.agitated.add(condition.engine)


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
    changes: list[ChangeEvent] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)


class Cell:
    """The fold of one cell.

    Args:
        name: The cell's key: ``model``, or ``model/n``.
        model: The model's name.
        settings: How it is judged.
        state: Where to go on from; None begins.
    """

    def __init__(
        self, name: str, model: str, settings: CellSettings, state: CellState | None = None
    ) -> None:
        self.name = name
        self.model = model
        self.state = CellState() if state is None else state
        self._settings = settings
        self._grid = PaneGrid(settings.pane_s)
        self._desk = AlertDesk(name, model, settings.alerts)

    def step(self, record: Record) -> list[Output]:
        """Fold one record in; return what it made due."""
        match record:
            case TelemetryBatch():
                return self._take_batch(record)
            case Tick():
                self._settings.clock.tick(self.state.clock, record.time_s, record.logged_s)
                return list(self._close_panes())
            case GpuSample():
                self._take_gpus(record)
            case ChangeEvent():
                self._take_change(record)
        return []

    # Taking records in

    def _take_batch(self, batch: TelemetryBatch) -> list[Output]:
        state = self.state
        name = batch.source.engine or batch.source.model
        engine = state.engines.get(name)
        if engine is not None:
            arrival = engine.intake.see(batch.source.boot, batch.source.seq)
            if arrival == "duplicate":
                self._count("duplicate_batches")
                return []
            if arrival == "restarted":
                self._note_restart(batch)
        now_s = self._settings.clock.admit(state.clock, name, batch.end_s, batch.logged_s)
        shift_s = now_s - batch.end_s
        if engine is None and now_s <= state.stopped.get(name, 0.0) + _AFTER_STOP_S:
            self._count("batches_after_stop")
            return []
        outputs = list(self._skip_gap(now_s))
        if engine is None:
            engine = self._add_engine(name, batch, now_s)
        if shift_s:
            self._count("restamped_batches")
        state.last_record_s = max(state.last_record_s, now_s)
        engine.take_circumstances(batch, now_s)
        for signal in self._settings.signals:
            table = batch.requests if signal.table == "requests" else batch.steps
            if signal.column in table.columns:
                series = engine.series.get(signal.name) or self._add_series(engine, signal)
                next_pane = state.next_pane or 0
                late = take_rows(series, signal, batch, shift_s, self._grid, next_pane)
                if late:
                    self._count("late_samples", late)
        outputs.extend(self._close_panes())
        return outputs

    def _add_engine(self, name: str, batch: TelemetryBatch, now_s: float) -> EngineState:
        engine = EngineState(last_s=now_s, progress_s=now_s)
        engine.intake.see(batch.source.boot, batch.source.seq)
        # By name, so that nothing depends on which engine was heard first.
        self.state.engines = dict(sorted({**self.state.engines, name: engine}.items()))
        if self.state.next_pane is None:
            self.state.next_pane = self._grid.number(batch.start_s + now_s - batch.end_s)
        return engine

    def _add_series(self, engine: EngineState, signal: SignalSettings) -> SeriesState:
        series = engine.series[signal.name] = SeriesState(signal.detector.initial())
        if signal.name not in self.state.fleet:
            self.state.fleet[signal.name] = SeriesState(signal.detector.initial())
        return series

    def _note_restart(self, batch: TelemetryBatch) -> None:
        self._keep_change(
            ChangeEvent(
                source=batch.source,
                time_s=batch.start_s,
                kind="restart",
                version=batch.source.version,
                detail=f"boot {batch.source.boot}",
            )
        )

    def _take_gpus(self, sample: GpuSample) -> None:
        for name, engine in self.state.engines.items():
            by_host = sample.source.engine is None and sample.source.host in {engine.host, None}
            if name == sample.source.engine or by_host:
                engine.context.take_gpus(sample)

    def _take_change(self, change: ChangeEvent) -> None:
        if change.kind == "maintenance":
            end_s = change.time_s if change.until_s is None else change.until_s
            window = Window(change.source.engine, change.time_s, end_s, change.detail or "")
            self.state.desk.maintenance.append(window)
        elif change.kind == "stop" and change.source.engine is not None:
            self._forget(change.source.engine, change.time_s)
        self._keep_change(change)

    def _forget(self, name: str, stopped_s: float) -> None:
        """Forget an engine; batches of it that are still on their way do not bring it back."""
        self.state.engines.pop(name, None)
        self.state.clock.own_s.pop(name, None)
        self.state.stopped.pop(name, None)
        self.state.stopped[name] = stopped_s
        while len(self.state.stopped) > _MAX_CHANGES:
            del self.state.stopped[next(iter(self.state.stopped))]

    def _keep_change(self, change: ChangeEvent) -> None:
        self.state.changes.append(change)
        del self.state.changes[:-_MAX_CHANGES]

    def _count(self, what: str, by: int = 1) -> None:
        self.state.counters[what] = self.state.counters.get(what, 0) + by

    # Closing panes

    def _skip_gap(self, now_s: float) -> Iterator[Output]:
        """Before a record that ends a silence of the whole cell: nobody was silent *alone*.

        What was open is closed, and the time without records is left out: it says nothing, neither
        that an engine was down nor that all was well.
        """
        state = self.state
        gap_s = now_s - state.last_record_s
        if state.next_pane is None or gap_s <= self._settings.silent_after_s:
            return
        resumed = self._grid.number(now_s)
        last_data = max(self._open_panes(), default=state.next_pane - 1)
        while state.next_pane <= min(last_data, resumed - 1):
            yield from self._close_pane(state.next_pane)
        state.next_pane = max(state.next_pane, resumed)
        for engine in state.engines.values():
            engine.last_s += gap_s
            engine.progress_s += gap_s
        self._count("gaps")

    def _open_panes(self) -> set[int]:
        return {
            number
            for engine in self.state.engines.values()
            for series in engine.series.values()
            for number in series.panes
        }

    def _close_panes(self) -> Iterator[Output]:
        """Close every pane that the watermark has passed."""
        state = self.state
        if state.next_pane is None or state.clock.now_s is None:
            return
        now_s, settings = state.clock.now_s, self._settings
        watermark_s = now_s - settings.lateness_s
        closed = 0
        while (end_s := self._grid.end_s(state.next_pane)) <= watermark_s:
            if end_s > now_s - settings.wait_s and self._is_awaited(end_s, now_s):
                return
            if closed == _MAX_CLOSED_PANES:
                # Real time ran far ahead: by now all has been said that a silence can say.
                state.next_pane = self._grid.number(watermark_s)
                return
            closed += 1
            yield from self._close_pane(state.next_pane)

    def _is_awaited(self, end_s: float, now_s: float) -> bool:
        """Return whether an engine that is not silent has yet to come to ``end_s``."""
        wait_s = self._settings.wait_s
        return any(
            engine.last_s < end_s and now_s - engine.last_s <= wait_s
            for engine in self.state.engines.values()
        )

    def _close_pane(self, number: int) -> Iterator[Output]:
        state, now_s = self.state, self._grid.end_s(number)
        state.next_pane = number + 1
        cycle = _Cycle(now_s)
        for signal in self._settings.signals:
            if signal.name in state.fleet:
                yield from self._close_signal(signal, number, cycle)
        cycle.conditions.extend(self._presence(now_s))
        yield from self._desk.walk(
            state.desk, cycle.conditions, cycle.judged, now_s, self._evidence
        )
        for name, engine in state.engines.items():
            calm = name not in cycle.agitated
            engine.context.close_pane(self._settings.pane_s, calm=calm)
        maintenance = [window for window in state.desk.maintenance if window.end_s > now_s]
        state.desk.maintenance = maintenance
        for name in [n for n, e in state.engines.items() if self._is_long_gone(e, now_s)]:
            self._forget(name, now_s)

    def _is_long_gone(self, engine: EngineState, now_s: float) -> bool:
        cell_goes_on = now_s - self.state.last_record_s <= self._settings.silent_after_s
        return cell_goes_on and now_s - engine.last_s > self._settings.forget_after_s

    def _close_signal(self, signal: SignalSettings, number: int, cycle: _Cycle) -> Iterator[Output]:
        """Judge one signal: of each engine, then of all together."""
        closed: list[Pane] = []
        for name, engine in self.state.engines.items():
            series = engine.series.get(signal.name)
            if series is not None:
                pane = series.panes.pop(number) if number in series.panes else None
                closed.append(signal.detector.new_pane() if pane is None else pane)
                yield from self._judge(name, signal, series, closed[-1], cycle)
                if series.judged:
                    cycle.judged.setdefault(signal.name, set()).add(name)
        together = signal.detector.new_pane()
        together.merge(*closed)
        yield from self._judge(None, signal, self.state.fleet[signal.name], together, cycle)

    def _judge(
        self,
        engine: str | None,
        signal: SignalSettings,
        series: SeriesState,
        pane: Pane,
        cycle: _Cycle,
    ) -> Iterator[Output]:
        identity = Series(model=self.model, engine=engine, signal=signal.name)
        scores, outputs = judge(
            self.name, identity, signal, series, pane, cycle.now_s, lambda: self._surges(engine)
        )
        yield from outputs
        for score in scores:
            condition = self._settings.drift.condition(
                engine, signal.name, score, series.threshold_s
            )
            cycle.note(condition, score)
            yield from self._long_drift(series, condition, score)

    def _surges(self, engine: str | None) -> bool:
        """Return whether far more requests arrive than usual, at the engine or at any."""
        engines = self.state.engines
        return any(e.context.surges() for name, e in engines.items() if engine in {name, None})

    def _long_drift(
        self, series: SeriesState, condition: Condition, score: DriftScore
    ) -> Iterator[Output]:
        """Trigger root-cause analysis once for a drift that lasts, where settings ask for it."""
        after_s = self._settings.alerts.root_cause_after_s
        since_s = series.drift_since_s
        if after_s is None or since_s is None or series.triggered:
            return
        if score.end_s - since_s > after_s:
            series.triggered = True
            yield self._desk.trigger(condition, since_s, score.end_s, self._evidence)

    def _presence(self, now_s: float) -> Iterator[Condition]:
        """Yield the conditions of silence and stall, and of engines that have been stopped."""
        settings, state = self._settings, self.state
        cell = cell_silence_condition(state.last_record_s, now_s, settings.silent_after_s)
        for name, engine in state.engines.items():
            yield silence_condition(
                name, engine, now_s, settings.silent_after_s, cell_silent=bool(cell.active)
            )
            yield stall_condition(name, engine, now_s, settings.stalled_after_s)
        yield cell
        signals = {signal.name for signal in settings.signals}
        for life in state.desk.lives.values():
            if life.engine is not None and life.engine not in state.engines:
                yield ended_condition(life, f"engine {life.engine} was stopped, or is long gone")
            elif life.signal is not None and life.signal not in signals:
                yield ended_condition(life, f"{life.signal} is no longer monitored")

    def _evidence(self, condition: Condition, onset_s: float) -> Evidence:
        engines = self.state.engines
        names = [name for name in engines if condition.engine in {name, None}]
        since_s = self._grid.end_s((self.state.next_pane or 0) - 1) - onset_s
        shifts = mean_shifts(
            [engines[name].context for name in names], round(since_s / self._grid.pane_s)
        )
        lives = self.state.desk.lives.values()
        return Evidence(
            signal=condition.signal or "",
            onset_s=onset_s,
            attribution=condition.attribution,
            shifts=shifts,
            changes=[c for c in self.state.changes if c.source.engine in {None, *names}],
            engines=len(engines),
            drifting_engines=sum(
                life.drifting for life in lives if life.engine and life.signal == condition.signal
            ),
        )
