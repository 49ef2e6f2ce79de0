"""The composition root: configuration in, running processes out. Time and Kafka enter here."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.changes import change_needs
from connectors.kafka import (
    ATTEMPT_S,
    check_access,
    check_group,
    check_rights,
    describe_topics,
    read_topic,
    wait_for_broker,
)
from connectors.probe_settings import probe_section
from connectors.rights import Right
from connectors.status_server import Page, as_json, serving
from daom.config import Config
from daom.errors import ConfigError, DaomError, SinkUnavailable
from daom.logs import LOGGING
from daom.topics import Topics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from connectors.otlp import Naming
    from connectors.receiver import Address
    from daom.replay import LogRecord
    from streams.metrics import WorkerMetrics
    from streams.watch import Watch

_LOGGER: Final = logging.getLogger(__name__)
_BROKER_WAIT_S: Final = 300.0
_STOP_WITHIN_S: Final = 25.0
"""Less than the 30 s after which orchestrators kill."""
_EXIT_NOT_SAVED: Final = 3


def run_worker(config: Config) -> None:
    """Run one stream worker until it is told to stop (SIGTERM or SIGINT).

    Raises:
        ConfigError: If the topics are not there, or nobody can listen for ``/healthz``.
        SinkRejected: If Kafka refuses the password or the group, or shows an untrusted certificate.
        SinkUnavailable: If no broker answered for five minutes.
    """
    import faust  # noqa: PLC0415 - an extra.
    from prometheus_client import CollectorRegistry  # noqa: PLC0415

    # Judging takes numba and scipy, which no other service needs in its memory.
    from daom.presets import cell_settings  # noqa: PLC0415
    from daom.warm_up import warm_up  # noqa: PLC0415
    from streams.metrics import WorkerMetrics  # noqa: PLC0415

    registry = CollectorRegistry()
    watch, metrics = _watch(config), WorkerMetrics(registry)
    failures: list[DaomError] = []
    with ExitStack() as stack:
        if config.worker.metrics_port:
            stack.enter_context(_status(config, watch, metrics, registry))
        partitions = asyncio.run(_telemetry_partitions(config))
        watch.membership.enter("starting", "it compiles its formulas")
        warm_up(cell_settings(config))
        watch.membership.enter("starting", f"it joins the group {config.kafka.group}")
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="daom-worker-")))
        app = _app(config, partitions, data_dir, watch, metrics, failures)
        # INFO only to be without Faust's spinner: what is logged is for the configuration to say.
        worker = faust.Worker(
            app, loglevel="INFO", quiet=True, redirect_stdouts=False, logging_config=LOGGING
        )
        try:
            worker.execute_from_commandline()
        finally:
            if failures:
                raise failures[0]


def _watch(config: Config) -> Watch:
    from streams.watch import Membership, Watch  # noqa: PLC0415

    return Watch(Membership(), time.monotonic, config.worker.stuck_after_s)


@contextmanager
def _status(
    config: Config, watch: Watch, metrics: WorkerMetrics, registry: CollectorRegistry
) -> Iterator[None]:
    """Watch over the worker, and answer for it, from threads of their own."""
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415

    from connectors.offsets import OffsetReader  # noqa: PLC0415
    from streams.metrics import PartitionGauges  # noqa: PLC0415

    registry.register(PartitionGauges(watch.owned, metrics.counted))
    telemetry = Topics(config.kafka.topic_prefix).telemetry

    async def look() -> None:
        async with OffsetReader(config.kafka.client(), config.kafka.group) as reader:
            await watch.run(lambda partitions: reader.read(telemetry, partitions))

    def healthz() -> Page:
        health = watch.health()
        return as_json(health, ok=bool(health["healthy"]))

    def readyz() -> Page:
        readiness = watch.readiness()
        return as_json(readiness, ok=bool(readiness["ready"]))

    def exposition() -> Page:
        return Page(CONTENT_TYPE_LATEST, generate_latest(registry))

    pages = {"/metrics": exposition, "/healthz": healthz, "/readyz": readyz}
    address = config.worker.metrics_host, config.worker.metrics_port
    with serving(*address, pages) as url, _in_a_thread(look, "watch"):
        _LOGGER.info("%s/metrics, /healthz and /readyz say how this worker is", url)
        yield


@contextmanager
def _in_a_thread(work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Iterator[None]:
    """Run ``work`` in a thread and a loop of its own; cancel it at the end."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work())

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(ATTEMPT_S)


def _app(
    config: Config,
    partitions: int,
    data_dir: Path,
    watch: Watch,
    metrics: WorkerMetrics,
    failures: list[DaomError],
) -> Any:
    from daom.presets import cell_settings  # noqa: PLC0415
    from streams.app import FoldAgent, make_app, producer_send  # noqa: PLC0415
    from streams.owner import Owner, Ports  # noqa: PLC0415

    app = make_app(config, data_dir)
    owner = Owner(
        settings=cell_settings(config),
        topics=Topics(config.kafka.topic_prefix),
        partitions=partitions,
        ports=Ports(send=producer_send(app), read=_reader(config), clock=time.monotonic),
        metrics=metrics,
        max_message_bytes=config.worker.max_message_bytes,
        tick_after_s=config.time.tick_after_s,
    )
    watch.standing = owner.standing

    def fail(error: DaomError) -> None:
        owner.give_up(error)
        watch.membership.enter("stopping", str(error))
        if not failures:
            os.kill(os.getpid(), signal.SIGTERM)
        failures.append(error)

    FoldAgent(app, owner, config, watch.membership, on_failure=fail, on_stopping=_stop_in_time)
    return app


