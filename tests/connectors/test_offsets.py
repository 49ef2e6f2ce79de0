"""Offsets as a broker tells them, to who reads nothing and joins nothing."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from connectors.kafka import create_topics
from connectors.offsets import OffsetReader, Offsets
from daom.errors import SinkUnavailable
from daom.topics import TopicSpec
from tests.servers import free_port

TOPIC_PARTITIONS = 2


async def written(client, topic, counts):
    """A topic with so many records in each partition, each a batch of its own."""
    await create_topics(client, [TopicSpec(topic, TOPIC_PARTITIONS, 1, {})])
    async with AIOKafkaProducer(**client) as producer:
        for partition, count in enumerate(counts):
            for _ in range(count):
                await producer.send_and_wait(topic, b"x", partition=partition)


async def committed(client, group, topic, offset):
    consumer = AIOKafkaConsumer(**client, group_id=group, enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition(topic, 1)])
    await consumer.commit({TopicPartition(topic, 1): offset})
    await consumer.stop()


def test_ends_and_commits_are_told_without_joining_the_group(any_broker, topic_prefix):
    client = {"bootstrap_servers": any_broker.bootstrap_servers}
    topic, group = f"{topic_prefix}.t", f"{topic_prefix}-group"

    async def story():
        await written(client, topic, [0, 3])
        async with OffsetReader(client, group) as reader:
            before = await reader.read(topic, [0, 1])
            await committed(client, group, topic, 2)
            return before, await reader.read(topic, [1]), await reader.read(topic, [])

    before, after, of_none = asyncio.run(story())

    assert before == {0: Offsets(0, None), 1: Offsets(3, None)}
    assert after == {1: Offsets(3, 2)}
    assert of_none == {}


@pytest.mark.parametrize("partitions", [[], [0]])
def test_that_no_broker_answers_is_told(partitions):
    client = {"bootstrap_servers": f"127.0.0.1:{free_port()}"}

    async def story():
        async with OffsetReader(client, "g") as reader:
            await reader.read("t", partitions)

    with pytest.raises(SinkUnavailable, match="no Kafka broker answers"):
        asyncio.run(story())
