"""The Faust app: it only adapts. Raw bytes go to the owner; the owner's messages go to Kafka.

What of Faust is used, and what is not: consumer groups, rebalances, flow control, commits and the
producer are; tables, windows, ``take`` and codecs are not, because they cannot keep the promises of
``streams.owner``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import faust
from faust.types import TP

from daom.config import Config
from daom.topics import Topics
from streams.owner import Headers, Owner, Send
from streams.partition import LogRecord

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
    """
    kafka = config.kafka
    return faust.App(
        kafka.group,
        broker=[f"aiokafka://{server}" for server in kafka.bootstrap_servers],
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


def add_fold_agent(app: faust.App, owner: Owner, config: Config) -> None:
    """Give the telemetry topic to ``owner``: records, rebalances, checkpoints, ticks, the stop."""
    topics = Topics(config.kafka.topic_prefix)
    telemetry = app.topic(topics.telemetry, value_type=bytes, key_type=bytes)

    async def fold(stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            record = LogRecord(message.offset, message.key, message.value, message.timestamp)
            # Kept until the next checkpoint, so without its payload.
            message.value = None
            await owner.take(message.partition, record, event.ack)

    async def assigned(_: faust.App, assigned: set[TP], **__: object) -> None:
        owned = sorted(tp.partition for tp in assigned if tp.topic == topics.telemetry)
        _LOGGER.info("group %s: this worker owns partitions %s", config.kafka.group, owned)
        await owner.own(owned)

    async def save_and_commit(*_: object, **__: object) -> None:
        await owner.save()
        await app.consumer.commit()

    # Faust hands the app to a method, but not to a function without parameters.
    async def checkpoint() -> None:
        await owner.save()

    async def tick() -> None:
        await owner.tick()

    app.agent(telemetry, name="daom.fold")(fold)
    app.on_partitions_assigned.connect(assigned)
    app.on_partitions_revoked.connect(save_and_commit)
    app.on_before_shutdown.connect(save_and_commit)
    app.timer(config.worker.checkpoint_s)(checkpoint)
    app.timer(_TICK_EVERY_S)(tick)
