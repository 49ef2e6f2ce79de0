"""The bridge says whether it is alive, whether it feeds anybody, and what it has done."""

import asyncio
import json

import pytest

from connectors.alert_bridge import BridgeEvent
from connectors.bridge_status import HUNG_AFTER_S, BridgeStatus
from connectors.kafka import create_topics
from connectors.status_server import serving
from daom.topics import Topics
from tests.processes import running, said_at_the_end
from tests.servers import WITHOUT_PROXY, eventually, free_port

A, B = "http://am-0:9093", "http://am-1:9093"


class Scene:
    """A bridge to two Alertmanagers, and its clock."""

    def __init__(self):
        self.now_s = 100.0
        self.status = BridgeStatus(2, lambda: self.now_s)

    def met(self, kind, replica="", words=""):
        event = BridgeEvent(kind, 3, replica, words)
        self.status.counters.count(event)
        self.status.note(event)

    def page(self, path):
        page = self.status.pages()[path]()
        return page.ok, json.loads(page.body)


@pytest.fixture
def scene():
    return Scene()


def test_it_is_ready_once_the_topic_has_been_read(scene):
    before = scene.page("/readyz")
    scene.met("restored")

    assert before == (
        False,
        {"ready": False, "away": {}, "why": "the alert topic has not been read to its end"},
    )
    assert scene.page("/readyz") == (True, {"ready": True, "away": {}})


def test_one_replica_that_takes_alerts_is_enough_and_who_is_away_is_named(scene):
    scene.met("restored")
    scene.met("unavailable", A, "refused")
    one_away = scene.page("/readyz")
    scene.met("unavailable", B, "503")
    all_away = scene.page("/readyz")
    scene.met("available", A)

    assert one_away == (True, {"ready": True, "away": {A: "refused"}})
    assert all_away == (
        False,
        {"ready": False, "away": {A: "refused", B: "503"}, "why": "no Alertmanager takes alerts"},
    )
    assert scene.page("/readyz") == (True, {"ready": True, "away": {B: "503"}})
    assert scene.page("/healthz") == (True, {"healthy": True})


def test_a_loop_that_does_not_come_round_is_not_healthy(scene):
    scene.now_s += HUNG_AFTER_S

    why = f"its loop has not come round for {HUNG_AFTER_S:.0f} s"
    assert scene.page("/healthz") == (False, {"healthy": False, "why": why})


def test_a_loop_that_comes_round_again_is_healthy(scene):
    scene.now_s += HUNG_AFTER_S

    async def once():
        beating = asyncio.ensure_future(scene.status.beat())
        await asyncio.sleep(0)
        beating.cancel()

    asyncio.run(once())

    assert scene.page("/healthz") == (True, {"healthy": True})


def test_what_became_of_the_alerts_is_counted(scene):
    scene.met("sent", A)
    scene.met("sent", B)
    scene.met("unavailable", B)

    lines = scene.status.pages()["/metrics"]().body.decode().splitlines()

    assert 'daom_bridge_alerts_total{what="sent"} 6' in lines
    assert 'daom_bridge_alerts_total{what="rejected"} 0' in lines
    assert "daom_bridge_replicas_away 1" in lines


def test_the_command_answers_from_its_start_and_ends_on_sigterm(embedded_broker, topic_prefix):
    client = {"bootstrap_servers": embedded_broker.bootstrap_servers}
    asyncio.run(create_topics(client, Topics(topic_prefix).specs(partitions=1)))
    port = free_port()

    def ready():
        with WITHOUT_PROXY.open(f"http://127.0.0.1:{port}/readyz", timeout=5.0) as answer:
            return json.loads(answer.read())

    def is_ready():
        try:
            return ready()
        except OSError:
            return None

    arguments = ("bridge", "alertmanager", "--url", A, "--port", str(port))
    with running(
        *arguments,
        DAOM_KAFKA__BOOTSTRAP_SERVERS=embedded_broker.bootstrap_servers,
        DAOM_KAFKA__TOPIC_PREFIX=topic_prefix,
    ) as process:
        answer = eventually(is_ready)
        said = said_at_the_end(process)

    assert answer == {"ready": True, "away": {}}
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_told_in_one_line():
    port = free_port()
    with (
        serving("127.0.0.1", port, {}),
        running("bridge", "alertmanager", "--port", str(port)) as p,
    ):
        _, said = p.communicate(timeout=20.0)

    assert p.returncode == 2
    assert said.startswith(f"daom: cannot listen on 127.0.0.1:{port}: ")
