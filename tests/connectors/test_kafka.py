import asyncio
import contextlib
import logging
import socket
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from connectors.kafka import (
    TopicDescription,
    TopicsReport,
    create_topics,
    describe_topics,
    read_topic,
    wait_for_broker,
)
from daom.errors import ConfigError, SinkRejected, SinkUnavailable, SourceError
from daom.topics import Topics, TopicSpec
from tests.conftest import Broker

NOBODY = {"bootstrap_servers": "127.0.0.1:1"}
START_MS = 1_700_000_000_000


def client(broker: Broker) -> dict[str, object]:
    return {"bootstrap_servers": broker.bootstrap_servers}


def spec(name: str, partitions: int = 2, copies: int = 1, policy: str = "delete") -> TopicSpec:
    return TopicSpec(name, partitions, copies, {"cleanup.policy": policy})


async def produce(broker: Broker, topic: str, values: list[bytes], partition: int = 0) -> None:
    """Send ``values`` as one batch."""
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, max_request_size=16 * 2**20
    ) as producer:
        batch = producer.create_batch()
        for number, value in enumerate(values):
            taken = batch.append(
                key=b"k", value=value, timestamp=START_MS + number, headers=[("schema", b"X/1")]
            )
            assert taken is not None
        await (await producer.send_batch(batch, topic, partition=partition))


async def read(broker: Broker, topic: str, **what: Any) -> list[tuple[int, int, bytes]]:
    return [
        (r.partition, r.offset, r.value) async for r in read_topic(client(broker), topic, **what)
    ]


def numbers(*bounds: int) -> list[bytes]:
    return [b"%d" % number for number in range(*bounds)]


def test_the_topics_of_daom_are_made_once(any_broker: Broker, topic_prefix: str) -> None:
    specs = Topics(topic_prefix).specs(partitions=3)
    names = tuple(spec.name for spec in specs)

    first = asyncio.run(create_topics(client(any_broker), specs))
    second = asyncio.run(create_topics(client(any_broker), specs))

    assert first == TopicsReport(created=names, kept=(), differences=())
    assert second == TopicsReport(created=(), kept=names, differences=())


def test_topics_are_described_as_they_were_asked_for(any_broker: Broker, topic_prefix: str) -> None:
    specs = {spec.name: spec for spec in Topics(topic_prefix).specs(partitions=3)}

    async def story() -> list[TopicDescription]:
        await create_topics(client(any_broker), list(specs.values()))
        return await describe_topics(client(any_broker), [*specs, f"{topic_prefix}.unknown"])

    found = asyncio.run(story())

    assert [topic.name for topic in found] == sorted(specs)
    assert {topic.partitions for topic in found} == {3}
    for topic in found:
        wanted = specs[topic.name].config
        assert {name: topic.config[name] for name in wanted} == dict(wanted)


def test_asking_for_a_topic_does_not_make_it(any_broker: Broker, topic_prefix: str) -> None:
    for _ in range(2):
        assert asyncio.run(describe_topics(client(any_broker), [topic_prefix])) == []


def test_a_topic_that_differs_is_left_alone_and_reported(
    any_broker: Broker, topic_prefix: str
) -> None:
    wanted = [spec(topic_prefix, partitions=8, policy="compact")]

    async def story() -> tuple[TopicsReport, list[TopicDescription]]:
        await create_topics(client(any_broker), [spec(topic_prefix)])
        report = await create_topics(client(any_broker), wanted)
        return report, await describe_topics(client(any_broker), [topic_prefix])

    report, [found] = asyncio.run(story())

    assert report.created == ()
    assert report.differences == (
        f"{topic_prefix} has 2 partitions; 8 were asked for",
        f"{topic_prefix} has cleanup.policy=delete; compact was asked for",
    )
    assert (found.partitions, found.config["cleanup.policy"]) == (2, "delete")


def test_the_order_of_cleanup_policies_is_no_difference(
    any_broker: Broker, topic_prefix: str
) -> None:
    async def story() -> TopicsReport:
        await create_topics(client(any_broker), [spec(topic_prefix, policy="delete,compact")])
        return await create_topics(
            client(any_broker), [spec(topic_prefix, policy="compact,delete")]
        )

    assert asyncio.run(story()).differences == ()


def test_two_that_make_the_same_topics_at_once_agree(any_broker: Broker, topic_prefix: str) -> None:
    specs = [spec(f"{topic_prefix}.{number}") for number in range(4)]

    async def story() -> list[TopicsReport]:
        return await asyncio.gather(*(create_topics(client(any_broker), specs) for _ in range(3)))

    reports = asyncio.run(story())

    assert sorted(sum((r.created for r in reports), ())) == [s.name for s in specs]
    assert all(len(r.created) + len(r.kept) == len(specs) for r in reports)


def test_more_copies_than_brokers_are_refused(kafka: Broker, topic_prefix: str) -> None:
    with pytest.raises(SinkRejected, match=f"topic {topic_prefix}: .*replicat"):
        asyncio.run(create_topics(client(kafka), [spec(topic_prefix, copies=99)]))


def test_a_topic_is_read_from_its_beginning_to_its_end(
    any_broker: Broker, topic_prefix: str
) -> None:
    """Whole batches of several records, of which the embedded broker's end offset counts one."""

    async def story() -> list[tuple[int, int, bytes]]:
        await create_topics(client(any_broker), [spec(topic_prefix, partitions=3)])
        await produce(any_broker, topic_prefix, numbers(20))
        await produce(any_broker, topic_prefix, numbers(20, 50))
        await produce(any_broker, topic_prefix, numbers(7), partition=2)
        return await read(any_broker, topic_prefix)

    found = asyncio.run(story())

    assert [r for r in found if r[0] == 0] == [(0, n, b"%d" % n) for n in range(50)]
    assert [r for r in found if r[0] == 2] == [(2, n, b"%d" % n) for n in range(7)]
    assert len(found) == 57


