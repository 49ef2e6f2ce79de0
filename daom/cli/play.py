"""``daom play``: to Kafka, or with --openai to a server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import click

from connectors.kafka import check_rights, wait_for_broker
from connectors.player import Played, play
from connectors.recordings import Line, read_lines, record_time_s
from daom.cli.options import brokers_option, config_option, configured, progress_of
from daom.codec import decode
from daom.config import Config
from daom.errors import MalformedRecord
from daom.topics import Topics

_BROKER_WAIT_S = 30.0


@click.command(name="play")
@click.argument("recording", type=click.Path(path_type=Path))
@config_option
@brokers_option
@click.option(
    "--speed",
    type=click.FloatRange(0.0, min_open=True),
    help="Event seconds a real second [max; with --openai 1].",
)
@click.option("--to-now", is_flag=True, help="Move the recording in time so that it ends now.")
@click.option("--openai", "url", metavar="URL", help="Send its requests to this server instead.")
@click.option("--model", help="With --openai: the model to ask for [the first that is served].")
@click.option("--limit", type=click.IntRange(1), help="With --openai: so many arrivals [all].")
@click.option("--seed", type=int, help="With --openai: of the prompts [0].")
@click.option(
    "--max-in-flight",
    type=click.IntRange(1),
    help="With --openai: arrivals beyond so many unanswered requests are skipped [256].",
)
@click.option(
    "--max-model-len",
    type=click.IntRange(2),
    help="With --openai: cut prompt and answer to so many tokens [what the server says].",
)
@click.option(
    "--prompt",
    type=click.Choice(["tokens", "words"]),
    help="With --openai: ids, exactly as many as recorded, or about as many words [tokens].",
)
@click.option(
    "--json", "as_json", is_flag=True, default=None, help="With --openai: print JSON for scripts."
)
def command(
    recording: Path,
    config_path: Path | None,
    brokers: str | None,
    *,
    speed: float | None,
    to_now: bool,
    url: str | None,
    **driving: Any,
) -> None:
    """Send a RECORDING to the telemetry topic as engines would, or its requests to a server.

    To Kafka, event times are kept, so the topic replays like the recording; --to-now moves them to
    the present, which a topic with a short retention needs.

    With --openai URL the requests are sent, as streaming completions, to a server that speaks
    OpenAI's API, when they came (--speed times faster), whether or not earlier ones are answered:
    load for an engine that is watched, to provoke drift with. RECORDING may then also be a trace of
    Azure's (CSV) or Mooncake's (JSON Lines). OPENAI_API_KEY is sent if it is set.

    \b
    Examples: daom play tests/data/burstgpt/light_to_overload.jsonl.gz --speed 60 --to-now
              daom play AzureLLMInferenceTrace_conv.csv --openai http://127.0.0.1:8000 --speed 2
    """
    if url is None:
        given = [name for name, value in driving.items() if value is not None]
        if given:
            option = given[0].removeprefix("as_").replace("_", "-")
            raise click.UsageError(f"--{option} needs --openai")
        _play(recording, configured(config_path, brokers), speed, to_now=to_now)
        return
    if to_now or brokers:
        raise click.UsageError(
            f"--{'to-now' if to_now else 'brokers'} and --openai exclude another"
        )
    _drive(recording, url, speed, **driving)


def _drive(recording: Path, url: str, speed: float | None, **driving: Any) -> None:
    from connectors.openai_load import Load  # noqa: PLC0415 - an extra.
    from daom.cli.drive import drive_server  # noqa: PLC0415

    as_asked = {
        "speed": speed,
        "max_in_flight": driving["max_in_flight"],
        "max_tokens": driving["max_model_len"],
        "prompt": driving["prompt"],
        "seed": driving["seed"],
    }
    load = Load(**{name: value for name, value in as_asked.items() if value is not None})
    drive_server(
        recording,
        url,
        driving["model"],
        load,
        driving["limit"],
        as_json=bool(driving["as_json"]),
    )


def _play(recording: Path, config: Config, speed: float | None, *, to_now: bool) -> None:
    topic = Topics(config.kafka.topic_prefix).telemetry
    lines = list(read_lines(recording))
    times_s = [time_s for line in lines if (time_s := line_time_s(line)) is not None]
    span_s = max(times_s) - min(times_s) if times_s else 0.0
    shift_s = 0.0
    if to_now and times_s:
        shift_s = time.time() + span_s * (1.0 / speed if speed else 0.0) - max(times_s)
    with progress_of("records") as progress:
        task = progress.add_task(f"{recording.name} -> {topic}", total=len(lines))

        def advance(played: Played) -> None:
            progress.update(task, completed=played.records)

        async def send() -> int:
            client = config.kafka.client()
            await wait_for_broker(client, _BROKER_WAIT_S)
            await check_rights(client, {topic: ("Write",)})
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
