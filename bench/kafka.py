"""From Kafka to a verdict through one worker process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.samples import BATCH_ROWS, BATCH_S, MODEL, PANE_S, START_S, batches
from connectors.embedded_broker import EmbeddedBroker
from connectors.kafka import create_topics
from daom.codec import decode_output, encode_msgpack
from daom.topics import Topics


def samples_per_s(count: int, brokers: str | None, python: Path) -> tuple[float, str]:
    """Return samples judged a second from a filled topic, and on which broker.

    The topic is filled first, in MessagePack; the clock runs from the first verdict to the last, so
    that joining the group is not counted.
    """
    with ExitStack() as stack:
        name = brokers or "embedded broker"
        if brokers is None:
            brokers = stack.enter_context(EmbeddedBroker()).bootstrap_servers
        topics = Topics(f"bench-{uuid.uuid4().hex[:8]}")
        client: dict[str, object] = {"bootstrap_servers": brokers}
        asyncio.run(_fill(client, topics, count))
        environment = {
            **os.environ,
            "DAOM_KAFKA__BOOTSTRAP_SERVERS": brokers,
            "DAOM_KAFKA__TOPIC_PREFIX": topics.prefix,
            "DAOM_KAFKA__GROUP": topics.prefix,
            "DAOM_KAFKA__REBALANCE_TIMEOUT_S": "5",
            "DAOM_KAFKA__SESSION_TIMEOUT_S": "6",
        }
        worker = subprocess.Popen([str(python), "-m", "daom", "worker"], env=environment)
        stack.callback(worker.wait)
        stack.callback(worker.terminate)
        return asyncio.run(_time(client, topics, count)), name


async def _fill(client: dict[str, object], topics: Topics, count: int) -> None:
    await create_topics(client, topics.specs(partitions=1, telemetry_retention_s=float("inf")))
    producer = AIOKafkaProducer(**client, linger_ms=20, max_batch_size=1_000_000)
    await producer.start()
    for record in batches(count):
        await producer.send(
            topics.telemetry,
            encode_msgpack(record),
            key=MODEL.encode(),
            timestamp_ms=round(record.end_s * 1_000),
        )
    await producer.stop()


async def _time(client: dict[str, object], topics: Topics, count: int) -> float:
    """Return the rate between the first verdict and the last."""
    consumer = AIOKafkaConsumer(topics.verdicts, **client, auto_offset_reset="earliest")
    await consumer.start()
    last_pane_s = (START_S + count * BATCH_S - 10.0) // PANE_S * PANE_S
    first: tuple[float, float] | None = None
    try:
        async for record in consumer:
            event_s = decode_output(record.value).event_time_s
            first = first or (time.perf_counter(), event_s)
            if event_s >= last_pane_s:
                seconds = time.perf_counter() - first[0]
                return (event_s - first[1]) / BATCH_S * BATCH_ROWS / seconds
    finally:
        await consumer.stop()
    return 0.0
