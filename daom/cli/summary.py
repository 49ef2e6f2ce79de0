"""What a replay or the demo found, for a person to read: tables and a time line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.table import Table

from daom.events import (
    Alert,
    DriftVerdict,
    Output,
    RcaTrigger,
    Series,
    SloThreshold,
    Suppression,
)
from daom.replay import Tally

FIRING: Final = "FIRING"


def clock(time_s: float) -> str:
    """Return an event time as a person reads it, in UTC."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


@dataclass(slots=True)
class SeriesSummary:
    """One series over a whole run."""

    verdicts: int = 0
    drifting: int = 0
    newest: DriftVerdict | None = None
    state: str = ""

    @property
    def shows_state(self) -> bool:
        """Whether the alert's state still says something: a muted or pending one may have ended."""
        drifting = self.newest is not None and self.newest.drifting is True
        return self.state == FIRING or (bool(self.state) and drifting)


@dataclass(slots=True)
class ReplaySummary:
    """What is kept of a run: little, however long it is."""

    series: dict[Series, SeriesSummary] = field(default_factory=dict)
    events: list[Output] = field(default_factory=list)
    muted: Counter[str] = field(default_factory=Counter)

    def note(self, output: Output) -> None:
        """Take one output."""
        match output:
            case DriftVerdict():
                known = self.series.setdefault(output.series, SeriesSummary())
                known.verdicts += 1
                known.drifting += output.drifting is True
                known.newest = output
            case Suppression():
                self.muted[output.rule] += 1
                self.events.append(output)
            case Alert() | SloThreshold() | RcaTrigger():
                self.events.append(output)


def series_table(summary: ReplaySummary, title: str | None = None) -> Table:
    """Return a table with a row for every series, engines before the fleet."""
    table = Table(title=title, title_justify="left")
    for name in ("engine", "signal"):
        table.add_column(name)
    for name in ("samples", "KL nats", "P99 s", "threshold s", "drifting"):
        table.add_column(name, justify="right")
    table.add_column("state")
    ordered = sorted(
        summary.series.items(), key=lambda kv: (kv[0].signal, kv[0].engine is None, kv[0].engine)
    )
    for series, known in ordered:
        newest = known.newest
        table.add_row(
            series.engine or "(fleet)",
            series.signal,
            str(newest.samples) if newest else "",
            number(newest.kl_nats) if newest else "",
            number(newest.p99_s) if newest else "",
            number(newest.threshold_s) if newest else "",
            f"{known.drifting}/{known.verdicts}",
            known.state if known.shows_state else state_of(newest),
        )
    return table


def state_of(verdict: DriftVerdict | None) -> str:
    """Return what a verdict says in a word or two."""
    if verdict is None:
        return ""
    if verdict.drifting == "insufficient":
        return verdict.why or "insufficient"
    return f"drifting, {verdict.direction}" if verdict.drifting else "calm"


def number(value: float | None) -> str:
    """Return ``value`` with three significant digits, or a dash."""
    return "-" if value is None else f"{value:.3g}"


def describe(output: Output) -> str:
    """Return one line that says what ``output`` says."""
    match output:
        case Alert():
            words = output.annotations.get("summary", "")
            return f"{output.state:8} {_labels(output.labels)}: {words} ({output.attribution})"
        case SloThreshold():
            moved = f"{number(output.previous_s)} -> {number(output.threshold_s)} s"
            whose = output.series.engine or "(fleet)"
            return f"threshold {output.series.signal} of {whose}: {moved} ({output.why})"
        case Suppression():
            return f"muted    {_labels(output.labels)}: {output.rule}: {output.why}"
        case RcaTrigger():
            causes = "; ".join(
                f"{cause.cause} ({cause.score:.2f}: {', '.join(cause.evidence)})"
                for cause in output.causes
            )
            return f"look at  {_labels(output.labels)}: {causes}"
        case _:
            return ""


def _labels(labels: object) -> str:
    assert isinstance(labels, dict)
    partition = labels.get("partition")
    whose = labels.get("engine") or ("(fleet)" if partition is None else f"partition {partition}")
    shown = [labels["alertname"], labels.get("signal") or labels.get("limit"), whose]
    return " ".join(str(word) for word in [*shown, labels["severity"]] if word)


def print_summary(summary: ReplaySummary, tally: Tally) -> None:
    """Print a run: every series, then what happened, in order of event time."""
    console = Console(soft_wrap=True)
    console.print(series_table(summary))
    for output in summary.events:
        console.print(f"{clock(output.event_time_s)}  {describe(output)}", highlight=False)
    # An alert that escalates, or speaks again since it is far worse, is still one.
    fired = {
        o.annotations.get("incident", o.id)
        for o in summary.events
        if isinstance(o, Alert) and o.state == "firing"
    }
    muted = ", ".join(f"{count} by {rule}" for rule, count in summary.muted.most_common()) or "none"
    console.print(f"{tally.records} records, {len(fired)} alerts fired, muted: {muted}")
    for what, count in sorted(tally.counted.items()):
        console.print(f"{what.replace('_', ' ')}: {count}")
