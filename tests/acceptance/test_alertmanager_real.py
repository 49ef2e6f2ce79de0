"""The bridge against real servers: Alertmanagers, and brokers that hold the alert topic."""

import asyncio
import json
import logging
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

import pytest
from aiokafka import AIOKafkaProducer

from connectors.alert_bridge import KafkaAlertSource
from connectors.embedded_broker import EmbeddedBroker
from connectors.kafka import create_topics
from daom.alert_book import AlertBatch, BookSettings, WrittenAlert
from daom.codec import encode_output
from daom.events import Alert, AlertState, digest, fingerprint
from daom.topics import TopicSpec
from tests.conftest import Broker
from tests.servers import Alertmanager, MemoryTopic, bridge, free_port, run, soon

ANSWER_WITHIN_S = 30.0
T0 = 1_766_000_000.0
OFTEN = BookSettings(resend_s=1.0)
"""What fires ends 4 s after its last send."""

NOTIFYING_CONFIG = """\
route: {{receiver: hook, group_by: [engine], group_wait: 0s, group_interval: 1s}}
receivers: [{{name: hook, webhook_configs: [{{url: "{url}", send_resolved: true}}]}}]
"""


def alert(engine: str, state: AlertState = "firing", labels: dict[str, str] | None = None) -> Alert:
    if labels is None:
        labels = {"alertname": "LatencyDrift", "engine": engine, "severity": "page"}
    now_s = time.time()
    return Alert(
        id=digest(engine, state, now_s),
        event_time_s=now_s,
        cell="llama",
        fingerprint=fingerprint(labels),
        name="LatencyDrift",
        labels=labels,
        state=state,
        started_s=now_s - 90.0,
        annotations={"summary": 'p99 is 0.31 s, "slow" 慢'},
    )


def query(replica: Alertmanager) -> dict[str, dict[str, Any]]:
    """What amtool shows as active, by engine."""
    done = subprocess.run(
        ["amtool", f"--alertmanager.url={replica.url}", "alert", "query", "-o", "json"],
        capture_output=True,
        check=True,
        timeout=ANSWER_WITHIN_S,
    )
    return {found["labels"]["engine"]: found for found in json.loads(done.stdout)}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[tuple[Alertmanager, Alertmanager]]:
    with (
        Alertmanager(tmp_path / "one") as one,
        Alertmanager(tmp_path / "two", path_prefix="/am") as two,
    ):
        yield one, two


@pytest.mark.alertmanager
def test_an_alert_fires_in_both_replicas_and_resolves_in_both(
    replicas: tuple[Alertmanager, Alertmanager],
) -> None:
    one, two = replicas

    async def story() -> None:
        firing = alert("host-1/0")
        topic = MemoryTopic(firing, alert("host-2/0", "pending"))
        # With the settings of production: what resolves soon does not end by itself.
        async with bridge(topic, one.url, two.url, settings=BookSettings()):
            await soon(lambda: query(one) and query(two))
            for found in (query(one), query(two)):
                assert list(found) == ["host-1/0"]
                assert found["host-1/0"]["labels"] == firing.labels
                assert found["host-1/0"]["annotations"] == firing.annotations
                starts_at = datetime.fromisoformat(found["host-1/0"]["startsAt"])
                assert starts_at.timestamp() == pytest.approx(firing.started_s, abs=0.002)

            topic.write(alert("host-1/0", "resolved"))
            await soon(lambda: not query(one) and not query(two))

    run(story())


@pytest.mark.alertmanager
def test_a_firing_alert_stays_as_long_as_it_is_repeated_and_ends_without_the_bridge(
    replicas: tuple[Alertmanager, Alertmanager],
) -> None:
    one, _ = replicas

    async def story() -> None:
        async with bridge(MemoryTopic(alert("host-1/0")), one.url, settings=OFTEN):
            await soon(lambda: query(one))
            first_end = query(one)["host-1/0"]["endsAt"]
            await soon(lambda: query(one)["host-1/0"]["updatedAt"] > first_end)
        await soon(lambda: not query(one))

    run(story())


@pytest.mark.alertmanager
def test_one_invalid_alert_among_valid_ones_is_named_and_not_retried(
    replicas: tuple[Alertmanager, Alertmanager],
) -> None:
    one, two = replicas
    invalid = alert("none", labels={})

    async def story() -> None:
        topic = MemoryTopic(alert("host-1/0"), invalid, alert("host-2/0"))
        async with bridge(topic, one.url, two.url, settings=OFTEN) as told:
            await soon(lambda: len(query(one)) == len(query(two)) == 2)
            await soon(lambda: told.counters.sent >= 8)

        assert told.counters.rejected == 2
        for replica in (one, two):
            (words,) = [w for w in told.words("rejected") if w.startswith(f"{replica.url} ")]
            assert "rejected an alert: {}: " in words
            assert "at least one label pair required" in words

    run(story())


@pytest.mark.alertmanager
def test_a_replica_that_was_down_gets_what_fires(
    replicas: tuple[Alertmanager, Alertmanager],
) -> None:
    up, down = replicas
    down.stop()

    async def story() -> None:
        topic = MemoryTopic(alert("host-1/0"))
        async with bridge(topic, up.url, down.url, settings=OFTEN) as told:
            await soon(lambda: query(up))
            await soon(lambda: told.kinds(down.url) == ["unavailable"])

            await asyncio.to_thread(down.start)
            await soon(lambda: query(down))
            await soon(lambda: "available" in told.kinds(down.url))

            # Alertmanager keeps no alerts over a restart; the next repeat brings them.
            await asyncio.to_thread(down.stop)
            await asyncio.to_thread(down.start)
            await soon(lambda: query(down))
            assert list(query(up)) == ["host-1/0"]

    run(story())


