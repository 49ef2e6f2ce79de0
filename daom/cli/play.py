"""``daom play``."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from connectors.kafka import wait_for_broker
from connectors.player import Played, play
from connectors.recordings import Line, read_lines, record_time_s
from daom.cli.options import brokers_option, config_option, configured
from daom.codec import decode
from daom.errors import MalformedRecord
from daom.topics import Topics

_BROKER_WAIT_S = 30.0


@click.command(name="play")
@click.argument("recording", type=click.Path(path_type=Path))
@config_option
@brokers_option
@click.option(
    "--speed", type=click.FloatRange(0.0, min_open=True), help="Event seconds a real second [max]."
)
@click.option("--to-now", is_flag=True, help="Move the recording in time so that it ends now.")
def command(
    recording: Path,
    config_path: Path | None,
    brokers: str | None,
    speed: float | None,
    *,
    to_now: bool,
) -> None:
    """Send a RECORDING to the telemetry topic, as engines would.

    Event times are kept, so the topic replays like the recording; --to-now moves them to the
    present, which a topic with a short retention needs.

    \b
    Example: daom play tests/data/burstgpt/light_to_overload.jsonl.gz --speed 60 --to-now
    """
    config = configured(config_path, brokers)
    topic = Topics(config.kafka.topic_prefix).telemetry
    lines = list(read_lines(recording))
    times_s = [time_s for line in lines if (time_s := line_time_s(line)) is not None]
    span_s = max(times_s) - min(times_s) if times_s else 0.0
    shift_s = 0.0
    if to_now and times_s:
        shift_s = time.time() + span_s * (1.0 / speed if speed else 0.0) - max(times_s)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} records"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"{recording.name} -> {topic}", total=len(lines))

        def advance(played: Played) -> None:
            progress.update(task, completed=played.records)

        async def send() -> int:
            client = config.kafka.client()
            await wait_for_broker(client, _BROKER_WAIT_S)
            return await play(
                lines, client, topic, speed=speed, shift_s=shift_s, on_progress=advance
            )

        sent = asyncio.run(send())
    click.echo(f"sent {sent} records to {topic}")


def line_time_s(line: Line) -> float | None:
    """Return the event time of a line; None if it is no record."""
    try:
        return record_time_s(decode(line.value).record)
    except MalformedRecord:
        return None
