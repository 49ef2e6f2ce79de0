"""Records to Kafka from a thread: it never raises, and counts what it loses."""

import asyncio
import socket
import threading

import pytest

from connectors.kafka import create_topics, read_topic
from connectors.reporter import Reporter
from daom.codec import decode
from daom.events import Source, TelemetryBatch, Tick
from daom.topics import TopicSpec
from tests.kafka_servers import RealKafka
from tests.servers import eventually, free_port

START_S = 1_766_000_000.0


def batch(seq, gauges=None):
    source = Source(model="m", engine="e", boot="b", seq=seq)
    return TelemetryBatch(
        source=source, start_s=START_S + seq, end_s=START_S + seq + 1.0, gauges=gauges or {}
    )


class Given:
    """What is to be reported: handed over at the next call."""

    def __init__(self):
        self._records = []
        self._lock = threading.Lock()

    def add(self, *records):
        with self._lock:
            self._records.extend(records)

    def __call__(self):
        with self._lock:
            taken, self._records = self._records, []
        return [("m", record) for record in taken]


def client(address):
    return {"bootstrap_servers": address}


def make_topic(address, topic):
    asyncio.run(create_topics(client(address), [TopicSpec(topic, 1, 1, {})]))


def arrived(address, topic):
    """The numbers of the batches that ``topic`` holds."""

    async def read():
        return [decode(r.value).record.source.seq async for r in read_topic(client(address), topic)]

    return asyncio.run(read())


@pytest.fixture
def closed_port():
    """An address at which nobody listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def mute_port():
    """An address that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_what_is_handed_over_arrives_in_order_under_its_key_and_schema(any_broker, topic_prefix):
    address = any_broker.bootstrap_servers
    make_topic(address, topic_prefix)
    given = Given()
    given.add(*(batch(seq) for seq in range(20)))
    given.add(Tick(source=Source(model="m", seq=20), time_s=START_S))
    reporter = Reporter(client(address), topic_prefix, given, period_s=0.05)

    reporter.start()
    eventually(lambda: reporter.counts.sent == 21)
    reporter.stop()

    async def read():
        return [record async for record in read_topic(client(address), topic_prefix)]

    records = asyncio.run(read())
    assert arrived(address, topic_prefix) == list(range(21))
    assert {record.key for record in records} == {b"m"}
    assert [dict(record.headers)["schema"] for record in records[-2:]] == [
        b"TelemetryBatch/1",
        b"Tick/1",
    ]
    assert records[0].timestamp == round(1_000 * (START_S + 1.0))


def test_what_is_handed_over_last_is_sent_by_the_stop(any_broker, topic_prefix):
    address = any_broker.bootstrap_servers
    make_topic(address, topic_prefix)
    given = Given()
    given.add(batch(0))
    reporter = Reporter(client(address), topic_prefix, given, period_s=3_600.0)
    reporter.start()

    given.add(batch(1))
    reporter.stop(10.0)

    assert arrived(address, topic_prefix) == [0, 1]
    reporter.stop()


@pytest.mark.parametrize("port", ["closed_port", "mute_port"])
def test_without_kafka_the_oldest_are_dropped_and_counted_and_the_stop_is_quick(
    request, port, caplog
):
    address = request.getfixturevalue(port)
    given = Given()
    filler = {f"gauge_{number}": 1.0 for number in range(60)}
    given.add(*(batch(seq, filler) for seq in range(100)))
    reporter = Reporter(client(address), "t", given, period_s=0.01, buffer_bytes=20_000)

    reporter.start()
    eventually(lambda: reporter.counts.dropped > 0)
    kept = [decode(message.value).record.source.seq for message in reporter._waiting]
    reporter.stop(0.3)

    assert kept == list(range(100 - len(kept), 100))
    assert reporter.counts.dropped == 100 - len(kept)
    eventually(lambda: not reporter._thread.is_alive())
    *errors, end = [r.message for r in caplog.records if r.name == "connectors.reporter"]
    assert len(errors) <= 1
    dropped = reporter.counts.dropped
    assert f"had not confirmed 100 of 100 records ({dropped} of them dropped, 0 refused)" in end


def test_what_cannot_be_collected_is_said_once_and_the_rest_is_sent(
    embedded_broker, topic_prefix, caplog
):
    address = embedded_broker.bootstrap_servers
    make_topic(address, topic_prefix)
    calls = iter(range(1_000_000))

    def collect():
        number = next(calls)
        yield "m", batch(number)
        raise ValueError("no such thing")

    reporter = Reporter(client(address), topic_prefix, collect, period_s=0.01)
    reporter.start()
    eventually(lambda: reporter.counts.sent >= 3)
    reporter.stop()

    assert reporter.counts.errors["ValueError"] >= 3
    assert sum("no such thing" in record.message for record in caplog.records) == 1


def test_what_kafka_will_never_take_is_refused_and_counted(kafka, topic_prefix):
    address = kafka.bootstrap_servers
    asyncio.run(
        create_topics(
            client(address), [TopicSpec(topic_prefix, 1, 1, {"max.message.bytes": "2000"})]
        )
    )
    given = Given()
    given.add(batch(0), batch(1, {f"gauge_{n}": 1.0 for n in range(1_000)}), batch(2))
    reporter = Reporter(client(address), topic_prefix, given, period_s=0.05)

    reporter.start()
    eventually(lambda: reporter.counts.refused == 1 and reporter.counts.sent == 2)
    reporter.stop()

    assert arrived(address, topic_prefix) == [0, 2]


@pytest.mark.slow
def test_a_broker_that_hangs_or_dies_and_comes_back_gets_everything(kafka_script, tmp_path):
    with RealKafka(tmp_path, script=kafka_script) as broker:
        address = broker.bootstrap_servers
        make_topic(address, "t")
        given = Given()
        reporter = Reporter(client(address), "t", given, period_s=0.05)
        reporter.start()
        given.add(batch(0))
        eventually(lambda: reporter.counts.sent == 1)

        broker.pause()
        given.add(batch(1))
        eventually(lambda: not reporter._waiting)
        broker.resume()
        eventually(lambda: reporter.counts.sent >= 2, within_s=40.0)
        broker.kill()
        given.add(batch(2))
        broker.start()
        eventually(lambda: reporter.counts.sent >= 3, within_s=40.0)
        reporter.stop()

        # What was under way when it hung may have arrived twice: it has the same number.
        assert sorted(set(arrived(address, "t"))) == [0, 1, 2]
        assert reporter.counts.dropped == reporter.counts.refused == 0
