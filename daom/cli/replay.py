"""``daom replay``."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import click

from connectors.replaying import Entry, replaying
from connectors.sources import Source
from daom.cli.options import (
    EXIT_NOT_JUDGED,
    EXIT_STOPPED,
    brokers_option,
    config_option,
    configured,
    json_option,
    span_options,
)
from daom.cli.reading import (
    NONE_USABLE,
    Reading,
    is_shown,
    nothing_in,
    opened,
    progress_bar,
    refresh,
    tell_gaps,
)
from daom.cli.report import asked_for, report_options, write_report
from daom.cli.summary import ReplaySummary, print_summary
from daom.cli.verify import verify
from daom.codec import decode_output
from daom.config import Config, Preset
from daom.errors import SourceError
from daom.fold import add_counts
from daom.replay import Tally
from daom.span import Span


@click.command(name="replay")
@click.argument("source")
@config_option
@brokers_option
@span_options
@click.option(
    "--preset",
    type=click.Choice(get_args(Preset)),
    help="Judge by this preset instead of the configured one.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Processes that share the partitions of a topic [the cores, where it is worth it].",
)
@click.option(
    "--verify",
    "is_verified",
    is_flag=True,
    help="Compare with what the fleet wrote to its output topics, instead of telling it.",
)
@report_options
@json_option
def command(
    source: str,
    config_path: Path | None,
    brokers: str | None,
    span: Span,
    preset: str | None,
    jobs: int | None,
    *,
    is_verified: bool,
    as_json: bool,
    **report: Any,
) -> None:
    """Say what DAOM would have said of SOURCE.

    SOURCE is a recording in JSON Lines (.jsonl, .gz, .zst; - is standard input), a directory of
    them (read in the order of their names, as one log), or topic:NAME (topic: is the configured
    telemetry). Nothing is written anywhere, no consumer group is joined and no alert is sent.

    With --json every verdict, threshold, alert, suppression and root-cause trigger is one line;
    else a table. Of a topic's partitions it says what it has to say in the order in which the log
    took the records, whatever --jobs. What could not be used is one line on standard error, with a
    count at the end. After Ctrl-C there is what was said so far.

    --verify reads what a fleet wrote to its output topics and tells the first difference from what
    the topic makes due, or that there is none. A fold needs what was before: all partitions that
    are asked for are recomputed from their beginning, and compared in the range. It exits with 0 if
    there is no difference, with 1 if there is one, and with 3 if nobody can say.

    With --report a file shows it all in a browser, offline: every stream's time line, what fired
    and what was muted, beside what preset sits2026, a static threshold and settings of yours would
    have done (docs/report.md).

    \b
    Examples: daom replay recording.jsonl.gz
              daom replay recording.jsonl --json | jq 'select(.type == "alert")'
              daom replay topic: --since 7d
              daom replay topic:daom.telemetry --since 2026-11-30T08:00 --until 2026-11-30T20:00
              daom replay topic: --offsets 0:1000-2000 --preset sits2026
              daom replay topic: --since 1d --verify
              daom replay topic: --since 7d --report week.html --labels incidents.yaml
              daom replay week.jsonl.zst --report week.html --against quieter.yaml
    """
    config = configured(config_path, brokers, preset)
    options = asked_for(report, as_json=as_json)
    if is_verified and options.path is not None:
        raise click.UsageError("--verify and --report exclude another: give one of them")
    if is_verified:
        raise click.exceptions.Exit(verify(source, config, span, jobs, as_json=as_json))
    found = opened(source, config, span)
    if options.path is not None:
        raise click.exceptions.Exit(write_report(found, options, config, span, jobs))
    raise click.exceptions.Exit(_tell(found, config, span, jobs, as_json=as_json))


def _tell(found: Source, config: Config, span: Span, jobs: int | None, *, as_json: bool) -> int:
    """Print what would have been said, and what was odd; return the exit code."""
    reading, tally, summary = Reading(found), Tally(), None if as_json else ReplaySummary()
    code = 0
    try:
        with closing(_entries(reading, config, jobs, as_json=as_json)) as entries:
            for entry in entries:
                _print(entry, tally, summary)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough; what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        click.echo(f"daom: stopped; {reading.stopped()}", err=True)
        code = EXIT_STOPPED
    except SourceError:
        _conclude(reading, tally, summary)
        raise
    _conclude(reading, tally, summary)
    if not code and not reading.records:
        why = "" if tally.faults else nothing_in(found, span)
        click.echo(f"daom: {why or found.name + NONE_USABLE}", err=True)
        code = EXIT_NOT_JUDGED
    return code


def _entries(
    reading: Reading, config: Config, jobs: int | None, *, as_json: bool
) -> Generator[Entry, None, None]:
    shown = progress_bar(reading, hidden=not is_shown(as_json=as_json))
    with replaying(reading.source, config, jobs, reading.note) as entries, shown as progress:
        for number, entry in enumerate(entries):
            if number % 100 == 0:
                refresh(progress, reading)
            yield entry


def _print(entry: Entry, tally: Tally, summary: ReplaySummary | None) -> None:
    for kind, reason in entry.faults:
        tally.faults[kind] += 1
        click.echo(f"{entry.where}: {kind}: {reason}", err=True)
    for line in entry.said:
        if summary is None:
            sys.stdout.buffer.write(line + b"\n")
        else:
            summary.note(decode_output(line))


def _conclude(reading: Reading, tally: Tally, summary: ReplaySummary | None) -> None:
    """Print the table, and what was odd."""
    tally.records, tally.counted = reading.records, add_counts(reading.counted)
    if summary is not None and reading.records:
        print_summary(summary, tally)
    tell_gaps(reading.gaps)
    for kind, count in sorted(tally.faults.items()):
        click.echo(f"could not be used: {count} x {kind}", err=True)
