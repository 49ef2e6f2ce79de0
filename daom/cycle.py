"""The closing of one pane: every series is judged, then the alerts are walked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from daom.cell import CellSettings, CellState
from daom.circumstances import circumstance_conditions, evidence_for, remarks
from daom.conditions import (
    ceiling_condition,
    cell_silence_condition,
    ended_condition,
    silence_condition,
    stall_condition,
)
from daom.context import ContextState, arrivals_rise, newcomers
from daom.events import Output, Series
from daom.lifecycle import SLOWER_THAN_PEERS, AlertLife, Condition
from daom.limit_conditions import limit_conditions
from daom.paging import Judged, Lasting, Pager
from daom.peer_conditions import peer_condition
from daom.root_cause import Evidence
from daom.series import SeriesState, SignalSettings, Surrounding, judge
from detectors.buckets import density_of, measured_alike
from detectors.peers import MIN_ENGINES, PeerScore, PeersState
from detectors.protocol import Pane

_COLD_S: Final = 180.0
"""An engine may take so long to become warm."""


class Cycle:
    """One pane of a cell, to be closed.

    Args:
        name: The cell's key.
        model: The model's name.
        settings: How the cell is judged.
        state: What it remembers.
        pagers: Make alerts of what is found, each by rules of its own.
        number: Of the pane.
        now_s: Event time at which it ended.
    """

    def __init__(
        self,
        name: str,
        model: str,
        settings: CellSettings,
        state: CellState,
        pagers: Sequence[Pager],
        number: int,
        now_s: float,
    ) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._state = state
        self._pagers = pagers
        self._number = number
        self._now_s = now_s
        self._said: list[Output | Lasting] = []
        self._found: list[Condition | Judged] = []
        self._judged: dict[str, set[str]] = {signal.name: set() for signal in settings.signals}
        self._agitated: set[str] = set()

    def close(self) -> None:
        """Judge every series, and let every pager say what follows."""
        state, settings = self._state, self._settings
        self._renew()
        for signal in settings.signals:
            if signal.name in state.fleet:
                self._close_signal(signal)
        self._found.extend(self._presence())
        for pager in self._pagers:
            pager.said.extend(self._page(pager))
        for name, engine in state.engines.items():
            engine.context.close_pane(
                settings.pane_s,
                calm=name not in self._agitated,
                forget_after_s=settings.forget_after_s,
            )
        windows = state.desk.maintenance
        state.desk.maintenance = [w for w in windows if w.end_s > self._now_s]

    def _page(self, pager: Pager) -> Iterator[Output]:
        """Yield what is said under the rules of one pager: of the series, then of the alerts."""
        lives = pager.state.lives
        evidence_for = partial(self._evidence, lives.values())
        for said in self._said:
            if isinstance(said, Lasting):
                condition, end_s = pager.condition(said.judged), said.judged.score.end_s
                yield pager.desk.trigger(condition, said.since_s, end_s, evidence_for)
            else:
                yield said
        found = [*map(pager.condition, self._found), *self._ended(lives.values())]
        pager.state.maintenance = self._state.desk.maintenance
        yield from pager.desk.walk(
            pager.state, found, self._judged, self._now_s, evidence_for, self._newcomers()
        )

    def _newcomers(self) -> dict[str, set[str]]:
        """Return by signal the engines that have just begun, if no others are yet to be judged."""
        engines = self._state.engines
        contexts = {name: engine.context for name, engine in engines.items()}
        new = newcomers(contexts, _COLD_S / self._settings.pane_s)
        found = {}
        for signal, judged in self._judged.items() if new else ():
            unjudged = {name for name in engines if signal in engines[name].series} - judged
            if unjudged.issubset(new):
                found[signal] = unjudged
        return found

    def _renew(self) -> None:
        """Begin new references where something was changed in this pane."""
        renewals, now_s = self._state.renewals, self._now_s
        due = [change for change in renewals if change.time_s < now_s]
        self._state.renewals = [change for change in renewals if change.time_s >= now_s]
        signals = {signal.name: signal for signal in self._settings.signals}
        for change in due:
            for name, series in self._series_of(change.source.engine):
                if name in signals:
                    why = change.words()
                    accepted = change.kind == "accept"
                    signals[name].detector.renew(series.detector, why, accepted=accepted)

    def _series_of(self, engine: str | None) -> Iterator[tuple[str, SeriesState]]:
        """Yield the series of ``engine``; of all engines and of the fleet if it is None."""
        for name, state in self._state.engines.items():
            if engine in {name, None}:
                yield from state.series.items()
        if engine is None:
            yield from self._state.fleet.items()

    def _close_signal(self, signal: SignalSettings) -> None:
        """Judge one signal: of each engine, then of all together."""
        closed: dict[str, Pane] = {}
        for name, engine in self._state.engines.items():
            series = engine.series.get(signal.name)
            if series is not None:
                pane = series.panes.pop(self._number, None)
                closed[name] = signal.detector.new_pane() if pane is None else pane
        together = signal.detector.new_pane()
        together.merge(*closed.values())
        peers = self._compare_peers(signal, closed, together)
        already = len(self._found)
        for name, pane in closed.items():
            series = self._state.engines[name].series[signal.name]
            self._judge(name, signal, series, pane, peers.get(name))
            if series.judged:
                self._judged[signal.name].add(name)
        self._judge(None, signal, self._state.fleet[signal.name], together)
        self._found.extend(_peer_conditions(signal.name, peers, self._found[already:]))

    def _compare_peers(
        self, signal: SignalSettings, closed: Mapping[str, Pane], together: Pane
    ) -> dict[str, PeerScore]:
        """Hold each engine against the others; they need no history for that."""
        if signal.peers is None:
            return {}
        state = self._state.peers.setdefault(signal.name, PeersState())
        engines = self._state.engines
        states = {name: engines[name].series[signal.name].detector for name in closed}
        alike = measured_alike(states)
        counts = {name: pane.counts() for name, pane in closed.items() if name in alike}
        density = density_of(states[name] for name in sorted(alike))
        scores = signal.peers.update(state, counts, together.counts(), self._now_s, density)
        for name, score in scores.items():
            if score.apart:
                self._agitated.add(name)
        return scores

    def _judge(
        self,
        engine: str | None,
        signal: SignalSettings,
        series: SeriesState,
        pane: Pane,
        peers: PeerScore | None = None,
    ) -> None:
        identity = Series(model=self._model, engine=engine, signal=signal.name)
        around = Surrounding(
            n_series=self._n_series(),
            surges=lambda: self._surges(engine),
            arrivals_rise=lambda: arrivals_rise(self._contexts(engine)),
            evidence={} if peers is None else peers.evidence(),
        )
        scores, outputs = judge(self._name, identity, signal, series, pane, self._now_s, around)
        self._said.extend(outputs)
        for score in scores:
            contexts, changes = self._contexts(engine), self._state.changes
            said = remarks(contexts, signal.name, score, changes, self._settings.pane_s)
            judged = Judged(engine, signal.name, score, series.threshold_s, said)
            self._note(judged)
            if signal.ceiling_s is not None:
                ceiling = ceiling_condition(engine, signal.name, score, signal.ceiling_s)
                self._found.append(ceiling)
            self._long_drift(series, judged)

    def _surges(self, engine: str | None) -> bool:
        """Return whether far more requests arrive than usual, at the engine or at any."""
        return any(context.surges() for context in self._contexts(engine))

    def _contexts(self, engine: str | None) -> list[ContextState]:
        """Return the circumstances of ``engine``, or of all."""
        engines = self._state.engines
        return [e.context for name, e in engines.items() if engine in {name, None}]

    def _long_drift(self, series: SeriesState, judged: Judged) -> None:
        """Ask once for the cause of a drift that lasts, where settings ask for it."""
        after_s = self._settings.alerts.root_cause_after_s
        since_s = series.drift_since_s
        if after_s is None or since_s is None or series.triggered:
            return
        if judged.score.end_s - since_s > after_s:
            series.triggered = True
            self._said.append(Lasting(judged, since_s))

    def _presence(self) -> Iterator[Condition]:
        """Yield the conditions of silence and stall, and of engines that have been stopped."""
        settings, state, now_s = self._settings, self._state, self._now_s
        cell = cell_silence_condition(state.last_record_s, now_s, settings.silent_after_s)
        for name, engine in state.engines.items():
            yield silence_condition(
                name, engine, now_s, settings.silent_after_s, cell_silent=bool(cell.active)
            )
            yield stall_condition(name, engine, now_s, settings.stalled_after_s)
            yield from circumstance_conditions(name, engine, settings.pane_s)
        yield cell
        yield from limit_conditions(state.limits, now_s)

    def _ended(self, lives: Iterable[AlertLife]) -> Iterator[Condition]:
        """Yield the conditions of alerts whose subject is gone."""
        state = self._state
        signals = {signal.name for signal in self._settings.signals}
        for life in lives:
            if life.engine is not None and life.engine not in state.engines:
                yield ended_condition(life, f"engine {life.engine} was stopped, or is long gone")
            elif life.signal is not None and life.signal not in signals:
                yield ended_condition(life, f"{life.signal} is no longer monitored")
            elif life.name == SLOWER_THAN_PEERS and len(state.engines) < MIN_ENGINES:
                yield ended_condition(life, "there are too few engines to compare")

    def _evidence(
        self, lives: Iterable[AlertLife], condition: Condition, onset_s: float
    ) -> Evidence:
        state, pane_s = self._state, self._settings.pane_s
        panes = round((self._now_s - onset_s) / pane_s)
        return evidence_for(condition, onset_s, panes, state.engines, state.changes, lives, pane_s)

    def _n_series(self) -> int:
        """Return how many series share the false alarms that are allowed."""
        return len(self._state.fleet) + sum(len(e.series) for e in self._state.engines.values())

    def _note(self, judged: Judged) -> None:
        self._found.append(judged)
        if judged.engine is not None and (judged.score.suspected or judged.score.drifting):
            self._agitated.add(judged.engine)


def _peer_conditions(
    signal: str, peers: Mapping[str, PeerScore], found: Sequence[Condition | Judged]
) -> Iterator[Condition]:
    """Yield what the places of engines among their peers say, beside what was found of each."""
    scores = {each.engine: each.score for each in found if isinstance(each, Judged)}
    together = scores.get(None)
    faster = together is not None and together.drifting and together.direction == "faster"
    for name, peer in peers.items():
        own = scores.get(name)
        as_it_was = own is not None and (own.drifting is False or own.direction == "faster")
        yield peer_condition(name, signal, peer, len(peers), outrun=bool(faster and as_it_was))
