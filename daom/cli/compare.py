"""``daom compare``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

import click
from rich.progress import Progress

from connectors.sources import Source, in_log_order
from daom.cli.compared import print_result, report
from daom.cli.options import (
    EXIT_NOT_JUDGED,
    brokers_option,
    config_option,
    configured,
    json_option,
    span_options,
)
from daom.cli.reading import opened, spinner
from daom.compare import JudgedOn, Outcome, Result, compare
from daom.config import Config
from daom.gathered import Gathered, Measure, Selection, gather, measures_of, unknown_name
from daom.labels import Moment, moment_of
from daom.replay import Sourced
from daom.span import Span
from daom.tolerances import Tolerances, read_tolerances

_EXITS: Final[dict[Outcome, int]] = {
    "within": 0,
    "compared": 0,
    "beyond": 1,
    "undecided": EXIT_NOT_JUDGED,
    "insufficient": EXIT_NOT_JUDGED,
}
_BY: Final = ("engine", "version", "model", "time")
_EVERY: Final = 500
"""The progress moves once in so many records."""


@click.command(name="compare")
@click.argument("sources", nargs=-1, required=True, metavar="A [B]")
@click.option(
    "--by",
    type=(click.Choice(_BY), str, str),
    metavar="engine|version|model|time A B",
    help="What tells the sides apart; a time is FROM/TO, in ISO 8601, Unix seconds, or +10m: "
    "since the recording's start.",
)
@click.option(
    "--tolerances",
    "tolerances_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML: {ttft_s: {p95: 5ms, p99: 10%}}; without it differences are told only.",
)
@click.option("--model", help="Compare this model alone.")
@click.option("--engine", help="Compare this engine alone.")
@click.option("--version", help="Compare this deployed version alone.")
@click.option("--signal", "signals", multiple=True, help="Compare this column alone; repeatable.")
@click.option(
    "--judge",
    "judged_on",
    type=click.Choice(get_args(JudgedOn)),
    default="service",
    show_default=True,
    help="Judge the difference at equal workload, or as it is.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=0.95,
    show_default=True,
    help="Of the intervals, and of the verdict.",
)
@config_option
@brokers_option
@span_options
@json_option
def command(
    sources: tuple[str, ...],
    by: tuple[str, str, str] | None,
    tolerances_path: Path | None,
    model: str | None,
    engine: str | None,
    version: str | None,
    signals: tuple[str, ...],
    judged_on: JudgedOn,
    confidence: float,
    config_path: Path | None,
    brokers: str | None,
    span: Span,
    *,
    as_json: bool,
) -> None:
    """Say by how much B differs from A, what that comes from, and whether it may.

    A and B are what "daom replay" reads: recordings, directories of them, topic:NAME; or, of one or
    two of these, what --by tells apart. --since, --until and --offsets are of both.

    For mean, P50, P95 and P99 of every signal: the difference B - A with an interval that heeds
    dependence, the same at equal workload, and whether it keeps within the tolerance.

    Exits with 0 if all is within its tolerance (or there are none), with 1 if something is beyond,
    and with 3 if it takes more samples to say.

    \b
    Examples: daom compare before.jsonl.gz after.jsonl.gz
              daom compare run.jsonl.gz --by version v1 v2 --tolerances canary.yaml
              daom compare run.jsonl.gz --by engine gpu-0 gpu-1 --signal ttft_s --json
              daom compare run.jsonl.gz --by time +0m/+10m +10m/+20m
              daom compare topic: --since 1h --by version v1 v2 --tolerances canary.yaml
    """
    config = configured(config_path, brokers)
    tolerances = {} if tolerances_path is None else read_tolerances(tolerances_path)
    if signals:
        tolerances = {name: of for name, of in tolerances.items() if name in signals}
    measures = measures_of(config, tolerances, signals)
    base = Selection(model=model, engine=engine, version=version)
    a, b = _sides(sources, by, base, measures)
    _read([opened(source, config, span) for source in sources], a, b, config)
    result = _compared(a, b, tolerances, confidence, judged_on)
    if as_json:
        click.echo(json.dumps(report(result, (a.name, b.name), confidence, judged_on)))
    else:
        print_result(result, (a.name, b.name), confidence, judged_on)
    if _EXITS[result.outcome]:
        raise click.exceptions.Exit(_EXITS[result.outcome])


def _sides(
    sources: Sequence[str],
    by: tuple[str, str, str] | None,
    base: Selection,
    measures: Sequence[Measure],
) -> tuple[Gathered, Gathered]:
    """Return both sides, still empty."""
    if len(sources) > 2:  # noqa: PLR2004 - A and B.
        raise click.UsageError(f"got {len(sources)} sources; A and B are two at most")
    if by is None:
        if len(sources) == 1:
            raise click.UsageError("got one source; give B, or --by to divide it: --by engine A B")
        if sources[0] == sources[1]:
            raise click.UsageError(f"A and B are the same: {sources[0]}; divide it by --by")
    elif by[0] != "time" and getattr(base, by[0]) is not None:
        raise click.UsageError(f"--{by[0]} and --by {by[0]} contradict one another")
    elif by[1] == by[2] and len(set(sources)) == 1:
        raise click.UsageError(f"A and B are the same: {by[0]} {by[1]} of {sources[0]}")
    if sources.count("-") > 1:
        raise click.UsageError("standard input can be read once only; give a file")
    names = (sources[0], sources[-1])
    found = []
    for number, name in enumerate(names):
        selection, label = base, name
        if by is not None:
            selection, label = _selection(by[0], by[1 + number], base), f"{by[0]} {by[1 + number]}"
            if len(sources) > 1:
                label = f"{name}, {label}"
        found.append(Gathered(label, name, selection, measures))
    return found[0], found[1]


def _selection(what: str, name: str, base: Selection) -> Selection:
    if what != "time":
        return Selection(
            model=name if what == "model" else base.model,
            engine=name if what == "engine" else base.engine,
            version=name if what == "version" else base.version,
        )
    texts = name.split("/")
    moments = [moment_of(text) if text else None for text in texts]
    if len(texts) != 2 or any(m is None and t for m, t in zip(moments, texts, strict=True)):  # noqa: PLR2004
        raise click.BadParameter(
            f"got {name!r}; FROM/TO is needed, each ISO 8601 (UTC unless it says otherwise), Unix "
            "seconds, since the recording's start such as +10m, or nothing",
            param_hint="--by time",
        )
    since, until = moments
    if _is_empty(since, until):
        raise click.BadParameter(f"got {name!r}; it ends before it begins", param_hint="--by time")
    return replace(base, since=since, until=until)


def _is_empty(since: Moment | None, until: Moment | None) -> bool:
    if since is None or until is None or since.is_relative != until.is_relative:
        return False
    return until.time_s <= since.time_s


def _read(sources: Sequence[Source], a: Gathered, b: Gathered, config: Config) -> None:
    """Gather both sides; a source that is both sides' is read once."""
    readings: list[tuple[Source, list[Gathered]]] = [(sources[0], [a, b])]
    if len(sources) > 1 and sources[0].name != sources[1].name:
        readings = [(sources[0], [a]), (sources[1], [b])]
    faults = Counter[str]()
    limits, max_bytes = config.limits.limits(), config.worker.max_message_bytes
    with spinner() as progress:
        for source, sides in readings:
            gather(_counted(source, progress), sides, faults, limits, max_bytes)
    for kind, count in sorted(faults.items()):
        click.echo(f"could not be used: {count} x {kind}", err=True)


def _counted(source: Source, progress: Progress) -> Iterator[Sourced]:
    task = progress.add_task(source.name)
    for number, sourced in enumerate(in_log_order(source)):
        if number % _EVERY == 0:
            progress.update(task, description=f"{source.name}: {number:,} records")
        yield sourced


def _compared(
    a: Gathered,
    b: Gathered,
    tolerances: Tolerances,
    confidence: float,
    judged_on: JudgedOn,
) -> Result:
    for side in (a, b):
        unknown = unknown_name(side)
        if unknown is not None and side.first_s is not None:
            raise click.UsageError(unknown)
    empty = [f"{n} ({side.name})" for n, side in (("A", a), ("B", b)) if not side.models]
    if empty:
        only = a.buckets | b.buckets
        hint = (
            f"; {', '.join(sorted(only))} came as bucket counts, which tell no quantiles"
            if only
            else ""
        )
        click.echo(f"daom: insufficient: no samples in {' or '.join(empty)}{hint}", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)
    result = compare(a, b, tolerances, confidence=confidence, judged_on=judged_on)
    if not result.signals:
        there = ", ".join(dict.fromkeys(measure.name for measure in a.measures))
        click.echo(f"daom: insufficient: neither side has any of {there}", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)
    return result
