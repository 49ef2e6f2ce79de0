"""``daom play --openai``: what it needs, shows and says at the end."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from connectors.arrivals import Arrival, read_arrivals
from daom.cli.options import EXIT_NOT_JUDGED, progress_of
from daom.errors import ConfigError
from daom.service import until_stopped

if TYPE_CHECKING:
    from connectors.openai_load import Driven, Load, Model

KEY_VARIABLE = "OPENAI_API_KEY"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def drive_server(
    trace: Path, url: str, model: str | None, load: Load, limit: int | None, *, as_json: bool
) -> None:
    """Send the arrivals of ``trace`` to the server at ``url``, and print how it answered.

    Raises:
        SourceError: If ``trace`` holds no arrivals.
        ConfigError: If the server does not serve ``model``.
        SinkUnavailable: If it does not answer.
    """
    from connectors.openai_load import Driven  # noqa: PLC0415 - an extra.

    arrivals = read_arrivals(trace, limit)
    driven = Driven()
    with progress_of("requests") as progress:
        bar = progress.add_task(f"{trace.name} -> {url}", total=len(arrivals))

        def advance() -> None:
            progress.update(bar, completed=driven.arrived)

        # What was answered until Ctrl-C is worth its summary, too.
        asyncio.run(until_stopped(lambda: _drive(url, model, arrivals, load, driven, advance)))
    if as_json:
        click.echo(json.dumps(summary(driven)))
    else:
        _print(driven)
    if not driven.e2e_s:
        click.echo("daom: no request was answered", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)


async def _drive(
    url: str,
    model: str | None,
    arrivals: Sequence[Arrival],
    load: Load,
    driven: Driven,
    advance: Callable[[], None],
) -> None:
    from connectors.openai_load import drive, open_server  # noqa: PLC0415 - an extra.

    async with open_server(url, os.environ.get(KEY_VARIABLE)) as server:
        served = chosen(await server.models(), model)
        load = dataclasses.replace(load, max_tokens=load.max_tokens or served.max_tokens)
        await drive(server, served.name, arrivals, load, driven, advance)


def chosen(models: list[Model], name: str | None) -> Model:
    """Return the model called ``name``, or the first.

    Raises:
        ConfigError: If there is none.
    """
    found = next((model for model in models if name in {None, model.name}), None)
    if found is None:
        served = ", ".join(model.name for model in models) or "nothing"
        raise ConfigError(f"--model: got {name!r}; the server serves {served}")
    return found


def summary(driven: Driven) -> dict[str, Any]:
    """Return what happened, for scripts; times as the client saw them, in seconds."""
    return {
        "arrived": driven.arrived,
        "sent": driven.sent,
        "skipped": driven.skipped,
        "cut": driven.cut,
        "answered": len(driven.e2e_s),
        "failed": driven.failed.total(),
        "failures": dict(driven.failed.most_common()),
        "output_tokens": driven.output_tokens,
        "ttft_s": _quantiles(driven.ttft_s),
        "e2e_s": _quantiles(driven.e2e_s),
    }


def _quantiles(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    found = np.quantile(values, list(QUANTILES.values()))
    return dict(zip(QUANTILES, map(float, found), strict=True))


def _print(driven: Driven) -> None:
    said = summary(driven)
    counts = ("arrived", "sent", "answered", "failed", "skipped", "cut", "output_tokens")
    click.echo(", ".join(f"{said[name]} {name.replace('_', ' ')}" for name in counts))
    for reason, count in driven.failed.most_common():
        click.echo(f"failed: {count} x {reason}")
    if driven.e2e_s:
        table = Table("as the client saw it", *(f"{name.upper()} s" for name in QUANTILES))
        for name in ("ttft_s", "e2e_s"):
            table.add_row(name, *(f"{value:.4g}" for value in said[name].values()))
        Console().print(table)
