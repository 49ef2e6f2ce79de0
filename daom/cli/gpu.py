"""``daom gpu``."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from connectors.gpu_engines import Host
from connectors.nvml import GpuReading, Gpus
from connectors.probe_settings import probe_section
from daom.cli.options import (
    EXIT_NOT_JUDGED,
    Seconds,
    brokers_option,
    config_option,
    configured,
    json_option,
)
from daom.cli.reporting import reporting, stop_event
from daom.config import Config
from daom.errors import GpusUnavailable, MissingExtra
from daom.events import GpuSample
from daom.logs import log_to_stderr
from daom.topics import Topics

_LOOK_AGAIN_S: Final = 2.0


@click.command(name="gpu")
@config_option
@brokers_option
@click.option("--model", help="Model of the engines; not needed where their processes name it.")
@click.option("--engine", help="Engine that runs on the GPUs; needs --model.")
@click.option("--gpus", "choice", help="Indexes or UUIDs with commas between [default: all].")
@click.option("--host", help="Name of this host as the engines report it [default: its name].")
@click.option("--interval", "interval_s", type=Seconds(), default="1s", show_default=True)
@click.option("--once", is_flag=True, help="Print one reading, and whose it is; send nothing.")
@click.option("--wait", is_flag=True, help="Wait for a driver instead of giving up.")
@json_option
def command(
    config_path: Path | None,
    brokers: str | None,
    model: str | None,
    engine: str | None,
    choice: str | None,
    host: str | None,
    interval_s: float,
    *,
    once: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Send what this host's GPUs say to the telemetry topic, for engines without the plugin.

    Whose GPU it is: --engine says so; else the environment of the processes on it
    (DAOM_PROBE__MODEL, DAOM_PROBE__ENGINE); else a reading is of all engines of --model on this
    host. Exits with 3 if there is no GPU, no driver or no pynvml.

    \b
    Example: daom gpu --once
             daom gpu --model llama-3-8b --wait
    """
    if engine is not None and model is None:
        raise click.UsageError("--engine needs --model")
    if as_json and not once:
        raise click.UsageError("--json needs --once")
    owner = Host(host or socket.gethostname(), model, engine)
    stopping = stop_event()
    gpus = _opened(choice, stopping, wait=wait)
    if gpus is None:
        return
    if once:
        _print(gpus.read(), owner, as_json=as_json)
    else:
        _send(gpus, owner, configured(config_path, brokers), interval_s, stopping)


def _send(
    gpus: Gpus, owner: Host, config: Config, interval_s: float, stopping: threading.Event
) -> None:
    owner = dataclasses.replace(owner, cells=probe_section(config.probe).cells)

    def collect() -> list[tuple[str, GpuSample]]:
        return owner.samples(gpus.read(), time.time())

    log_to_stderr()
    topic = Topics(config.kafka.topic_prefix).telemetry
    number = f"{len(gpus)} GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    click.echo(f"daom: reading {number} every {interval_s:g} s -> {topic}", err=True)
    if not collect():
        click.echo("daom: no process on them names its engine yet; --model names it", err=True)
    with reporting(config, collect, period_s=interval_s):
        stopping.wait()


def _opened(choice: str | None, stopping: threading.Event, *, wait: bool) -> Gpus | None:
    """Return the GPUs, once they are there; None if the wait was broken off."""
    waiting = False
    while not stopping.is_set():
        try:
            return Gpus(choice)
        except (GpusUnavailable, MissingExtra) as error:
            # No waiting brings a library.
            if not wait or isinstance(error, MissingExtra):
                click.echo(f"daom: {error}", err=True)
                raise click.exceptions.Exit(EXIT_NOT_JUDGED) from error
            if not waiting:
                click.echo(f"daom: {error}; waiting for it", err=True)
            waiting = True
        stopping.wait(_LOOK_AGAIN_S)
    return None


def _print(readings: Sequence[GpuReading], owner: Host, *, as_json: bool) -> None:
    time_s = time.time()
    samples = [sample for _, sample in owner.samples(readings, time_s)]
    if as_json:
        gpus = [dict(reading.values) for reading in readings]
        engines = [
            {"model": s.source.model, "engine": s.source.engine, "gpus": _uuids(s)} for s in samples
        ]
        told = {"time_s": time_s, "host": owner.name, "gpus": gpus, "engines": engines}
        click.echo(json.dumps(told))
        return
    names = list(dict.fromkeys(name for reading in readings for name in reading.values))
    table = Table("", *(str(r.values.get("index", "?")) for r in readings), title="GPUs")
    for name in names:
        table.add_row(name, *(_words(r.values.get(name)) for r in readings))
    Console().print(table)
    for sample in samples:
        whose = sample.source.engine or f"all engines on {owner.name}"
        click.echo(f"{sample.source.model}, {whose}: {', '.join(_uuids(sample))}")
    if not samples:
        click.echo("whose they are: no process on them says so, and no --model was given")


def _uuids(sample: GpuSample) -> list[str]:
    return [str(gpu.get("uuid", "?")) for gpu in sample.gpus]


def _words(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.6g}" if value % 1 else f"{value:,.0f}"
