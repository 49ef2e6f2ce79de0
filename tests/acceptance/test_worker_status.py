"""What a real worker says of itself: alive while it gets on, ready once it works; else why not."""

from __future__ import annotations

import asyncio
import json
import urllib.error

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from connectors.offsets import OffsetReader
from streams.checkpoint import decode_marker
from streams.owner import MARKER_KEY
from tests.fleet import LIGHT, Fleet, read_lines
from tests.kafka_servers import RealKafka
from tests.servers import WITHOUT_PROXY, eventually, free_port

STARTED_WITHIN_S = 120.0
STUCK_AFTER_S = 4.0
ALL_FOLDED_WITHIN_S = 120.0


@pytest.fixture
def port():
    return free_port()


def fleet_with_status(broker, prefix, port, **settings):
    status = {"DAOM_WORKER__METRICS_PORT": str(port)}
    return Fleet(broker.bootstrap_servers, prefix, partitions=1, settings=status | settings)


def asked(port, path):
    """The status and the body; None where nobody answers."""
    try:
        with WITHOUT_PROXY.open(f"http://127.0.0.1:{port}{path}", timeout=5.0) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return None


def until(port, path, status, within_s=STARTED_WITHIN_S):
    """The body, once the status is what it should be."""
    answer = None

    def found():
        nonlocal answer
        answer = asked(port, path)
        return answer is not None and answer[0] == status

    try:
        eventually(found, within_s, every_s=0.2)
    except AssertionError:
        pytest.fail(f"{path} is not {status} within {within_s:g} s, but {answer}")
    return json.loads(answer[1])


def gauges(port):
    """The gauges of partition 0."""
    _, text = asked(port, "/metrics")
    lines = [line for line in text.splitlines() if line.startswith("daom_")]
    return {
        line.partition("{")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.partition("{")[2].startswith('partition="0"}')
    }


@pytest.mark.slow
def test_a_worker_that_gets_on_is_alive_and_ready_and_tells_how_far_it_is(
    any_broker, topic_prefix, port, tmp_path
):
    lines = list(read_lines(LIGHT))
    with fleet_with_status(any_broker, topic_prefix, port) as fleet:
        worker = fleet.start_worker(tmp_path / "worker.log")
        early = eventually(lambda: asked(port, "/readyz"), STARTED_WITHIN_S)
        ready = until(port, "/readyz", 200)
        fleet.play(lines)
        done = {"daom_position": len(lines), "daom_saved_position": len(lines)}
        seen = eventually(
            lambda: done.items() <= gauges(port).items() and gauges(port), ALL_FOLDED_WITHIN_S
        )
        health = asked(port, "/healthz")

        assert (early[0], json.loads(early[1])["ready"]) == (503, False)
        assert ready == {"ready": True, "phase": "working", "partitions": [0]}
        assert (health[0], json.loads(health[1])) == (200, {"healthy": True, "stuck": []})
        assert (seen["daom_lag"], seen["daom_cells"], seen["daom_engines"]) == (0.0, 1.0, 1.0)
        assert seen["daom_event_time_seconds"] > 1.7e9
        assert asked(port, "/elsewhere")[0] == 404
        assert worker.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("held", ["task", "loop"])
def test_a_worker_whose_owner_hangs_is_not_alive_and_names_the_partition(
    kafka, topic_prefix, port, tmp_path, held
):
    settings = {"DAOM_WORKER__STUCK_AFTER_S": str(STUCK_AFTER_S)}
    with fleet_with_status(kafka, topic_prefix, port, **settings) as fleet:
        fleet.start_worker(tmp_path / "worker.log", "tests.held_worker", held)
        until(port, "/readyz", 200)
        before = until(port, "/healthz", 200)
        fleet.play(list(read_lines(LIGHT))[:50])
        health = until(port, "/healthz", 503)

        assert before == {"healthy": True, "stuck": []}
        reading = [stuck for stuck in health["stuck"] if stuck["task"] == "read"]
        assert [(stuck["partition"], stuck["why"]) for stuck in reading] == [
            (0, "its position stands at 2, and the log ends at 50")
        ]
        assert reading[0]["for_s"] >= STUCK_AFTER_S
        assert gauges(port)["daom_waiting_seconds"] >= STUCK_AFTER_S


def members(fleet):
    """How many members its group has."""

    async def ask():
        admin = AIOKafkaAdminClient(**fleet.client)
        await admin.start()
        try:
            [answer] = await admin.describe_consumer_groups([f"{fleet.prefix}-worker"])
            [group] = answer.groups
            return len(group[5])
        finally:
            await admin.close()

    return asyncio.run(ask())


def offsets(fleet):
    async def ask():
        async with OffsetReader(fleet.client, f"{fleet.prefix}-worker") as reader:
            return await reader.read(fleet.topics.telemetry, [0])

    return asyncio.run(ask())[0]


@pytest.mark.slow
def test_a_worker_that_is_told_to_stop_saves_commits_and_leaves_its_group(
    kafka, topic_prefix, port, tmp_path
):
    """Between two checkpoints: what it has folded since the last one is saved as it goes."""
    lines = list(read_lines(LIGHT))
    seldom = {"DAOM_WORKER__CHECKPOINT_S": "200"}
    with fleet_with_status(kafka, topic_prefix, port, **seldom) as fleet:
        worker = fleet.start_worker(tmp_path / "worker.log")
        until(port, "/readyz", 200)
        fleet.play(lines)
        eventually(lambda: gauges(port).get("daom_position") == len(lines), ALL_FOLDED_WITHIN_S)
        before = (members(fleet), fleet.values(fleet.topics.checkpoints))
        ended = worker.stop()
        markers = [v for k, v, _ in fleet.records(fleet.topics.checkpoints) if k == MARKER_KEY]

        assert (before, ended) == ((1, []), 0)
        assert [decode_marker(value).offset for value in markers] == [len(lines)]
        assert offsets(fleet) == (len(lines), len(lines))
        assert members(fleet) == 0


@pytest.mark.slow
def test_a_worker_whose_broker_is_away_is_alive_but_not_ready(
    kafka_script, topic_prefix, port, tmp_path
):
    """A restart would not bring the broker back."""
    settings = {"DAOM_WORKER__STUCK_AFTER_S": str(STUCK_AFTER_S)}
    with (
        RealKafka(tmp_path / "own-kafka", script=kafka_script) as own_kafka,
        fleet_with_status(own_kafka, topic_prefix, port, **settings) as fleet,
    ):
        fleet.start_worker(tmp_path / "worker.log")
        until(port, "/readyz", 200)
        own_kafka.kill()
        readiness = until(port, "/readyz", 503)
        health = asked(port, "/healthz")
        own_kafka.start()
        again = until(port, "/readyz", 200)

        assert readiness["why"].startswith("no Kafka broker answers: ")
        assert health[0] == 200
        assert again["partitions"] == [0]
