"""``daom replay``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import get_args

import click

from connectors.kafka import read_topic
from daom.cli.options import EXIT_NOT_JUDGED, brokers_option, config_option, configured, json_option
from daom.cli.reading import spinner, values_of
from daom.cli.summary import ReplaySummary, print_summary
from daom.codec import encode_output
from daom.config import Config, Preset
from daom.events import Output
from daom.fold import Fold, add_counts
from daom.presets import cell_settings
from daom.replay import Fault, Sourced, Tally, replay
from daom.topics import Topics

_TOPIC = "topic:"


@click.command(name="replay")
@click.argument("source")
@config_option
@brokers_option
@click.option(
    "--preset",
    type=click.Choice(get_args(Preset)),
    help="Judge by this preset instead of the configured one.",
)
@json_option
def command(
    source: str, config_path: Path | None, brokers: str | None, preset: str | None, *, as_json: bool
) -> None:
    """Say what DAOM would have said of SOURCE: a recording, or topic:NAME (topic: the configured).

    A recording is JSON Lines (.jsonl, .gz, .zst; - is standard input). Nothing is written anywhere,
    no consumer group is joined and no alert is sent. With --json every verdict, threshold, alert,
    suppression and root-cause trigger is one line; else a table. What could not be used is one line
    on standard error, with a count at the end.

    \b
    Examples: daom replay recording.jsonl.gz
              daom replay recording.jsonl --json | jq 'select(.type == "alert")'
              daom replay topic:daom.telemetry --preset sits2026
    """
    config = configured(config_path, brokers, preset)
    tally = Tally()
    try:
        _print(_items(source, config, tally, quiet=as_json), tally, as_json=as_json)
    except BrokenPipeError:
        # Whoever read the output has seen enough; what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    for kind, count in sorted(tally.faults.items()):
        click.echo(f"could not be used: {count} x {kind}", err=True)
    if not tally.records:
        click.echo(f"daom: {source} holds no record that could be judged", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)


def _print(items: Iterator[Output | Fault], tally: Tally, *, as_json: bool) -> None:
    summary = ReplaySummary()
    for item in items:
        if isinstance(item, Fault):
            click.echo(f"{item.where}: {item.reason.kind}: {item.reason}", err=True)
        elif as_json:
            sys.stdout.buffer.write(encode_output(item) + b"\n")
        else:
            summary.note(item)
    sys.stdout.flush()
    if not as_json:
        print_summary(summary, tally)


def _items(source: str, config: Config, tally: Tally, *, quiet: bool) -> Iterator[Output | Fault]:
    if source.startswith(_TOPIC):
        yield from _topic_items(source.removeprefix(_TOPIC), config, tally)
        return
    fold = Fold(cell_settings(config), config.worker.max_message_bytes)
    with spinner(quiet=quiet) as progress:
        task = progress.add_task(source)
        for number, item in enumerate(replay(values_of(source), fold, tally)):
            if number % 1_000 == 0:
                progress.update(task, description=f"{source}: {tally.records} records")
            yield item


def _topic_items(name: str, config: Config, tally: Tally) -> Iterator[Output | Fault]:
    """Read a topic to its present end; every partition is a fold of its own."""
    topic = name or Topics(config.kafka.topic_prefix).telemetry
    folds: dict[int, Fold] = {}
    settings = cell_settings(config)

    async def collect() -> Batches:
        async with aclosing(read_topic(config.kafka.client(), topic)) as records:
            async for record in records:
                fold = folds.get(record.partition)
                if fold is None:
                    fold = Fold(settings, config.worker.max_message_bytes)
                    folds[record.partition] = fold
                where = f"{topic} partition {record.partition} offset {record.offset}"
                key = (record.key or b"").decode(errors="replace")
                sourced = Sourced(where, record.value, key, record.timestamp / 1_000.0)
                yield list(replay([sourced], fold, tally))
        tally.counted = add_counts(fold.counters() for fold in folds.values())

    with asyncio.Runner() as runner:
        batches = collect()
        try:
            while (batch := runner.run(_next_of(batches))) is not None:
                yield from batch
        finally:
            runner.run(_close(batches))


Batches = AsyncGenerator[list[Output | Fault], None]


async def _next_of(batches: Batches) -> list[Output | Fault] | None:
    return await anext(batches, None)


async def _close(batches: Batches) -> None:
    await batches.aclose()
