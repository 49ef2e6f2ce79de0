"""What the agents share: they report until they are told to stop, and say how much it was."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import click

from connectors.kafka import check_access
from connectors.reporter import PERIOD_S, Reporter
from daom.config import Config
from daom.events import Record
from daom.topics import Topics


def stop_event() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


@contextmanager
def reporting(
    config: Config,
    collect: Callable[[], Iterable[tuple[str, Record]]],
    *,
    period_s: float = PERIOD_S,
) -> Iterator[None]:
    """Send what ``collect`` returns to the telemetry topic; at the end what is there, too.

    Raises:
        ConfigError: If the settings of Kafka name files that cannot be used.
        SinkRejected: If Kafka refuses them. A broker that is away is waited for instead.
    """
    client, topic = config.kafka.client(), Topics(config.kafka.topic_prefix).telemetry
    asyncio.run(check_access(client, {topic: ("Write",)}))
    reporter = Reporter(client, topic, collect, period_s=period_s)
    reporter.start()
    yield
    reporter.stop()
    click.echo(f"daom: sent {reporter.counts.sent} records to {topic}", err=True)
