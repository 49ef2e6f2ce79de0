"""``daom broker``."""

from __future__ import annotations

import signal
import threading

import click

from connectors.embedded_broker import EmbeddedBroker


@click.command(name="broker")
@click.option("--port", default=9092, show_default=True, help="Port to listen on; 0 picks one.")
def command(port: int) -> None:
    """Run the embedded Kafka-compatible broker, for development.

    It keeps everything in memory: when it ends, all is gone.

    \b
    Example: daom broker --port 9092
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with EmbeddedBroker(port) as broker:
        click.echo(broker.bootstrap_servers)
        while broker.running and not stop.wait(1.0):
            pass
