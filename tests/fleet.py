"""A fleet for tests: workers as processes, a recording of several cells, and what they said."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
from aiokafka import AIOKafkaProducer

from connectors.kafka import create_topics, read_topic
from connectors.player import play
from connectors.recordings import Line, merge_by_time, read_lines
from daom.codec import decode, decode_output, encode_json, encode_output
from daom.config import Config
from daom.events import Record
from daom.fold import Fold
from daom.presets import cell_settings
from daom.replay import Fault, Sourced, Tally, replay
from daom.topics import Topics
from tests.servers import eventually

DATA = Path(__file__).parent / "data" / "burstgpt"
OVERLOAD = DATA / "light_to_overload.jsonl.gz"
LIGHT = DATA / "light.jsonl.gz"
LARGEST_BYTES = 20 * 2**20
"""Of a message that the fleet sends: more than workers take."""


def several_cells(models: Collection[str], until_s: float = 1_764_001_500.0) -> list[Line]:
    """Return the overload recording up to ``until_s``, once for each model, merged by time."""
    records = [decode(line.value).record for line in read_lines(OVERLOAD)]
    kept = [r for r in records if getattr(r, "end_s", None) or r.time_s < until_s]
    kept = [r for r in kept if getattr(r, "end_s", 0.0) < until_s]
    streams: list[list[Record]] = [
        [
            msgspec.structs.replace(r, source=msgspec.structs.replace(r.source, model=model))
            for r in kept
        ]
        for model in models
    ]
    merged = merge_by_time(streams)
    return [Line(number, encode_json(r)) for number, r in enumerate(merged, start=1)]


def said_by_replay(
    lines: Collection[Line], config: Config | None = None, partition: int | None = None
) -> dict[str, bytes]:
    """Return what a replay of ``lines`` says, by id; they may be all of one partition."""
    fold = Fold(cell_settings(config or Config()), partition=partition)
    values = (Sourced(f"line {line.number}", line.value) for line in lines)
    said = [o for o in replay(values, fold, Tally()) if not isinstance(o, Fault)]
    by_id = {output.id: encode_output(output) for output in said}
    assert len(by_id) == len(said), "ids must be unique"
    return by_id


@dataclass
class Fleet:
    """Topics of their own on a broker, and the workers that share them."""

    brokers: str
    prefix: str
    partitions: int = 4
    settings: dict[str, str] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)

    def __enter__(self) -> Self:
        specs = self.topics.specs(partitions=self.partitions, telemetry_retention_s=float("inf"))
        asyncio.run(create_topics(self.client, specs))
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()

    @property
    def topics(self) -> Topics:
        return Topics(self.prefix)

    @property
    def client(self) -> dict[str, object]:
        return {"bootstrap_servers": self.brokers}

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DAOM_KAFKA__BOOTSTRAP_SERVERS": self.brokers,
            "DAOM_KAFKA__TOPIC_PREFIX": self.prefix,
            "DAOM_KAFKA__GROUP": f"{self.prefix}-worker",
            "DAOM_KAFKA__SESSION_TIMEOUT_S": "6",
            "DAOM_KAFKA__REBALANCE_TIMEOUT_S": "5",
            "DAOM_WORKER__CHECKPOINT_S": "1",
            **self.settings,
        }

    def start_worker(self, log: Path, *program: str) -> Worker:
        """Start a worker; ``program`` is what to run in its place."""
        worker = Worker(self.environment, log, program or ("daom", "worker"))
        self.workers.append(worker)
        return worker

    def play(self, lines: Collection[Line]) -> None:
        asyncio.run(play(lines, self.client, self.topics.telemetry, speed=None))

    def send(self, messages: Iterable[tuple[bytes | None, bytes | None, int | None]]) -> None:
        """Append keys, values and log times (ms; None: now) to the telemetry, just as they are."""

        async def send() -> None:
            async with AIOKafkaProducer(**self.client, max_request_size=LARGEST_BYTES) as producer:
                topic = self.topics.telemetry
                sent = [
                    await producer.send(topic, value, key=key, timestamp_ms=time_ms)
                    for key, value, time_ms in messages
                ]
                await asyncio.gather(*sent)

        asyncio.run(send())

    def replayed(self) -> tuple[list[bytes], list[str]]:
        """Return what ``daom replay`` prints of the telemetry: outputs, and what it cannot use."""
        source = f"topic:{self.topics.telemetry}"
        done = subprocess.run(
            [sys.executable, "-m", "daom", "replay", source, "--json"],
            env=self.environment,
            capture_output=True,
            check=True,
            timeout=120.0,
        )
        return done.stdout.splitlines(), done.stderr.decode().splitlines()

    def verified(self, *more: str, telemetry: str | None = None) -> tuple[int, dict[str, Any]]:
        """Return the exit code of ``daom replay --verify``, and what it tells."""
        source = f"topic:{telemetry or self.topics.telemetry}"
        done = subprocess.run(
            [sys.executable, "-m", "daom", "replay", source, "--verify", "--json", *more],
            env=self.environment,
            capture_output=True,
            check=False,
            timeout=120.0,
        )
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)

    def values(self, topic: str) -> list[bytes]:
        """Return what a topic holds, in the order of its partitions."""
        return [value for _, value, _ in self.records(topic)]

    def records(self, topic: str) -> list[tuple[bytes | None, bytes, dict[str, bytes]]]:
        async def collect() -> list[tuple[bytes | None, bytes, dict[str, bytes]]]:
            return [
                (record.key, record.value, dict(record.headers))
                async for record in read_topic(self.client, topic)
            ]

        return asyncio.run(collect())

    def said(self) -> dict[str, bytes]:
        """Return what the workers have said, by id; a repeat must be the same to the byte."""
        by_id: dict[str, bytes] = {}
        for topic in self.topics.outputs:
            for value in self.values(topic):
                known = by_id.setdefault(decode_output(value).id, value)
                assert known == value, "a repeat differs"
        return by_id

    def says(self, expected: dict[str, bytes], within_s: float = 90.0) -> dict[str, bytes]:
        """Return what has been said once it is all that is expected, or when time is up."""

        def complete() -> dict[str, bytes] | None:
            said = self.said()
            return said if expected.keys() <= said.keys() else None

        try:
            return eventually(complete, within_s, every_s=0.5)  # type: ignore[return-value]
        except AssertionError:
            return self.said()


class Worker:
    """A ``daom worker`` in a process of its own."""

    def __init__(
        self, environment: dict[str, str], log: Path, program: Sequence[str] = ("daom", "worker")
    ) -> None:
        self.log = log
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *program],
                env=environment,
                stdout=stream,
                stderr=stream,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self, within_s: float = 20.0) -> int:
        """SIGTERM; return the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(within_s)

    def pause(self) -> None:
        """SIGSTOP: make it hang."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