def test_key_timestamp_and_headers_come_back_as_sent(any_broker: Broker, topic_prefix: str) -> None:
    async def story() -> Any:
        await create_topics(client(any_broker), [spec(topic_prefix)])
        await produce(any_broker, topic_prefix, numbers(2))
        return [record async for record in read_topic(client(any_broker), topic_prefix)]

    first, second = asyncio.run(story())

    assert (first.key, first.timestamp, first.timestamp_type) == (b"k", START_MS, 0)
    assert (second.timestamp, second.headers) == (START_MS + 1, (("schema", b"X/1"),))


@pytest.mark.parametrize("start", [0, 13, 19, 20])
def test_reading_starts_where_it_is_told(any_broker: Broker, topic_prefix: str, start: int) -> None:
    """Also within the last batch, which lies beyond what the embedded broker calls the end."""

    async def story() -> list[tuple[int, int, bytes]]:
        await create_topics(client(any_broker), [spec(topic_prefix)])
        await produce(any_broker, topic_prefix, numbers(20))
        await produce(any_broker, topic_prefix, numbers(20), partition=1)
        return await read(any_broker, topic_prefix, start={1: start}, partitions=[1])

    assert asyncio.run(story()) == [(1, n, b"%d" % n) for n in range(start, 20)]


def test_an_empty_topic_ends_at_once(any_broker: Broker, topic_prefix: str) -> None:
    async def story() -> list[tuple[int, int, bytes]]:
        await create_topics(client(any_broker), [spec(topic_prefix)])
        return await asyncio.wait_for(read(any_broker, topic_prefix), timeout=5.0)

    assert asyncio.run(story()) == []


def test_a_topic_that_others_go_on_writing_to_has_an_end(
    any_broker: Broker, topic_prefix: str
) -> None:
    async def write_on() -> None:
        async with AIOKafkaProducer(**client(any_broker)) as producer:
            while True:
                await producer.send_and_wait(topic_prefix, b"x", partition=0)

    async def story() -> list[tuple[int, int, bytes]]:
        await create_topics(client(any_broker), [spec(topic_prefix)])
        await produce(any_broker, topic_prefix, numbers(20))
        writer = asyncio.create_task(write_on())
        try:
            return await asyncio.wait_for(read(any_broker, topic_prefix), timeout=10.0)
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    found = asyncio.run(story())

    assert [offset for _, offset, _ in found] == list(range(len(found)))
    assert len(found) >= 20


def test_a_record_of_a_checkpoints_size_goes_through(any_broker: Broker, topic_prefix: str) -> None:
    topics = Topics(topic_prefix)
    large = b"x" * (15 * 2**20)

    async def story() -> list[tuple[int, int, bytes]]:
        await create_topics(client(any_broker), topics.specs(partitions=1))
        async with AIOKafkaProducer(**client(any_broker), max_request_size=2**24) as producer:
            await producer.send_and_wait(topics.checkpoints, large, key=b"k", partition=0)
        return await read(any_broker, topics.checkpoints)

    [(_, _, value)] = asyncio.run(story())

    assert value == large


def test_a_topic_or_partition_that_is_not_there_is_named(
    any_broker: Broker, topic_prefix: str
) -> None:
    with pytest.raises(SourceError, match=f"no topic {topic_prefix}"):
        asyncio.run(read(any_broker, topic_prefix))

    asyncio.run(create_topics(client(any_broker), [spec(topic_prefix)]))

    with pytest.raises(SourceError, match=r"partitions 0 to 1; got \[2\]"):
        asyncio.run(read(any_broker, topic_prefix, partitions=[0, 2]))


def test_an_offset_beyond_the_log_is_an_error(kafka: Broker, topic_prefix: str) -> None:
    asyncio.run(create_topics(client(kafka), [spec(topic_prefix)]))

    with pytest.raises(SourceError, match=f"topic {topic_prefix} cannot be read: .*OutOfRange"):
        asyncio.run(read(kafka, topic_prefix, start={0: 5}))


def test_waiting_ends_once_a_broker_answers(any_broker: Broker) -> None:
    asyncio.run(wait_for_broker(client(any_broker), within_s=10.0))


def test_a_closed_port_gives_one_clear_error(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    with pytest.raises(SinkUnavailable) as caught:
        asyncio.run(wait_for_broker(NOBODY, within_s=0.3, on_wait=heard.append))

    assert "no Kafka broker answers: 127.0.0.1:1: " in str(caught.value)
    assert str(caught.value).endswith("(waited 0.3 s)")
    assert [line.partition("; ")[2] for line in heard] == ["waiting up to 0 s more"]
    assert caplog.records == []


def test_the_reason_is_found_where_the_library_was_silenced() -> None:
    logger = logging.getLogger("aiokafka")
    logger.setLevel(logging.CRITICAL)
    try:
        with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1: .*[Cc]onnect"):
            asyncio.run(wait_for_broker(NOBODY, within_s=0.1))

        assert (logger.level, logger.filters) == (logging.CRITICAL, [])
    finally:
        logger.setLevel(logging.NOTSET)


def test_a_broker_that_takes_connections_but_says_nothing_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        nobody_home = {"bootstrap_servers": f"127.0.0.1:{hung.getsockname()[1]}"}
        with pytest.raises(SinkUnavailable, match="does it hang"):
            asyncio.run(wait_for_broker(nobody_home, within_s=0.5))


def test_settings_that_the_library_refuses_are_not_tried_again() -> None:
    with pytest.raises(ConfigError, match="security_protocol"):
        asyncio.run(wait_for_broker({**NOBODY, "security_protocol": "TLS"}, within_s=60.0))
