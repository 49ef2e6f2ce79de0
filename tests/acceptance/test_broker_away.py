"""The broker goes away and comes back; a worker waits, and in the end nothing is lost."""

from __future__ import annotations

import asyncio
import time
from threading import Thread

import pytest

from connectors.player import play
from tests.fleet import OVERLOAD, Fleet, read_lines, said_by_replay
from tests.kafka_servers import RealKafka
from tests.servers import eventually

SPEED = 200.0
"""The recording is played in 11 s, so that there is a middle to break off in."""
LONGER_THAN_A_SESSION_S = 8.0
IN_THE_END_S = 60.0


@pytest.fixture(scope="module")
def own_kafka(kafka_script, tmp_path_factory):
    """A Kafka that only these tests use: they kill it."""
    with RealKafka(tmp_path_factory.mktemp("own-kafka"), script=kafka_script) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def lines():
    return list(read_lines(OVERLOAD))


@pytest.fixture(scope="module")
def expected(lines):
    return said_by_replay(lines)


@pytest.fixture
def fleet(own_kafka, topic_prefix):
    with Fleet(own_kafka.bootstrap_servers, topic_prefix) as fleet:
        yield fleet


class Playing(Thread):
    """The recording at its pace, until all of it has arrived."""

    def __init__(self, fleet, lines):
        super().__init__(daemon=True)
        self._fleet, self._lines = fleet, lines
        self.sent = 0

    def run(self):
        topic = self._fleet.topics.telemetry
        self.sent = asyncio.run(play(self._lines, self._fleet.client, topic, speed=SPEED))


def said_in_the_end(fleet, expected, log):
    """What has been said once all is; a worker that has ended is started again, as by systemd."""

    def complete():
        if not any(worker.running for worker in fleet.workers):
            fleet.start_worker(log)
        said = fleet.said()
        return said if expected.keys() <= said.keys() else None

    return eventually(complete, IN_THE_END_S, every_s=0.5)


@pytest.mark.slow
def test_a_worker_started_before_its_broker_waits_says_so_and_then_works(
    own_kafka, fleet, lines, expected, tmp_path
):
    own_kafka.kill()
    worker = fleet.start_worker(tmp_path / "worker.log")
    waiting = eventually(lambda: "waiting" in worker.log.read_text() and worker.log.read_text())
    own_kafka.start()
    fleet.play(lines)

    assert f"no Kafka broker answers: {own_kafka.bootstrap_servers}: " in waiting
    assert "Traceback" not in worker.log.read_text()
    assert fleet.says(expected) == expected
    assert worker.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "hung"])
def test_a_broker_that_is_away_in_the_middle_of_a_recording_costs_nothing(
    own_kafka, fleet, lines, expected, tmp_path, how
):
    fleet.start_worker(tmp_path / "worker.log")
    # However long the worker takes to start, it is there when the rest is played.
    before, rest = lines[: len(lines) // 4], lines[len(lines) // 4 :]
    fleet.play(before)
    said = eventually(lambda: len(fleet.said()), every_s=0.2)
    playing = Playing(fleet, rest)
    playing.start()
    eventually(lambda: len(fleet.said()) > said, every_s=0.2)
    assert playing.is_alive()
    if how == "killed":
        own_kafka.kill()
        own_kafka.start()
    else:
        until_s = time.monotonic() + LONGER_THAN_A_SESSION_S
        own_kafka.pause()
        eventually(lambda: time.monotonic() > until_s)
        own_kafka.resume()
    playing.join(IN_THE_END_S)

    assert playing.sent == len(rest)
    assert said_in_the_end(fleet, expected, tmp_path / "worker.log") == expected
