"""``daom convert``: published measurements of vLLM engines into recordings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from connectors.burstgpt import DEMO_START_S, BurstGptLoad, convert_burstgpt
from connectors.llmservingsim import convert_llmservingsim
from connectors.recordings import write_recording
from daom.codec import encode_json
from daom.events import Record

_folder = click.Path(path_type=Path, exists=True, file_okay=False)
_model = click.option("--model", default="llm", show_default=True, help="Model to name.")
_engine = click.option("--engine", default="gpu-0", show_default=True, help="Engine to name.")
_start = click.option(
    "--start", "start_s", default=DEMO_START_S, show_default=True, help="Unix time to begin at."
)


@click.group(name="convert")
def command() -> None:
    """Turn published measurements of vLLM into recordings."""


@command.command()
@click.argument("folder", type=_folder)
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--scales", default="100", show_default=True, help="Loads to string together.")
@_model
@_engine
@_start
def burstgpt(
    folder: Path, output: Path, scales: str, model: str, engine: str, start_s: float
) -> None:
    """Convert loads of the BurstGPT replay in FOLDER to the recording OUTPUT.

    \b
    Example: daom convert burstgpt burstgpt_vllm_replay overload.jsonl.gz --scales 100,100,1500
    """
    try:
        loads = [BurstGptLoad.of_scale(folder, int(scale)) for scale in scales.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"got {scales!r}; such as 100,100,1500 is needed") from error
    _write(convert_burstgpt(loads, model=model, engine=engine, start_s=start_s), output)


@command.command()
@click.argument("folder", type=_folder)
@click.argument("output", type=click.Path(path_type=Path))
@_model
@_engine
@_start
def llmservingsim(folder: Path, output: Path, model: str, engine: str, start_s: float) -> None:
    """Convert a measured run of LLMServingSim in FOLDER to the recording OUTPUT.

    \b
    Example: daom convert llmservingsim RTX4090/Llama-3.1-8B/vllm run.jsonl.gz
    """
    _write(convert_llmservingsim(folder, model=model, engine=engine, start_s=start_s), output)


def _write(records: Iterable[Record], output: Path) -> None:
    count = write_recording(output, (encode_json(record) for record in records))
    click.echo(f"{output}: {count} records")
