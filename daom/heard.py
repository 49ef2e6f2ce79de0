"""What was said of a recording, and what it holds: the little that judging it needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Self

from daom.codec import decode
from daom.config import Config
from daom.errors import MalformedRecord
from daom.event_time import CellClock, ClockState
from daom.events import (
    Alert,
    Attribution,
    Direction,
    DriftVerdict,
    Output,
    Record,
    Series,
    TelemetryBatch,
)
from daom.labels import Recorded
from daom.replay import Sourced

Interval = tuple[float, float]
"""From when to when, event time."""

_PAGING: Final = frozenset({"warning", "critical"})


@dataclass(slots=True)
class Alarm:
    """A drift of a series, from its first verdict to its last; or an alert that pages.

    Attributes:
        begin_s: When it began: of an alert, its condition.
        end_s: When it was last said; of an alert, when it fired.
        claims: Of a drift, each direction and attribution that it was said to have, and since when.
    """

    model: str
    engine: str | None
    signal: str | None
    begin_s: float
    end_s: float
    claims: dict[tuple[Direction, Attribution], float]

    def join(self, later: Alarm) -> None:
        """Make ``later`` a part of this one."""
        self.end_s = later.end_s
        for claim, since_s in later.claims.items():
            self.claims.setdefault(claim, since_s)


@dataclass(slots=True)
class SeriesHeard:
    """What was said of one series.

    Attributes:
        first_s: When it was judged for the first time,
        newest_s: and for the last; None: never.
        calm: The times in which it was judged and did not drift.
        drifts: The runs of drifting verdicts.
    """

    first_s: float | None = None
    newest_s: float | None = None
    is_drifting: bool = False
    calm: list[Interval] = field(default_factory=list)
    drifts: list[Alarm] = field(default_factory=list)

    @property
    def judged(self) -> list[Interval]:
        """From when to when it was judged; empty if it never was."""
        if self.first_s is None or self.newest_s is None:
            return []
        return [(self.first_s, self.newest_s)]

    def note(self, verdict: DriftVerdict) -> None:
        """Take the next verdict; where it says nothing, what was said before still holds.

        Detectors that judge by the number of samples say nothing between two cycles.
        """
        if verdict.drifting == "insufficient":
            return
        now_s, before_s = verdict.event_time_s, self.newest_s
        self.newest_s = now_s
        if self.first_s is None:
            self.first_s = now_s
        if verdict.drifting:
            self._note_drift(verdict)
        elif before_s is not None:
            if self.calm and self.calm[-1][1] == before_s:
                before_s = self.calm.pop()[0]
            self.calm.append((before_s, now_s))
        self.is_drifting = verdict.drifting

    def absorb(self, other: SeriesHeard) -> None:
        """Take what was heard of the same series elsewhere, as if it had been heard here."""
        if other.first_s is None or other.newest_s is None:
            return
        if self.newest_s is None or other.newest_s > self.newest_s:
            self.newest_s, self.is_drifting = other.newest_s, other.is_drifting
        self.first_s = other.first_s if self.first_s is None else min(self.first_s, other.first_s)
        self.calm = sorted([*self.calm, *other.calm])
        self.drifts = sorted([*self.drifts, *other.drifts], key=lambda drift: drift.begin_s)

    def _note_drift(self, verdict: DriftVerdict) -> None:
        now_s, series = verdict.event_time_s, verdict.series
        claims = {(verdict.direction, verdict.attribution): now_s}
        run = Alarm(series.model, series.engine, series.signal, now_s, now_s, claims)
        if self.is_drifting:
            self.drifts[-1].join(run)
        else:
            self.drifts.append(run)


@dataclass(slots=True)
class Heard:
    """What a preset said of one recording: little is kept, however long it is."""

    series: dict[tuple[str, Series], SeriesHeard] = field(default_factory=dict)
    pages: dict[tuple[str, str], Alarm] = field(default_factory=dict)

    def note(self, output: Output) -> None:
        """Take the next output."""
        match output:
            case DriftVerdict():
                key = (output.cell, output.series)
                self.series.setdefault(key, SeriesHeard()).note(output)
            case Alert(state="firing", labels=labels) if labels.get("severity") in _PAGING:
                incident = output.annotations.get("incident", output.id)
                page = Alarm(
                    labels.get("model", output.cell),
                    labels.get("engine"),
                    labels.get("signal"),
                    output.started_s,
                    output.event_time_s,
                    {},
                )
                self.pages.setdefault((output.cell, incident), page)

    def absorb(self, other: Heard) -> None:
        """Take what was heard of another part of the same source."""
        for key, heard in other.series.items():
            self.series.setdefault(key, SeriesHeard()).absorb(heard)
        for incident, page in other.pages.items():
            self.pages.setdefault(incident, page)

    @property
    def was_judged(self) -> bool:
        """Whether any series was."""
        return any(heard.judged for heard in self.series.values())


@dataclass(slots=True)
class Survey:
    """What a recording holds, record by record, its times as its cells' clocks believe them.

    Attributes:
        begun_s: By model, when its first batch began.
        clocks: By model, how far its time has come.
        silences: By model, when nothing of it was recorded.
    """

    clock: CellClock
    silent_after_s: float
    begun_s: dict[str, float] = field(default_factory=dict)
    clocks: dict[str, ClockState] = field(default_factory=dict)
    silences: dict[str, list[Interval]] = field(default_factory=dict)

    @classmethod
    def under(cls, config: Config) -> Self:
        """Return one that believes and listens as ``config`` says."""
        return cls(CellClock(config.time.max_ahead_s), config.alerts.silent_after_s)

    def note(self, record: Record) -> None:
        """Take the next record; telemetry counts alone."""
        if not isinstance(record, TelemetryBatch):
            return
        model = record.source.model
        state = self.clocks.setdefault(model, ClockState())
        before_s, name = state.now_s, record.source.engine_name
        believed_s = self.clock.admit(state, name, record.end_s, record.logged_s)
        if before_s is None:
            self.begun_s[model] = believed_s - (record.end_s - record.start_s)
        elif believed_s - before_s > self.silent_after_s:
            self.silences.setdefault(model, []).append((before_s, believed_s))

    def recorded(self, name: str, lines: int = 0) -> Recorded | None:
        """Return what there was, under a name; None if there was no telemetry."""
        return recorded_of([self], name, lines)

    def heard_s(self, model: str) -> Iterator[Interval]:
        """Yield the times in which ``model`` was recorded, in order."""
        if model not in self.clocks:
            return
        from_s = self.begun_s[model]
        for silent_s, again_s in self.silences.get(model, ()):
            yield from_s, silent_s
            from_s = again_s
        yield from_s, self.clocks[model].now_s or from_s


def recorded_of(parts: Sequence[Survey], name: str, lines: int = 0) -> Recorded | None:
    """Return what the parts of a source hold together; None if there was no telemetry.

    A model is silent while it is so in every part.
    """
    models = sorted({model for part in parts for model in part.clocks})
    if not models:
        return None
    heard_s = {model: union(i for part in parts for i in part.heard_s(model)) for model in models}
    silences = {
        model: [(before[1], after[0]) for before, after in pairwise(heard_s[model])]
        for model in models
    }
    engines = {
        model: frozenset[str]().union(*(p.clocks[model].own_s for p in parts if model in p.clocks))
        for model in models
    }
    return Recorded(
        name=name,
        start_s=min(intervals[0][0] for intervals in heard_s.values()),
        end_s=max(intervals[-1][1] for intervals in heard_s.values()),
        engines=engines,
        silences={model: found for model, found in silences.items() if found},
        lines=lines,
    )


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the time that is in any of ``intervals``, in order, without overlaps."""
    joined: list[Interval] = []
    for start_s, end_s in sorted(intervals):
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_s))
        else:
            joined.append((start_s, end_s))
    return joined


def survey(name: str, values: Iterable[Sourced], config: Config) -> Recorded | None:
    """Return what a source holds; None if it holds no telemetry that can be used."""
    surveyed, count, max_bytes = Survey.under(config), 0, config.worker.max_message_bytes
    for sourced in values:
        count += 1
        with contextlib.suppress(MalformedRecord):
            decoded = decode(sourced.value, logged_s=sourced.logged_s, max_bytes=max_bytes)
            surveyed.note(decoded.record)
    return surveyed.recorded(name, count)
