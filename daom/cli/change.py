"""``daom change``."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import click

from connectors.changes import tell_cells
from daom.changes import CHANGE_KINDS, change_event, change_fields
from daom.cli.options import brokers_option, config_option, configured, json_option
from daom.topics import Topics


@click.command(name="change")
@config_option
@brokers_option
@click.option("--model", required=True, help="Whose cells are told.")
@click.option("--kind", required=True, help=f"One of {', '.join(CHANGE_KINDS)}.")
@click.option("--version", help="What is there now, such as a release or an image.")
@click.option("--engine", help="The one engine that was changed; all of the model by default.")
@click.option("--detail", metavar="TEXT", help="A few words for whoever is paged later.")
@click.option(
    "--until", metavar="TIME|DURATION", help="When a maintenance ends, or how long it lasts."
)
@click.option("--at", metavar="TIME", help="When it happened, ISO 8601 or Unix seconds [now].")
@json_option
def command(
    config_path: Path | None, brokers: str | None, *, as_json: bool, **fields: str | None
) -> None:
    """Tell every cell of a model that something was changed.

    A drift that follows a change is put down to it first, and after a deploy, config, lora or
    accept a new reference is learned: accept says that what is there now is the normal. stop says
    that an engine is gone for good; maintenance mutes alerts until it ends. Prints the cells that
    were told. Exits with 3 if no broker answers.

    \b
    Examples: daom change --model llama-3-8b --kind deploy --version 2026-11-30
              daom change --model llama-3-8b --kind maintenance --until 45m --detail "new switches"
    """
    config = configured(config_path, brokers)
    change = change_event(fields, time.time())
    topics = Topics(config.kafka.topic_prefix)
    cells = asyncio.run(tell_cells(config.kafka.client(), topics, change))
    if as_json:
        click.echo(json.dumps({"cells": cells, **change_fields(change)}))
        return
    for cell in cells:
        click.echo(f"told {cell}: {change.words()}")