def _stop_in_time() -> None:
    """End the process if the stop does not: Kafka is away, and nothing can be saved or left."""

    def end() -> None:
        _LOGGER.error(
            "could not save and leave within %.0f s; the next owner goes on from the last "
            "checkpoint, and nothing is lost",
            _STOP_WITHIN_S,
        )
        os._exit(_EXIT_NOT_SAVED)

    timer = threading.Timer(_STOP_WITHIN_S, end)
    timer.daemon = True
    timer.start()


def _reader(config: Config) -> Any:
    from connectors.ranges import log_record  # noqa: PLC0415

    async def read(
        topic: str, partition: int, start: int | None
    ) -> AsyncGenerator[LogRecord, None]:
        records = read_topic(
            config.kafka.client(),
            topic,
            start=None if start is None else {partition: start},
            partitions=[partition],
        )
        async with aclosing(records):
            async for record in records:
                yield log_record(record)

    return read


async def _telemetry_partitions(config: Config) -> int:
    """Return the number of partitions of the telemetry topic; wait for the broker."""
    client, topics = config.kafka.client(), Topics(config.kafka.topic_prefix)
    await wait_for_broker(client, _BROKER_WAIT_S)
    await check_group(client, config.kafka.group)
    needed = [spec.name for spec in topics.specs(partitions=1)]
    needs: dict[str, tuple[Right, ...]] = dict.fromkeys(needed, ("Write",))
    needs |= dict.fromkeys((topics.telemetry, topics.checkpoints), ("Read", "Write"))
    await check_rights(client, needs)
    found = {topic.name: topic for topic in await describe_topics(client, needed)}
    missing = [name for name in needed if name not in found]
    if missing:
        raise ConfigError(f"topics are missing: {', '.join(missing)}; run: daom topics create")
    telemetry, checkpoints = found[topics.telemetry], found[topics.checkpoints]
    if telemetry.partitions != checkpoints.partitions:
        raise ConfigError(
            f"{telemetry.name} has {telemetry.partitions} partitions and {checkpoints.name} has "
            f"{checkpoints.partitions}: they must be equal"
        )
    return telemetry.partitions


def run_alertmanager_bridge(config: Config, host: str, port: int) -> None:
    """Keep every Alertmanager told of the alerts, until told to stop.

    Args:
        config: Where Kafka and the Alertmanagers are.
        host: Interface that ``/metrics``, ``/healthz`` and ``/readyz`` listen on.
        port: Their port; 0: none.

    Raises:
        ConfigError: If an address, a secret's file or a certificate cannot be used.
        SinkRejected: If Kafka refuses the password, or its certificate is not to be trusted.
    """
    asyncio.run(until_stopped(lambda: _bridge(config, host, port)))


async def _bridge(config: Config, host: str, port: int) -> None:
    from connectors.alert_bridge import KafkaAlertSource, run_bridge  # noqa: PLC0415
    from connectors.alertmanager import AlertmanagerSink  # noqa: PLC0415
    from connectors.bridge_status import BridgeStatus  # noqa: PLC0415
    from daom.alert_book import BookSettings  # noqa: PLC0415

    bridge, client = config.bridge, config.kafka.client()
    topics = Topics(config.kafka.topic_prefix)
    status = BridgeStatus(len(bridge.alertmanagers), time.monotonic)
    settings = BookSettings(resend_s=bridge.resend_s, resolve_repeat_s=bridge.resolve_repeat_s)
    async with AsyncExitStack() as stack:
        if port:
            stack.enter_context(serving(host, port, status.pages()))
        # No task group: what is raised below must reach the caller as it is.
        beating = asyncio.create_task(status.beat())
        stack.callback(beating.cancel)
        await wait_for_broker(client, _BROKER_WAIT_S)
        await check_rights(client, {topics.alerts: ("Read",)})
        source = await stack.enter_async_context(KafkaAlertSource(topics.alerts, client))
        sinks = [
            await stack.enter_async_context(AlertmanagerSink(url, **bridge.sink_options()))
            for url in bridge.alertmanagers
        ]
        await run_bridge(
            source,
            sinks,
            settings,
            clock=time.time,
            counters=status.counters,
            on_event=status.note,
        )


def run_receiver(
    config: Config, address: Address, naming: Naming, on_listening: Callable[[str], None]
) -> None:
    """Take spans and changes over HTTP until told to stop.

    Raises:
        ConfigError: If nobody can listen at the address, or the topics are not there.
        SinkRejected: If Kafka refuses the password, or its certificate is not to be trusted.
    """
    asyncio.run(until_stopped(lambda: _receive(config, address, naming, on_listening)))


async def _receive(
    config: Config, address: Address, naming: Naming, on_listening: Callable[[str], None]
) -> None:
    from connectors.receiver import Receiver  # noqa: PLC0415 - an extra.

    client, topics = config.kafka.client(), Topics(config.kafka.topic_prefix)
    await check_access(client, change_needs(topics))
    run, cells = uuid.uuid4().hex, probe_section(config.probe).cells
    receiver = Receiver(client, topics, naming, clock=time.time, run=run, cells=cells)
    async with receiver.listening(address) as url:
        on_listening(url)
        # Who sends need not wait for Kafka, but a topic that is missing is a mistake to be told.
        try:
            found = await describe_topics(client, [topics.telemetry])
        except SinkUnavailable as error:
            _LOGGER.warning("%s; what comes is kept until it is back, the newest first", error)
        else:
            if not found:
                raise ConfigError(f"there is no topic {topics.telemetry}; run: daom topics create")
        await asyncio.Event().wait()


async def until_stopped(work: Callable[[], Awaitable[None]]) -> None:
    """Await ``work``, but end it quietly on SIGTERM or SIGINT."""
    task = asyncio.ensure_future(work())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
