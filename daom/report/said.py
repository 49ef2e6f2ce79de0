"""What was said under one setting: alerts as stories, what was muted and why, causes, counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from daom.events import (
    Alert,
    Attribution,
    DriftVerdict,
    Output,
    RcaTrigger,
    SloThreshold,
    Suppression,
)
from daom.heard import Heard

MOST_LISTED: Final = 5_000
"""So many alerts, muted alerts and causes are told one by one; all are counted."""
_MOST_MOVES: Final = 100
"""So many moves of one stream's threshold are told."""
PAGING: Final = ("warning", "critical")
_NUMBERS_OF_IT: Final = ("summary", "body", "tail", "load", "measurement_change", "p99_s")


class Stream(NamedTuple):
    """What a line of the report is about; without a signal, an engine's or a cell's presence."""

    cell: str
    engine: str | None
    signal: str | None


@dataclass(slots=True, kw_only=True)
class Story:
    """An alert from its first word to its last; times are event times, None: never.

    Attributes:
        severity: The worst that it was fired with.
        began_s: When its condition began.
        words: What it said of itself when it last fired, by name of the annotation.
    """

    stream: Stream
    name: str
    severity: str
    attribution: Attribution
    began_s: float
    pending_s: float | None = None
    fired_s: float | None = None
    resolved_s: float | None = None
    words: dict[str, str] = field(default_factory=dict)

    def note(self, alert: Alert) -> None:
        """Take its next word."""
        now_s = alert.event_time_s
        if alert.state == "pending":
            self.pending_s = now_s
        elif alert.state == "resolved":
            self.resolved_s = now_s
        else:
            severity = alert.labels["severity"]
            if self.fired_s is None or severity == PAGING[-1]:
                self.severity = severity
            self.fired_s = now_s if self.fired_s is None else self.fired_s
            # What escalates is resolved under its old labels and fires under its new ones.
            self.resolved_s = None
            self.attribution = alert.attribution
            notes = alert.annotations
            self.words = {name: notes[name] for name in _NUMBERS_OF_IT if name in notes}


@dataclass(slots=True)
class Said:
    """All that one setting said, in memory that grows with the alerts alone.

    Attributes:
        counts: Outputs by their kind; of alerts by kind and state.
        muted: Muted alerts by rule.
        fired: Alerts that fired, each counted once however often it spoke,
        paged: and those of them that ever were a warning or critical.
        stories: Alerts by cell and incident, as many as are told.
        moves: By stream, its threshold's first moves.
    """

    counts: Counter[str] = field(default_factory=Counter)
    muted: Counter[str] = field(default_factory=Counter)
    fired: set[tuple[str, str]] = field(default_factory=set)
    paged: set[tuple[str, str]] = field(default_factory=set)
    stories: dict[tuple[str, str], Story] = field(default_factory=dict)
    mutes: list[Suppression] = field(default_factory=list)
    causes: list[RcaTrigger] = field(default_factory=list)
    moves: dict[Stream, list[SloThreshold]] = field(default_factory=dict)
    heard: Heard = field(default_factory=Heard)

    def note(self, output: Output) -> None:
        """Take the next output."""
        self.heard.note(output)
        match output:
            case DriftVerdict():
                self.counts["verdict"] += 1
            case Alert():
                self.counts[f"alert {output.state}"] += 1
                self._note_alert(output)
            case Suppression():
                self.counts["suppression"] += 1
                self.muted[output.rule] += 1
                if len(self.mutes) < MOST_LISTED:
                    self.mutes.append(output)
            case RcaTrigger():
                self.counts["rca"] += 1
                if len(self.causes) < MOST_LISTED:
                    self.causes.append(output)
            case SloThreshold():
                self.counts["threshold"] += 1
                series = output.series
                stream = Stream(output.cell, series.engine, series.signal)
                moves = self.moves.setdefault(stream, [])
                if len(moves) < _MOST_MOVES:
                    moves.append(output)

    def absorb(self, other: Said) -> None:
        """Take what was said of another part of the same source, in the order of event time."""
        self.counts.update(other.counts)
        self.muted.update(other.muted)
        self.fired |= other.fired
        self.paged |= other.paged
        stories = [*self.stories.items(), *other.stories.items()]
        self.stories = dict(sorted(stories, key=lambda item: item[1].began_s)[:MOST_LISTED])
        self.mutes = _first(self.mutes, other.mutes, MOST_LISTED)
        self.causes = _first(self.causes, other.causes, MOST_LISTED)
        for stream, moves in other.moves.items():
            self.moves[stream] = _first(self.moves.get(stream, []), moves, _MOST_MOVES)
        self.heard.absorb(other.heard)

    def _note_alert(self, alert: Alert) -> None:
        key = (alert.cell, alert.annotations.get("incident", alert.id))
        if alert.state == "firing":
            self.fired.add(key)
            if alert.labels.get("severity") in PAGING:
                self.paged.add(key)
        story = self.stories.get(key)
        if story is None:
            if len(self.stories) >= MOST_LISTED:
                return
            story = self.stories[key] = Story(
                stream=stream_of(alert),
                name=alert.name,
                severity=alert.labels.get("severity", "warning"),
                attribution=alert.attribution,
                began_s=alert.started_s,
            )
        story.note(alert)


_Timed = TypeVar("_Timed", bound=Suppression | RcaTrigger | SloThreshold)


def _first(some: list[_Timed], others: list[_Timed], most: int) -> list[_Timed]:
    joined = [*some, *others]
    joined.sort(key=in_time)
    return joined[:most]


def in_time(output: Output) -> tuple[float, str, str]:
    """Return what outputs are sorted by: it does not depend on how a source is cut in parts."""
    return output.event_time_s, output.cell, output.id


def stream_of(output: Alert | Suppression | RcaTrigger) -> Stream:
    """Return the stream that an alert, or what is said of one, is about."""
    return Stream(output.cell, output.labels.get("engine"), output.labels.get("signal"))