class Webhook:
    """What Alertmanager notifies: status and engine, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                heard.extend((a["status"], a["labels"]["engine"]) for a in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def __enter__(self) -> Self:
        Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.alertmanager
def test_people_are_told_once_that_it_fires_and_once_that_it_is_over(tmp_path: Path) -> None:
    """Also where the bridge was away when it ended: the next one reads the resolve."""

    async def story() -> None:
        firing = alert("host-1/0")
        with (
            Webhook() as hook,
            Alertmanager(tmp_path / "am", NOTIFYING_CONFIG.format(url=hook.url)) as replica,
        ):
            async with bridge(MemoryTopic(firing), replica.url, settings=BookSettings()):
                await soon(lambda: hook.heard == [("firing", "host-1/0")])
            later = MemoryTopic(firing, alert("host-1/0", "resolved"))
            async with bridge(later, replica.url, settings=BookSettings()):
                await soon(lambda: len(hook.heard) == 2)

        assert hook.heard == [("firing", "host-1/0"), ("resolved", "host-1/0")]

    run(story())


# The topic on Kafka


async def produce(broker: Broker, topic: str, *values: bytes | None) -> None:
    """Send ``values`` as one batch, whose last offset a broker may not tell."""
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        batch = producer.create_batch()
        for value in values:
            assert batch.append(key=b"k", value=value, timestamp=int(1000 * T0)) is not None
        await (await producer.send_batch(batch, topic, partition=0))


async def make_topic(broker: Broker, topic: str, partitions: int = 2) -> None:
    await create_topics(
        {"bootstrap_servers": broker.bootstrap_servers}, [TopicSpec(topic, partitions, 1, {})]
    )


def kafka_source(address: str, topic: str) -> KafkaAlertSource:
    return KafkaAlertSource(topic, {"bootstrap_servers": address}, first_retry_s=0.05)


async def next_of(source: KafkaAlertSource) -> AlertBatch:
    """Return the next batch that is not empty."""
    while not (batch := await source.next(0.5)).alerts:
        pass
    return batch


def test_the_whole_topic_is_restored_and_then_followed(
    any_broker: Broker, topic_prefix: str
) -> None:
    first, second, third = alert("e1"), alert("e1", "resolved"), alert("e2")
    topic = f"{topic_prefix}.alerts"

    async def story() -> None:
        await make_topic(any_broker, topic)
        values = [encode_output(first), None, b"{", encode_output(second)]
        await produce(any_broker, topic, *values)
        async with kafka_source(any_broker.bootstrap_servers, topic) as source:
            restored = AlertBatch.joined([batch async for batch in source.restore()])
            assert restored.alerts == (WrittenAlert(first, T0), WrittenAlert(second, T0))
            assert restored.malformed == 1
            assert restored.fault.startswith("partition 0, offset 2: not an output of DAOM")

            await produce(any_broker, topic, encode_output(third))
            assert (await next_of(source)).alerts == (WrittenAlert(third, T0),)
            assert await source.next(0.01) == AlertBatch()

    run(story())


@pytest.mark.alertmanager
def test_what_is_written_to_kafka_fires_and_resolves_in_alertmanager(
    any_broker: Broker, topic_prefix: str, replicas: tuple[Alertmanager, Alertmanager]
) -> None:
    one, two = replicas
    topic = f"{topic_prefix}.alerts"

    async def story() -> None:
        await make_topic(any_broker, topic)
        await produce(any_broker, topic, encode_output(alert("host-1/0")))
        source = kafka_source(any_broker.bootstrap_servers, topic)
        async with source, bridge(source, one.url, two.url, settings=BookSettings()):
            await soon(lambda: query(one) and query(two))
            await produce(any_broker, topic, encode_output(alert("host-1/0", "resolved")))
            await soon(lambda: not query(one) and not query(two))

    run(story())


def test_an_empty_topic_is_restored(any_broker: Broker, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.alerts"

    async def story() -> None:
        await make_topic(any_broker, topic)
        async with kafka_source(any_broker.bootstrap_servers, topic) as source:
            assert AlertBatch.joined([b async for b in source.restore()]) == AlertBatch()

    run(story())


@pytest.mark.broker
def test_a_broker_and_a_topic_that_come_late_are_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "connectors.alert_bridge")
    port = free_port()

    async def story() -> None:
        source = kafka_source(f"127.0.0.1:{port}", "t.alerts")
        async with source, bridge(source, settings=OFTEN) as told:
            await soon(lambda: "topic t.alerts cannot be read, retrying" in caplog.text)
            with EmbeddedBroker(port) as broker:
                await make_topic(broker, "t.alerts")
                await soon(lambda: told.words("restored"))

    run(story())
    assert "Connect call failed" in caplog.text
    assert caplog.text.count("cannot be read") == 1
    assert caplog.text.count("topic t.alerts can be read again") == 1


@pytest.mark.broker
@pytest.mark.slow
def test_a_topic_that_was_lost_is_read_again_from_its_beginning(topic_prefix: str) -> None:
    """The embedded broker keeps nothing, so after a restart the offsets begin anew."""
    before, after, topic = alert("e1"), alert("e2"), f"{topic_prefix}.alerts"
    port = free_port()

    async def story() -> None:
        async with kafka_source(f"127.0.0.1:{port}", topic) as source:
            with EmbeddedBroker(port) as broker:
                await make_topic(broker, topic)
                await produce(broker, topic, encode_output(before), encode_output(before))
                assert [batch async for batch in source.restore()]
            with EmbeddedBroker(port) as broker:
                await make_topic(broker, topic)
                await produce(broker, topic, encode_output(after))
                assert (await next_of(source)).alerts == (WrittenAlert(after, T0),)

    run(story())
