"""One cell: ``step(record) -> outputs``. The whole order is on this screen.

A cell is a model's engines. Its state is a fold over its records in log order; nothing else enters:
no clock, no randomness, no thread. So it is the same live, after a restart, and in a replay.

    record -> admission (is there room?) -> intake (seen before?) -> clock (when was it?)
           -> panes of its series
           -> each pane that the watermark has passed is closed:
              detector -> threshold -> verdict -> condition -> lifecycle -> suppression?
              -> alert, rca
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from daom.admission import Admitted, admit, note
from daom.alerting import AlertDesk, DeskState
from daom.bounded import put
from daom.cell import CellSettings, CellState
from daom.cycle import Cycle
from daom.engine import EngineState, PaneGrid, take_buckets, take_rows
from daom.errors import MalformedRecord
from daom.events import ChangeEvent, GpuSample, Output, Record, TelemetryBatch, Tick
from daom.paging import Pager
from daom.series import SeriesState, SignalSettings
from daom.suppression import Window

_MAX_CHANGES: Final = 64
_RENEWING: Final = frozenset({"deploy", "config", "lora", "accept"})
"""Changes after which what used to be usual need not be any more."""
_AFTER_STOP_S: Final = 60.0
_MAX_CLOSED_PANES: Final = 360
_FORGET_ONCE_AFTER_S: Final = 600.0
"""An engine that was heard a single time gives its place back sooner."""


class Cell:
    """The fold of one cell.

    Args:
        name: The cell's key: ``model``, or ``model/n``.
        model: The model's name.
        settings: How it is judged.
        state: Where to go on from; None begins.
        others: Settings that differ from ``settings`` in how alerts live (``drift``, ``alerts``)
            alone: what would be said under them is found out along the way.
    """

    def __init__(
        self,
        name: str,
        model: str,
        settings: CellSettings,
        state: CellState | None = None,
        others: Sequence[CellSettings] = (),
    ) -> None:
        self.name = name
        self.model = model
        self.state = CellState() if state is None else state
        self._settings = settings
        self._grid = PaneGrid(settings.pane_s)
        # Each cell of a model has a silence of its own, and an end of it.
        whose = {"model": model} if name == model else {"model": model, "cell": name}
        desks = [(settings, self.state.desk), *((other, DeskState()) for other in others)]
        self._pagers = [
            Pager(each.drift, AlertDesk(name, whose, each.alerts), desk) for each, desk in desks
        ]

    def admit(self, record: Record) -> Admitted:
        """Return what of ``record`` there is room for, to be stepped; note what there is not."""
        return admit(self.state, record, self._settings.limits)

    def note(self, fault: MalformedRecord) -> None:
        """Note that a record of this cell could not be used: a limit that it was beyond counts."""
        note(self.state, fault)

    def step(self, record: Record) -> list[Output]:
        """Fold one record in; return what it made due."""
        match record:
            case TelemetryBatch():
                self._take_batch(record)
            case Tick():
                self._settings.clock.tick(self.state.clock, record.time_s, record.logged_s)
                self._close_panes()
            case GpuSample():
                self._take_gpus(record)
            case ChangeEvent():
                self._take_change(record)
        return self._pagers[0].take()

    def said_by_others(self) -> list[list[Output]]:
        """Return what was due under each of the other settings since the last call."""
        return [pager.take() for pager in self._pagers[1:]]

    # Taking records in

    def _take_batch(self, batch: TelemetryBatch) -> None:
        state = self.state
        name = batch.source.engine_name
        engine = state.engines.get(name)
        if engine is not None:
            arrival = engine.intake.see(*batch.source.numbering)
            if arrival == "duplicate":
                self._count("duplicate_batches")
                return
            if arrival == "restarted":
                self._note_restart(batch)
        now_s = self._settings.clock.admit(state.clock, name, batch.end_s, batch.logged_s)
        shift_s = now_s - batch.end_s
        if engine is None and now_s <= state.stopped.get(name, 0.0) + _AFTER_STOP_S:
            self._count("batches_after_stop")
            state.clock.own_s.pop(name, None)
            return
        self._skip_gap(now_s)
        if engine is None:
            engine = self._add_engine(name, batch, now_s)
        else:
            engine.heard_once = False
        if shift_s:
            self._count("restamped_batches")
        state.last_record_s = max(state.last_record_s, now_s)
        engine.take_circumstances(batch, now_s)
        for signal in self._settings.signals:
            self._take_signal(engine, signal, batch, shift_s)
        self._close_panes()

    def _take_signal(
        self, engine: EngineState, signal: SignalSettings, batch: TelemetryBatch, shift_s: float
    ) -> None:
        """Put what ``batch`` says of one signal into its panes: rows, or else bucket counts."""
        table = batch.requests if signal.table == "requests" else batch.steps
        if signal.column in table.columns:
            take = take_rows
        elif signal.column not in batch.histograms:
            return
        elif signal.takes_buckets:
            take = take_buckets
        else:
            self._count("histograms_not_judged")
            return
        series = engine.series.get(signal.name) or self._add_series(engine, signal)
        late = take(series, signal, batch, shift_s, self._grid, self.state.next_pane or 0)
        if late:
            self._count("late_samples", late)

    def _add_engine(self, name: str, batch: TelemetryBatch, now_s: float) -> EngineState:
        engine = EngineState(last_s=now_s, progress_s=now_s, heard_once=True)
        engine.intake.see(*batch.source.numbering)
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
        """Keep that the engine has restarted, unless it has said so itself, and more."""
        told = batch.source.engine, batch.source.boot
        if any((c.source.engine, c.source.boot) == told for c in self.state.changes):
            return
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
        for engine in self.state.engines_of(sample.source):
            engine.context.take_gpus(sample)

    def _take_change(self, change: ChangeEvent) -> None:
        if change.kind == "maintenance":
            end_s = change.time_s if change.until_s is None else change.until_s
            window = Window(change.source.engine, change.time_s, end_s, change.detail or "")
            self.state.desk.maintenance.append(window)
        elif change.kind == "stop" and change.source.engine is not None:
            self._forget(change.source.engine, change.time_s)
        elif change.kind in _RENEWING:
            self.state.renewals.append(change)
        self._keep_change(change)

    def _forget(self, name: str, stopped_s: float) -> None:
        """Forget an engine; batches of it that are still on their way do not bring it back."""
        self.state.engines.pop(name, None)
        self.state.clock.own_s.pop(name, None)
        self.state.stopped.pop(name, None)
        put(self.state.stopped, name, stopped_s, _MAX_CHANGES)

    def _keep_change(self, change: ChangeEvent) -> None:
        self.state.changes.append(change)
        del self.state.changes[:-_MAX_CHANGES]

    def _count(self, what: str, by: int = 1) -> None:
        self.state.counters[what] = self.state.counters.get(what, 0) + by

    # Closing panes

    def _skip_gap(self, now_s: float) -> None:
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
            self._close_pane(state.next_pane)
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

    def _close_panes(self) -> None:
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
            self._close_pane(state.next_pane)

    def _is_awaited(self, end_s: float, now_s: float) -> bool:
        """Return whether an engine that is not silent has yet to come to ``end_s``."""
        wait_s = self._settings.wait_s
        return any(
            engine.last_s < end_s and now_s - engine.last_s <= wait_s
            for engine in self.state.engines.values()
        )

    def _close_pane(self, number: int) -> None:
        state, now_s = self.state, self._grid.end_s(number)
        state.next_pane = number + 1
        pagers = self._pagers
        Cycle(self.name, self.model, self._settings, state, pagers, number, now_s).close()
        for name in [n for n, e in state.engines.items() if self._is_long_gone(e, now_s)]:
            self._forget(name, now_s)

    def _is_long_gone(self, engine: EngineState, now_s: float) -> bool:
        # Producers that are refused count too: else a cell that is full of the dead stays full.
        cell_goes_on = now_s - self.state.heard_s <= self._settings.silent_after_s
        after_s = self._settings.forget_after_s
        if engine.heard_once:
            after_s = min(after_s, _FORGET_ONCE_AFTER_S)
        return cell_goes_on and now_s - engine.last_s > after_s
