"""``daom worker``."""

from __future__ import annotations

from pathlib import Path

import click

from daom.cli.options import brokers_option, config_option, configured
from daom.logs import log_to_stderr
from daom.service import run_worker


@click.command(name="worker")
@config_option
@brokers_option
def command(config_path: Path | None, brokers: str | None) -> None:
    """Run one stream worker; start as many as you like.

    Workers of one group share the partitions of the telemetry topic. SIGTERM saves, commits and
    leaves; after a kill the next owner goes on from the last checkpoint and says the same again
    under the same ids.

    \b
    Example: daom worker --config daom.yaml
    """
    config = configured(config_path, brokers)
    log_to_stderr()
    run_worker(config)
