"""The Faust app: it only adapts. Raw bytes go to the owner; the owner's messages go to Kafka.

What of Faust is used, and what is not: consumer groups, rebalances, flow control, commits and the
producer are; tables, windows, ``take`` and codecs are not, because they cannot keep the promises of
``streams.owner``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import faust
from faust.types import TP

from daom.config import Config
from daom.errors import DaomError
from daom.replay import LogRecord
from daom.topics import Topics
from streams.owner import Headers, Owner, Send
from streams.watch import Membership

_LOGGER: Final = logging.getLogger(__name__)

_MAX_FETCH_BYTES: Final = 16 * 2**20
_PRODUCER_TIMEOUT_S: Final = 1_200.0
"""How long a message may wait for a broker that is away: longer than an outage should be."""
_TICK_EVERY_S: Final = 5.0


def make_app(config: Config, data_dir: Path) -> faust.App:
    """Return a Faust app for ``config``; it does nothing yet.

    Args:
        config: Where Kafka is, and how the group behaves.
        data_dir: Where Faust may keep its files.

    Raises:
        ConfigError: If the password or a certificate cannot be read.
    """
    kafka = config.kafka
    return faust.App(
        kafka.group,
        broker=[f"aiokafka://{server}" for server in kafka.bootstrap_servers],
        broker_credentials=_credentials(kafka.client()),
        store="memory://",
        datadir=str(data_dir),
        key_serializer="raw",
        value_serializer="raw",
        topic_disable_leader=True,
        topic_allow_declare=False,
        web_enabled=False,
        cython_optimizations=True,
        stream_wait_empty=False,
        stream_buffer_maxsize=4_096,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=_MAX_FETCH_BYTES,
        broker_session_timeout=kafka.session_timeout_s,
        broker_heartbeat_interval=kafka.session_timeout_s / 3.0,
        broker_rebalance_timeout=kafka.rebalance_timeout_s,
        broker_max_poll_interval=max(300.0, kafka.rebalance_timeout_s),
        producer_acks=-1,
        producer_max_request_size=_MAX_FETCH_BYTES,
        producer_request_timeout=_PRODUCER_TIMEOUT_S,
        producer_linger=0.005,
    )


def _credentials(client: Mapping[str, Any]) -> Any:
    """Return as Faust wants it what ``client`` says of TLS and SASL; None if it says nothing.

    Consumer and producer alike are made with it.
    """
    if "sasl_mechanism" in client:
        return faust.SASLCredentials(
            username=client["sasl_plain_username"],
            password=client["sasl_plain_password"],
            ssl_context=client.get("ssl_context"),
            mechanism=client["sasl_mechanism"],
        )
    if "ssl_context" in client:
        return faust.SSLCredentials(client["ssl_context"])
    return None


def producer_send(app: faust.App) -> Send:
    """Return the owner's way to the app's producer."""

    async def send(
        topic: str, key: bytes | None, value: bytes | None, partition: int | None, headers: Headers
    ) -> Awaitable[object]:
        sent: Awaitable[object] = await app.producer.send(
            topic, key, value, partition, None, headers
        )
        return sent

    return send


class FoldAgent:
    """Gives the telemetry topic to an owner: records, rebalances, checkpoints, ticks, the stop.

    Args:
        app: A Faust app that has not started.
        owner: What folds, publishes and saves.
        config: Names and intervals.
        membership: Kept up to date, for the watch.
        on_failure: Told of an error that the operator must decide on, such as a checkpoint that
            cannot be read; it must end the process, which goes no further.
        on_stopping: Told that the worker has begun to stop.
    """

    def __init__(
        self,
        app: faust.App,
        owner: Owner,
        config: Config,
        membership: Membership,
        on_failure: Callable[[DaomError], None],
        on_stopping: Callable[[], None],
    ) -> None:
        self._app = app
        self._owner = owner
        self._membership = membership
        self._group = config.kafka.group
        self._telemetry = Topics(config.kafka.topic_prefix).telemetry
        self._on_failure = on_failure
        self._on_stopping = on_stopping
        telemetry = app.topic(self._telemetry, value_type=bytes, key_type=bytes)
        app.agent(telemetry, name="daom.fold")(self._fold)
        app.on_partitions_assigned.connect(self._assigned)
        app.on_partitions_revoked.connect(self._revoked)
        app.on_before_shutdown.connect(self._stop)
        app.timer(config.worker.checkpoint_s)(self._checkpoint)
        app.timer(_TICK_EVERY_S)(self._tick)

    async def _fold(self, stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            record = LogRecord(message.offset, message.key, message.value, message.timestamp)
            # Kept until the next checkpoint, so without its payload.
            message.value = None
            if not await self._succeeds(self._owner.take(message.partition, record, event.ack)):
                # Neither this record nor a later one can be folded: wait for the end.
                await asyncio.Event().wait()

    async def _assigned(self, _: faust.App, assigned: set[TP], **__: object) -> None:
        owned = sorted(tp.partition for tp in assigned if tp.topic == self._telemetry)
        _LOGGER.info("group %s: this worker owns partitions %s", self._group, owned)
        self._membership.given(owned)
        if await self._succeeds(self._owner.own(owned)):
            self._membership.enter("working", f"it works on partitions {owned}")

    async def _revoked(self, *_: object, **__: object) -> None:
        self._membership.enter("rebalancing", "its group shares the partitions anew")
        await self._save_and_commit()
        self._membership.owned = frozenset()

    async def _succeeds(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except DaomError as error:
            self._on_failure(error)
            return False
        return True

    async def _save_and_commit(self) -> None:
        if await self._succeeds(self._owner.save()):
            await self._app.consumer.commit()

    async def _stop(self, *_: object, **__: object) -> None:
        self._membership.enter("stopping", "it was told to stop: it saves, commits and leaves")
        self._on_stopping()
        await self._save_and_commit()

    # Faust hands the app to a timer that is a method.

    async def _checkpoint(self, _: faust.App) -> None:
        await self._owner.save()

    async def _tick(self, _: faust.App) -> None:
        await self._owner.tick()
