"""``daom bridge alertmanager``."""

from __future__ import annotations

from pathlib import Path

import click

from daom.cli.options import brokers_option, config_option, configured
from daom.logs import log_to_stderr
from daom.service import run_alertmanager_bridge


@click.group(name="bridge")
def command() -> None:
    """Carry alerts from Kafka to where people are paged."""


@command.command()
@config_option
@brokers_option
@click.option(
    "--url", "urls", multiple=True, help="Base URL of a replica; repeat it for every replica."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=0, help="Port of /metrics, /healthz and /readyz; none unless given."
)
def alertmanager(
    config_path: Path | None, brokers: str | None, urls: tuple[str, ...], host: str, port: int
) -> None:
    """Feed Alertmanager from the alert topic.

    Its state is the topic's: it may be restarted at any time. Firing alerts are sent again every
    minute, as Prometheus does, and resolves are repeated; every replica is sent everything.

    \b
    Example: daom bridge alertmanager --url http://am-0:9093 --url http://am-1:9093
    """
    config = configured(config_path, brokers)
    if urls:
        bridge = config.bridge.model_copy(update={"alertmanagers": urls})
        config = config.model_copy(update={"bridge": bridge})
    log_to_stderr()
    run_alertmanager_bridge(config, host, port)
