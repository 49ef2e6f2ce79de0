"""``daom config check|show|schema``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from connectors.probe_settings import probe_section
from daom.cli.options import config_option, configured
from daom.config import config_schema, config_yaml


@click.group(name="config")
def command() -> None:
    """Check, show and describe the configuration."""


@command.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@config_option
def check(file: Path | None, config_path: Path | None) -> None:
    """Say whether FILE (and the environment) is a valid configuration, the files it names included.

    \b
    Example: daom config check daom.yaml
    """
    path = file or config_path
    origin = str(path or "the environment")
    config = configured(path)
    config.kafka.client()
    config.bridge.sink_options()
    probe_section(config.probe, origin)
    click.echo(f"{origin}: valid")


@command.command()
@config_option
def show(config_path: Path | None) -> None:
    """Print the configuration in force, defaults included, as YAML; secrets are masked.

    \b
    Example: DAOM_ALERTS__PENDING_S=30 daom config show > daom.yaml
    """
    click.echo(config_yaml(configured(config_path)), nl=False)


@command.command()
def schema() -> None:
    """Print the JSON Schema (2020-12) of the configuration file.

    \b
    Example: daom config schema > daom.schema.json
    """
    click.echo(json.dumps(config_schema(), indent=2))
