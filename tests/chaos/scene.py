"""What faults happen to: a broker, workers, a bridge and an Alertmanager, and who feeds them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Self

import numpy as np

from connectors.embedded_broker import EmbeddedBroker
from connectors.player import play
from connectors.recordings import Line, record_time_s
from daom.codec import decode
from daom.config import Config
from daom.connections import KafkaConfig
from daom.errors import SinkUnavailable, SourceError
from tests.chaos.alertmanager import Way
from tests.chaos.books import Books
from tests.fleet import Fleet, Worker
from tests.kafka_servers import RealKafka
from tests.servers import WITHOUT_PROXY, Alertmanager, eventually

PARTITIONS = 4
WORKERS = 2
AGREES_WITHIN_S = 180.0
SETTLES_S = 60.0
PLAYED_IN_S = 2.0
"""How long the telemetry of a round takes to come in."""
_OWNS = "this worker owns partitions"
_SETTINGS = {
    "DAOM_BRIDGE__RESEND_S": "2",
    # Seldom enough that a crash leaves something to say again.
    "DAOM_WORKER__CHECKPOINT_S": "5",
}


class Scene:
    """A fleet that is watched. Leave the context and all of it is gone.

    Args:
        folder: Where data and logs go.
        rng: Decides everything that a fault leaves open.
        broker: Not started; the embedded one is for faults that leave the broker alone.

    Attributes:
        rng: Decides everything that a fault leaves open.
        restarts: Workers that ended by themselves and were started again, as systemd would.
    """

    def __init__(
        self, folder: Path, rng: np.random.Generator, broker: RealKafka | EmbeddedBroker
    ) -> None:
        self.folder = folder
        self.rng = rng
        self._broker = broker
        self.restarts = 0
        self._exit = ExitStack()
        self._numbers = count(1)

    def __enter__(self) -> Self:
        enter = self._exit.enter_context
        enter(self._broker)
        address = self._broker.bootstrap_servers
        self.fleet = enter(Fleet(address, "chaos", PARTITIONS, settings=_SETTINGS))
        self.alertmanager = enter(Alertmanager(self.folder / "alertmanager"))
        self.way = enter(Way(self.alertmanager.url))
        self.bridge = self._start_bridge()
        self._exit.callback(self._kill_bridge)
        config = Config(kafka=KafkaConfig(bootstrap_servers=(address,), topic_prefix="chaos"))
        self.books = Books(self.fleet.client, self.fleet.topics, config)
        for _ in range(WORKERS):
            self.start_worker()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    # What faults are made of

    @property
    def kafka(self) -> RealKafka:
        """The broker, to be killed: the embedded one would come back without its data."""
        assert isinstance(self._broker, RealKafka), "this fault needs a broker that keeps its data"
        return self._broker

    def start_worker(self) -> Worker:
        """Start one more worker."""
        return self.fleet.start_worker(self.folder / f"worker-{next(self._numbers)}.log")

    def some_worker(self) -> Worker:
        """Return one of the workers that run."""
        running = [worker for worker in self.fleet.workers if worker.running]
        return running[int(self.rng.integers(len(running)))]

    def restart_bridge(self) -> None:
        """Kill the bridge, and start another one."""
        self._kill_bridge()
        self.bridge = self._start_bridge()

    def _kill_bridge(self) -> None:
        self.bridge.kill()
        self.bridge.wait()

    def _start_bridge(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "daom", "bridge", "alertmanager", "--url", self.way.url]
        with (self.folder / "bridge.log").open("ab") as log:
            return subprocess.Popen(command, env=self.fleet.environment, stdout=log, stderr=log)

    def play(self, lines: Sequence[Line]) -> None:
        """Send telemetry, as fast as Kafka takes it."""
        self.fleet.play(lines)

    @contextmanager
    def amid(self, lines: Sequence[Line]) -> Iterator[None]:
        """Come to some moment while ``lines`` come in; at the end they all have."""
        first_s, last_s = (_time_of(lines[place]) for place in (0, -1))
        speed = (last_s - first_s) / PLAYED_IN_S
        topic = self.fleet.topics.telemetry
        with ThreadPoolExecutor(1) as pool:
            played = pool.submit(asyncio.run, play(lines, self.fleet.client, topic, speed=speed))
            time.sleep(float(self.rng.uniform(0.0, PLAYED_IN_S)))
            yield
            played.result()

    # What must be so after each of them

    def settle(self) -> None:
        """Wait until the group has taken in every worker.

        The embedded broker's groups do not always get over a member that leaves while another one
        joins; Apache Kafka's do, and are not waited for.
        """
        running = [worker for worker in self.fleet.workers if worker.running]
        eventually(lambda: all(_OWNS in worker.log.read_text() for worker in running), SETTLES_S)

    def revive(self) -> None:
        """Start what has ended by itself again, as systemd would, and let go whom nobody misses."""
        ended = [worker for worker in self.fleet.workers if not worker.running]
        for worker in ended:
            self.fleet.workers.remove(worker)
        while len(self.fleet.workers) < WORKERS:
            self.start_worker()
            self.restarts += 1

    def disagreement(self) -> str:
        """Return, once all has been said and Alertmanager knows it, "", else what is not so.

        It waits as long as something is missing; what is beyond or different never gets well.
        """
        deadline_s = time.monotonic() + AGREES_WITHIN_S
        while True:
            wrong = self._differences()
            if not wrong:
                return ""
            if time.monotonic() > deadline_s:
                return "; ".join([*wrong, self.books.told()])
            self.revive()
            time.sleep(0.3)

    def _differences(self) -> list[str]:
        try:
            differences = list(self.books.differences())
        except (SourceError, SinkUnavailable) as error:
            return [str(error)]
        return [*differences, *self._alertmanager_differs()]

    def _alertmanager_differs(self) -> Iterator[str]:
        with WITHOUT_PROXY.open(f"{self.alertmanager.url}/api/v2/alerts", timeout=10.0) as answer:
            found = {frozenset(alert["labels"].items()) for alert in json.load(answer)}
        wanted = {frozenset(labels.items()) for labels in self.books.firing.values()}
        if found != wanted:
            yield (
                f"Alertmanager shows {len(found)} alerts where {len(wanted)} fire; too many: "
                f"{[dict(labels) for labels in found - wanted]}, "
                f"missing: {[dict(labels) for labels in wanted - found]}"
            )


def _time_of(line: Line) -> float:
    """Return the event time of a recording's line, Unix seconds."""
    return record_time_s(decode(line.value).record)
