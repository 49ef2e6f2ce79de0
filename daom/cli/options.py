"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from daom.config import Config, load_config

EXIT_WRONG_USAGE: Final = 2
EXIT_NOT_JUDGED: Final = 3

config_option: Final = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="DAOM_CONFIG",
    help="YAML file with the settings; every value can be overridden by the environment.",
)

json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for scripts instead of text for people."
)

brokers_option: Final = click.option(
    "--brokers", metavar="HOST:PORT,...", help="Kafka to use, instead of the configured one."
)


def configured(
    config_path: Path | None, brokers: str | None = None, preset: str | None = None
) -> Config:
    """Return the configuration that a command runs under; options override the environment."""
    options = {"DAOM_KAFKA__BOOTSTRAP_SERVERS": brokers, "DAOM_PRESET": preset}
    given = {name: value for name, value in options.items() if value is not None}
    return load_config(config_path, {**os.environ, **given})
