"""What was said of a recording, and what it holds: the little that judging it needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from daom.codec import decode
from daom.config import Config
from daom.errors import MalformedRecord
from daom.event_time import CellClock, ClockState
from daom.events import Alert, Attribution, Direction, DriftVerdict, Output, Series, TelemetryBatch
from daom.labels import Recorded

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

    @property
    def was_judged(self) -> bool:
        """Whether any series was."""
        return any(heard.judged for heard in self.series.values())


def survey(name: str, lines: Iterable[bytes], config: Config) -> Recorded | None:
    """Return what a recording holds, its times as its cells' clocks believe them.

    None if it holds no telemetry that can be used.
    """
    clock = CellClock(config.time.max_ahead_s)
    clocks: dict[str, ClockState] = {}
    silences: dict[str, list[Interval]] = {}
    refused = Counter[str]()
    start_s, count = math.inf, 0
    for line in lines:
        count += 1
        try:
            record, faults = decode(line, max_bytes=config.worker.max_message_bytes)
        except MalformedRecord as error:
            refused[error.kind] += 1
            continue
        refused.update(fault.kind for fault in faults)
        if not isinstance(record, TelemetryBatch):
            continue
        model = record.source.model
        state = clocks.setdefault(model, ClockState())
        before_s = state.now_s
        believed_s = clock.admit(state, record.source.engine_name, record.end_s, record.logged_s)
        if before_s is None:
            start_s = min(start_s, believed_s - (record.end_s - record.start_s))
        elif believed_s - before_s > config.alerts.silent_after_s:
            silences.setdefault(model, []).append((before_s, believed_s))
    if not clocks:
        return None
    return Recorded(
        name=name,
        start_s=start_s,
        end_s=max(state.now_s or 0.0 for state in clocks.values()),
        engines={model: frozenset(state.own_s) for model, state in clocks.items()},
        silences=silences,
        lines=count,
        refused=refused,
    )
