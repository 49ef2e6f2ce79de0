import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from connectors.changes import find_cells, tell_cells
from connectors.kafka import create_topics, read_topic
from daom.codec import decode
from daom.errors import ConfigError, SinkUnavailable
from daom.events import ChangeEvent, Source
from daom.topics import Topics
from streams.checkpoint import MARKER_KEY
from tests.conftest import Broker

DEPLOY = ChangeEvent(
    source=Source(model="m"), time_s=1_800_000_000.0, kind="deploy", version="v2", detail="x"
)


def client(broker: Broker) -> dict[str, object]:
    return {"bootstrap_servers": broker.bootstrap_servers}


async def make_topics(broker: Broker, prefix: str) -> Topics:
    await create_topics(client(broker), Topics(prefix).specs(partitions=3))
    return Topics(prefix)


async def save(broker: Broker, topics: Topics, *cells: tuple[bytes, bytes | None]) -> None:
    """Write what the workers' checkpoints are to a reader of their keys."""
    async with AIOKafkaProducer(**client(broker)) as producer:
        for key, value in cells:
            await producer.send_and_wait(topics.checkpoints, value, key=key)


async def told(broker: Broker, topics: Topics) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    async for record in read_topic(client(broker), topics.telemetry):
        found.setdefault(record.key.decode(), []).append(decode(record.value).record)
        assert record.headers == (("schema", b"ChangeEvent/1"),)
    return found


def test_a_model_that_nobody_has_heard_of_is_one_cell(any_broker, topic_prefix):
    async def story():
        topics = await make_topics(any_broker, topic_prefix)

        assert await tell_cells(client(any_broker), topics, DEPLOY) == ["m"]
        assert await told(any_broker, topics) == {"m": [DEPLOY]}

    asyncio.run(story())


def test_every_cell_of_the_model_is_told_and_no_other(any_broker, topic_prefix):
    async def story():
        topics = await make_topics(any_broker, topic_prefix)
        keys = [b"m/2", b"m/10", b"m/0", b"m/2", b"mm/1", b"m/x", b"other", MARKER_KEY]
        await save(any_broker, topics, *((key, b"state") for key in keys), (b"m/0", None))

        cells = await tell_cells(client(any_broker), topics, DEPLOY)

        assert cells == ["m/2", "m/10"]
        assert await told(any_broker, topics) == {"m/2": [DEPLOY], "m/10": [DEPLOY]}

    asyncio.run(story())


@pytest.mark.kafka
def test_without_topics_nothing_is_written_or_made(kafka, topic_prefix):
    with pytest.raises(ConfigError, match="run: daom topics create"):
        asyncio.run(tell_cells(client(kafka), Topics(topic_prefix), DEPLOY))
    with pytest.raises(ConfigError, match=f"no topic {topic_prefix}.telemetry"):
        asyncio.run(find_cells(client(kafka), Topics(topic_prefix), "m"))


def test_without_a_broker_it_is_unavailable(topic_prefix):
    nobody = {"bootstrap_servers": "127.0.0.1:1"}

    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
        asyncio.run(tell_cells(nobody, Topics(topic_prefix), DEPLOY))
