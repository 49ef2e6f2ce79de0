"""What commands that read a source show of it: how far they are, and what was odd."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from connectors.replaying import Chunk, Gap
from connectors.sources import Source, open_source
from daom.cli.summary import clock
from daom.config import Config
from daom.span import Span
from daom.topics import Topics

NONE_USABLE: Final = " holds no record that could be judged"

_MOST_GAPS: Final = 5
_DAY_S: Final = 86_400.0
_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@dataclass(slots=True)
class Reading:
    """How far a source has been read.

    Attributes:
        records: How many could be used.
        done: Of each part, by number, how much.
        event_s: The latest event time so far; None: none is known.
        gaps: Long times without a record.
        counted: What the folds have counted.
    """

    source: Source
    records: int = 0
    done: dict[int, int] = field(default_factory=dict)
    event_s: float | None = None
    gaps: list[Gap] = field(default_factory=list)
    counted: list[dict[str, int]] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)

    def note(self, number: int, chunk: Chunk) -> None:
        """Take what was read of part ``number``."""
        self.records += chunk.records
        self.done[number] = chunk.done
        if chunk.event_s is not None:
            self.event_s = max(self.event_s or chunk.event_s, chunk.event_s)
        self.gaps.extend(chunk.gaps)
        if chunk.counted is not None:
            self.counted.append(chunk.counted)

    @property
    def amount(self) -> int:
        """How much has been read, in the parts' unit."""
        return sum(self.done.values())

    @property
    def left(self) -> int:
        """How much is left."""
        return max(0, sum(part.size for part in self.source.parts) - self.amount)

    @property
    def words(self) -> str:
        """Where it is: event time, rate, and what is left."""
        per_s = self.records / max(1e-6, time.monotonic() - self._began_s)
        event = "" if self.event_s is None else f"{clock(self.event_s)}  "
        unit = self.source.parts[0].unit if self.source.parts else "records"
        return f"{event}{per_s:,.0f} records/s  {_amount(self.left, unit)} left"

    def stopped(self) -> str:
        """Return what a partial result covers."""
        event = "" if self.event_s is None else f" up to {clock(self.event_s)}"
        unit = self.source.parts[0].unit if self.source.parts else "records"
        return f"partial result: {self.records} records{event}; {_amount(self.left, unit)} not read"


def nothing_in(source: Source, span: Span) -> str:
    """Return what to say of a range that holds no record."""
    if span == Span():
        return f"{source.name} holds no record"
    newest = "" if source.newest_s is None else f"; the newest is of {clock(source.newest_s)}"
    return f"{source.name} holds no record in this range{newest}"


def _amount(count: int, unit: str) -> str:
    if unit == "records":
        return f"{count:,} records"
    for size, name in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count} bytes"


@contextmanager
def progress_bar(reading: Reading, *, hidden: bool) -> Iterator[Progress]:
    """Show how far ``reading`` is, on a terminal; call the task's ``update`` by ``refresh``."""
    console = Console(stderr=True)
    total = sum(part.size for part in reading.source.parts)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(),
    )
    shown = Progress(
        *columns, console=console, transient=True, disable=hidden or not console.is_terminal
    )
    with shown:
        shown.add_task(reading.source.name, total=total or None, words="")
        yield shown


def refresh(progress: Progress, reading: Reading) -> None:
    """Show where ``reading`` is now."""
    for task in progress.task_ids:
        progress.update(task, completed=reading.amount, words=reading.words)


def tell_gaps(gaps: Sequence[Gap]) -> None:
    """Say on stderr where there is nothing in a log for long."""
    for words in gap_words(gaps):
        click.echo(words, err=True)


def gap_words(gaps: Sequence[Gap]) -> Iterator[str]:
    """Yield where there is nothing in a log for long, in words."""
    for gap in gaps[:_MOST_GAPS]:
        days = (gap.to_s - gap.from_s) / _DAY_S
        between = f"from {clock(gap.from_s)} to {clock(gap.to_s)}"
        yield f"{gap.where}: no record for {days:.1f} days, {between}"
    if len(gaps) > _MOST_GAPS:
        yield f"and {len(gaps) - _MOST_GAPS} further gaps of a day or more"


def is_shown(*, as_json: bool) -> bool:
    """Return whether a progress bar would not get between lines of JSON on a terminal."""
    return not (as_json and sys.stdout.isatty())


def opened(source: str, config: Config, span: Span | None = None) -> Source:
    """Return what SOURCE means, and of it what ``span`` does (None: all), as ``open_source``."""
    topic = Topics(config.kafka.topic_prefix).telemetry
    return open_source(source, config.kafka.client(), topic, span)


def spinner(*, quiet: bool = False) -> Progress:
    """Return a progress on stderr of what has no known end; none where nobody would see it."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = quiet or not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=hidden)
