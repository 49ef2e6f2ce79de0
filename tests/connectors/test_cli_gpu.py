"""``daom gpu`` as its user meets it, on a machine with scripted GPUs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from connectors.kafka import create_topics
from daom.codec import decode
from daom.events import GpuSample
from daom.topics import Topics
from tests.conftest import Broker
from tests.connectors.nvidia import GPU, OTHER, WITHIN_S, Machine

NOBODY = "127.0.0.1:1"


def said(process: subprocess.Popen[str]) -> str:
    """The next line on standard error."""
    assert process.stderr is not None
    return process.stderr.readline()


def ended(process: subprocess.Popen[str]) -> str:
    """Stop it in order; return the rest of what it says."""
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    return error


# One reading


def test_once_shows_every_gpu_in_a_table_and_whose_they_are(machine: Machine) -> None:
    done = machine.has(GPU, OTHER).daom("gpu", "--once", "--model", "llama", "--host", "host-3")

    assert (done.returncode, done.stderr) == (0, "")
    for word in ("GPU-00000000-aaaa", "GPU-11111111-bbbb", "sm_clock_mhz", "1,980", "645.5"):
        assert word in done.stdout
    assert "llama, all engines on host-3: GPU-00000000-aaaa, GPU-11111111-bbbb" in done.stdout


def test_once_as_json_is_for_scripts(machine: Machine) -> None:
    arguments = ("--once", "--json", "--gpus", "1", "--model", "llama", "--engine", "e1")

    told = json.loads(machine.has(GPU, OTHER).daom("gpu", *arguments).stdout)

    assert told["host"] == socket.gethostname()
    assert [gpu["uuid"] for gpu in told["gpus"]] == [OTHER["uuid"]]
    assert told["engines"] == [{"model": "llama", "engine": "e1", "gpus": [OTHER["uuid"]]}]


def test_once_says_that_nobody_names_an_engine(machine: Machine) -> None:
    done = machine.has(GPU).daom("gpu", "--once")

    assert "no process on them says so, and no --model was given" in done.stdout


# What keeps it from reading


def test_without_a_driver_it_says_so_in_one_line_and_exits_with_3(machine: Machine) -> None:
    done = machine.daom("gpu", "--once")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "daom: there is no NVIDIA driver to ask: NVML Shared Library Not Found\n"
    )


def test_a_driver_that_is_not_loaded_is_none(machine: Machine) -> None:
    machine.install_driver()

    done = machine.daom("gpu", "--model", "llama")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "daom: there is no NVIDIA driver to ask: Driver Not Loaded\n"


def test_a_driver_without_a_gpu_exits_with_3(machine: Machine) -> None:
    done = machine.has().daom("gpu", "--once")

    assert (done.returncode, done.stderr) == (3, "daom: the NVIDIA driver sees no GPU\n")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--engine", "e1"], "--engine needs --model"),
        (["--json"], "--json needs --once"),
        (["--interval", "soon"], "got 'soon'; 0.1s or more is needed, such as 1s"),
        (["--interval", "0s"], "got '0s'; 0.1s or more"),
        (["--gpus", "7"], "got '7', which is none of those that are here: 0, 1, GPU-00000000"),
        (["--gpus", "GPU-"], "got 'GPU-', which could be several of"),
        (["--gpus", "-1"], "indexes or UUIDs with commas between are needed"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_why(
    machine: Machine, arguments: list[str], word: str
) -> None:
    done = machine.has(GPU, OTHER).daom("gpu", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert word in done.stderr


def test_it_waits_for_a_driver_and_says_so_once(machine: Machine) -> None:
    process = machine.start("gpu", "--wait", "--model", "llama", "--brokers", NOBODY)

    waiting = said(process)
    machine.has(GPU)
    reading = said(process)
    rest = ended(process)

    assert waiting.endswith("NVML Shared Library Not Found; waiting for it\n")
    assert reading == "daom: reading 1 GPU every 1 s -> daom.telemetry\n"
    assert "waiting" not in rest


def test_a_wait_may_be_broken_off(machine: Machine) -> None:
    process = machine.start("gpu", "--wait", "--model", "llama")
    said(process)

    assert ended(process) == ""


# The agent


def received(broker: Broker, topic: str, count: int) -> list[tuple[str, GpuSample]]:
    """The first records of ``topic`` with their keys, once they are there; none at fault."""

    async def read() -> list[Any]:
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            return [await consumer.getone() for _ in range(count)]

    messages = asyncio.run(asyncio.wait_for(read(), WITHIN_S))
    decoded = [decode(message.value) for message in messages]
    assert [fault for each in decoded for fault in each.faults] == []
    records = [each.record for each in decoded]
    assert all(isinstance(record, GpuSample) for record in records)
    return [(m.key.decode(), r) for m, r in zip(messages, records, strict=True)]


def agent(machine: Machine, broker: Broker, prefix: str, *arguments: str) -> subprocess.Popen[str]:
    client = {"bootstrap_servers": broker.bootstrap_servers}
    asyncio.run(create_topics(client, Topics(prefix).specs(partitions=1)))
    machine.settings["DAOM_KAFKA__TOPIC_PREFIX"] = prefix
    where = ("--brokers", broker.bootstrap_servers)
    return machine.start("gpu", *where, "--interval", "0.1s", *arguments)


def test_it_sends_readings_under_the_models_key_until_it_is_stopped(
    machine: Machine, embedded_broker: Broker, topic_prefix: str
) -> None:
    topic = Topics(topic_prefix).telemetry
    process = agent(
        machine.has(GPU), embedded_broker, topic_prefix, "--model", "llama", "--engine", "e1"
    )

    records = received(embedded_broker, topic, 3)
    rest = ended(process)

    assert {key for key, _ in records} == {"llama"}
    assert {(r.source.engine, r.source.host) for _, r in records} == {("e1", socket.gethostname())}
    assert [gpu["sm_clock_mhz"] for _, r in records for gpu in r.gpus] == [1_980.0] * 3
    times_s = [record.time_s for _, record in records]
    assert times_s == sorted(times_s)
    assert f"records to {topic}" in rest


def test_it_finds_the_engine_of_a_process_on_the_gpu(
    machine: Machine, embedded_broker: Broker, topic_prefix: str
) -> None:
    names: Mapping[str, str] = {"DAOM_PROBE__MODEL": "qwen", "DAOM_PROBE__ENGINE": "blue"}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env={**os.environ, **names},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None
        engine.stdout.readline()
        machine.has({**GPU, "processes": f"{engine.pid}:1000"}, OTHER)
        process = agent(machine, embedded_broker, topic_prefix)

        [(key, record)] = received(embedded_broker, Topics(topic_prefix).telemetry, 1)
        ended(process)
        engine.stdin.close()

    assert (key, record.source.engine) == ("qwen", "blue")
    assert [gpu["uuid"] for gpu in record.gpus] == [GPU["uuid"]]
