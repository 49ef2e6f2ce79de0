"""How long a worker takes to be back: ``python -m bench.recovery`` (some minutes; Apache Kafka).

A worker with so many series of state (``--series``) is killed with -9 half a minute of event time
after its checkpoint; another one is started at once. Both have the configuration that a worker has
by default, but save every 20 s. Printed is the time from the kill to the first verdict that had not
been said before, and what the second one logged. Kafka gives the partitions of a dead member to
another one only after ``kafka.session_timeout_s``.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from connectors.recordings import Line
from daom.codec import decode_output, encode_json
from daom.config import Config
from daom.events import Source, Table, TelemetryBatch
from tests.chaos.books import Tail
from tests.fleet import Fleet
from tests.kafka_servers import RealKafka
from tests.servers import eventually

_MODEL = "bench"
_START_S = 1_764_000_000.0
_PANE_S = 10.0
_SIGNALS = ("ttft_s", "e2e_s")
_LEARNING_PANES = 75
_UNSAVED_PANES = 3
_ROWS = 12
_WITHIN_S = 900.0


def lines(engines: int, first: int, panes: int) -> Iterator[Line]:
    """Yield one batch an engine and pane, pane by pane."""
    rng = np.random.default_rng(first)
    for pane in range(first, first + panes):
        start_s = _START_S + pane * _PANE_S
        end_s = np.sort(rng.uniform(start_s, start_s + _PANE_S - 0.1, _ROWS))
        for engine in range(engines):
            columns = {
                name: rng.lognormal(-1.0, 0.3, _ROWS).astype(np.float32) for name in _SIGNALS
            }
            columns["prompt_tokens"] = rng.lognormal(6.0, 1.0, _ROWS).round().astype(np.float32)
            source = Source(model=_MODEL, engine=f"gpu-{engine}", boot="b", seq=pane)
            table = Table(end_s=end_s, columns=columns)
            batch = TelemetryBatch(
                source=source, start_s=start_s, end_s=start_s + _PANE_S - 0.1, requests=table
            )
            yield Line(pane, encode_json(batch))


class Newest:
    """The event time of the newest verdict, followed as the topic grows."""

    def __init__(self, fleet: Fleet) -> None:
        self._tail = Tail(fleet.client, fleet.topics.verdicts)
        self._newest_s = 0.0

    def verdict_s(self) -> float:
        """Return it; 0 where there is none yet."""
        for record in self._tail.new()[-1:]:
            self._newest_s = max(self._newest_s, decode_output(record.value).event_time_s)
        return self._newest_s


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.recovery", description=__doc__)
    parser.add_argument("--series", type=int, default=1_000)
    engines = parser.parse_args().series // len(_SIGNALS)
    defaults = Config()
    settings = {
        "DAOM_KAFKA__SESSION_TIMEOUT_S": str(defaults.kafka.session_timeout_s),
        "DAOM_KAFKA__REBALANCE_TIMEOUT_S": str(defaults.kafka.rebalance_timeout_s),
        "DAOM_WORKER__CHECKPOINT_S": "20",
    }
    with tempfile.TemporaryDirectory() as folder, RealKafka(Path(folder) / "kafka") as kafka:
        fleet = Fleet(kafka.bootstrap_servers, "recovery", partitions=1, settings=settings)
        with fleet:
            _measure(fleet, engines, Path(folder))


def _measure(fleet: Fleet, engines: int, folder: Path) -> None:
    newest = Newest(fleet)
    first = fleet.start_worker(folder / "first.log")
    fleet.play(list(lines(engines, 0, _LEARNING_PANES)))
    learned_s = _START_S + (_LEARNING_PANES - 1) * _PANE_S
    eventually(lambda: newest.verdict_s() >= learned_s, _WITHIN_S, every_s=1.0)
    saved = len(fleet.records(fleet.topics.checkpoints))
    eventually(lambda: len(fleet.records(fleet.topics.checkpoints)) > saved, _WITHIN_S, every_s=1.0)
    fleet.play(list(lines(engines, _LEARNING_PANES, _UNSAVED_PANES)))
    said_s = learned_s + _UNSAVED_PANES * _PANE_S
    eventually(lambda: newest.verdict_s() >= said_s, _WITHIN_S, every_s=0.2)
    checkpoint = max(map(len, fleet.values(fleet.topics.checkpoints)))
    began_s = time.monotonic()
    first.kill()
    second = fleet.start_worker(folder / "second.log")
    fleet.play(list(lines(engines, _LEARNING_PANES + _UNSAVED_PANES, 2)))
    eventually(lambda: newest.verdict_s() > said_s, _WITHIN_S, every_s=0.1)
    took_s = time.monotonic() - began_s
    print(f"{engines} engines, {engines * len(_SIGNALS) + len(_SIGNALS)} series in one partition")
    print(f"checkpoint of the cell {checkpoint / 2**20:.1f} MiB")
    print(f"kill -9 to the first new verdict: {took_s:.1f} s")
    print("what the second worker logged:")
    for line in second.log.read_text().splitlines():
        if re.search(r"partition|owns", line):
            print(f"  {line}")


if __name__ == "__main__":
    main()
