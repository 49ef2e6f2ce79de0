"""A change to every cell of its model: find the cells, append the event to each.

A cell is a key of the telemetry topic, ``model`` or ``model/n``; the compacted topic of checkpoints
has a record for each cell that a worker has saved.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from connectors.kafka import Client, check_rights, describe_topics, read_topic
from connectors.rights import Needs
from daom.codec import encode_json, schema_of
from daom.errors import ConfigError, SinkRejected, SinkUnavailable
from daom.events import ChangeEvent, is_cell_of
from daom.topics import Topics

_ATTEMPT_MS: Final = 10_000


def change_needs(topics: Topics) -> Needs:
    """Return what whoever tells of changes must be allowed to do."""
    return {topics.telemetry: ("Write",), topics.checkpoints: ("Read",)}


async def find_cells(client: Client, topics: Topics, model: str) -> list[str]:
    """Return the cells of ``model`` that are known; where none is yet, the one of its own name.

    Raises:
        ConfigError: If there is no telemetry topic: writing to it might make one of a wrong layout.
        SinkUnavailable: If no broker answers.
    """
    found = {
        topic.name
        for topic in await describe_topics(client, [topics.telemetry, topics.checkpoints])
    }
    if topics.telemetry not in found:
        raise ConfigError(f"there is no topic {topics.telemetry}; run: daom topics create")
    cells: set[str] = set()
    if topics.checkpoints in found:
        async with aclosing(read_topic(client, topics.checkpoints)) as records:
            async for record in records:
                key = (record.key or b"").decode(errors="replace")
                if is_cell_of(key, model):
                    (cells.discard if record.value is None else cells.add)(key)
    # model/2 comes before model/10.
    return sorted(cells, key=lambda cell: (len(cell), cell)) or [model]


async def tell_cells(client: Client, topics: Topics, change: ChangeEvent) -> list[str]:
    """Append ``change`` to every cell of its model; return the cells.

    At least once: on an error some cells may have been told, and telling all again is safe.

    Raises:
        ConfigError: If there is no telemetry topic.
        SinkUnavailable: If no broker answers, or it takes the event in no time.
        SinkRejected: If the broker refuses it.
    """
    await check_rights(client, change_needs(topics))
    cells = await find_cells(client, topics, change.source.model)
    producer = AIOKafkaProducer(**client, acks="all", request_timeout_ms=_ATTEMPT_MS)
    value, headers = encode_json(change), [("schema", schema_of(change).encode())]
    try:
        await producer.start()
        await asyncio.gather(
            *(
                producer.send_and_wait(topics.telemetry, value, key=cell.encode(), headers=headers)
                for cell in cells
            )
        )
    except KafkaError as error:
        kind = SinkUnavailable if error.retriable else SinkRejected
        raise kind(f"{topics.telemetry}: {error}") from error
    finally:
        await producer.stop()
    return cells
