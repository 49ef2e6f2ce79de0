"""``daom replay --verify``: whether a fleet said what a replay says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from itertools import zip_longest

import click

from connectors.kafka import Client, describe_topics, read_topic
from connectors.replaying import side_by_side
from connectors.sources import TOPIC, Source, TopicPart
from connectors.verifying import Written, explain, owed
from daom.cli.reading import Reading, is_shown, opened, progress_bar, refresh, spinner
from daom.cli.verified import EXITS, Verified
from daom.config import Config
from daom.ledger import Rows, Scope, compare
from daom.span import Span
from daom.topics import Topics
from streams.checkpoint import MARKER_KEY, decode_marker


def verify(source: str, config: Config, span: Span, jobs: int | None, *, as_json: bool) -> int:
    """Compare what a fleet wrote with what ``source`` makes due; print it; return the exit code.

    Args:
        source: ``topic:NAME``.
        config: As the fleet had it; its prefix says where the outputs are.
        span: What of the topic is compared; the state that this takes comes from before it.
        jobs: How many processes recompute, as for a replay.
        as_json: Print JSON.
    """
    if not source.startswith(TOPIC):
        raise click.UsageError(f"--verify compares what a topic makes due; got {source}")
    client, topics = config.kafka.client(), Topics(config.kafka.topic_prefix)
    # In this order: what is promised has been said by the time that it is read, and what it
    # follows from is in the log by the time that the log is.
    promised = asyncio.run(_promised(client, topics))
    written = Written(client, topics)
    with spinner(quiet=not is_shown(as_json=as_json)) as progress:
        progress.add_task(f"outputs of {topics.prefix}")
        written.update()
    meant = _partitions(opened(source, config, span))
    everything = opened(source, config)
    whole = _partitions(everything)
    parts = {number: whole[number] for number in meant}
    reading = Reading(Source(source, tuple(parts.values()), everything.newest_s))
    right, ranges = _recompute(reading, config, meant, jobs, as_json=as_json)
    scope = Scope(
        ranges=ranges,
        said_before=promised,
        cut=[number for number, part in parts.items() if part.start > 0],
        is_whole=len(parts) == len(whole),
        kept=written.kept,
    )
    found = compare(right, written.rows, scope)
    first = None
    if found.first is not None:
        first = explain(config, parts, right, written.rows, found.first)
    result = Verified(reading.records, parts, scope, found, first)
    click.echo(json.dumps(result.report()) if as_json else "\n".join(result.lines()))
    return EXITS[result.outcome]


def _partitions(source: Source) -> dict[int, TopicPart]:
    return {part.partition: part for part in source.parts if isinstance(part, TopicPart)}


async def _promised(client: Client, topics: Topics) -> dict[int, int]:
    """Return by partition the offset before which all has been said: a checkpoint's promise."""
    if not await describe_topics(client, [topics.checkpoints]):
        return {}
    promised = {}
    async with aclosing(read_topic(client, topics.checkpoints)) as records:
        async for record in records:
            if record.key == MARKER_KEY and record.value is not None:
                promised[record.partition] = decode_marker(record.value).offset
    return promised


def _recompute(
    reading: Reading,
    config: Config,
    meant: Mapping[int, TopicPart],
    jobs: int | None,
    *,
    as_json: bool,
) -> tuple[Rows, dict[int, tuple[int, int]]]:
    """Return what the partitions make due, and which offsets of each are meant."""
    right = Rows(Topics(config.kafka.topic_prefix).said)
    ranges: dict[int, tuple[int, int]] = {}
    parts = [part for part in reading.source.parts if isinstance(part, TopicPart)]
    shown = progress_bar(reading, hidden=not is_shown(as_json=as_json))
    with side_by_side(parts, config, partial(owed, meant), jobs) as streams, shown as progress:
        # A chunk of each in turn: so no process waits until another part is read.
        for chunks in zip_longest(*streams):
            for number, chunk in enumerate(chunks):
                if chunk is None:
                    continue
                right.extend(chunk.rows)
                reading.note(number, chunk)
                if chunk.meant is not None:
                    ranges[parts[number].partition] = chunk.meant
            refresh(progress, reading)
    return right, ranges
