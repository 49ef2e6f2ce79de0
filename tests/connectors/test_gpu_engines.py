"""Whose reading it is: named, read from the processes on the GPU, or of all on the host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from connectors.gpu_engines import Host, said_by_process
from connectors.nvml import GpuReading
from daom.events import Source, cell_of

ENGINE = {"DAOM_PROBE__MODEL": "llama", "DAOM_PROBE__ENGINE": "host-3/0"}
OTHER = {"DAOM_PROBE__MODEL": "llama", "DAOM_PROBE__ENGINE": "host-3/1"}
UNNAMED: Mapping[str, str] = {}

WAIT = "print(flush=True); input()"
WORKER_OF_AN_ENGINE = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "input()"], env={})
print(worker.pid, flush=True)
worker.wait()
"""

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with ``variables`` in its environment; return the pid that it prints."""
    ours = {n: v for n, v in os.environ.items() if not n.startswith("DAOM_PROBE__")}
    with ExitStack() as running:

        def process(variables: Mapping[str, str], script: str = WAIT) -> int:
            started = running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", script],
                    env={**ours, **variables},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert started.stdin is not None
            assert started.stdout is not None
            running.callback(started.stdin.close)
            return int(started.stdout.readline().strip() or started.pid)

        yield process


def gpu(uuid: str, *pids: int, **more: str) -> GpuReading:
    return GpuReading({"uuid": uuid, **more}, frozenset(pids))


def sent(host: Host, *readings: GpuReading) -> dict[tuple[str, str | None], list[str]]:
    """The UUIDs that go to each model and engine."""
    samples = host.samples(readings, 1_766_000_000.0)
    assert all(key == sample.source.model for key, sample in samples)
    assert {sample.source.host for _, sample in samples} <= {host.name}
    return {
        (sample.source.model, sample.source.engine): [str(g["uuid"]) for g in sample.gpus]
        for _, sample in samples
    }


def test_all_gpus_are_of_the_engine_that_is_named(start: Start) -> None:
    process = start(OTHER)

    found = sent(Host("host-3", "llama", "host-3/0"), gpu("GPU-a", process), gpu("GPU-b"))

    assert found == {("llama", "host-3/0"): ["GPU-a", "GPU-b"]}


def test_each_engine_has_the_gpus_that_its_processes_use(start: Start) -> None:
    one, two = start(ENGINE), start(OTHER)

    found = sent(Host("host-3"), gpu("GPU-a", one), gpu("GPU-b", one, two), gpu("GPU-c"))

    assert found == {
        ("llama", "host-3/0"): ["GPU-a", "GPU-b"],
        ("llama", "host-3/1"): ["GPU-b"],
    }


def test_processes_that_name_no_model_are_of_the_agents(start: Start) -> None:
    process = start({"DAOM_PROBE__ENGINE": "host-3/0"})

    assert sent(Host("host-3", "qwen"), gpu("GPU-a", process)) == {("qwen", "host-3/0"): ["GPU-a"]}


def test_an_engine_on_a_mig_device_has_the_gpu_too_whose_clock_it_runs_at(start: Start) -> None:
    one, two = start(ENGINE), start(OTHER)

    found = sent(
        Host("host-3"),
        gpu("GPU-a"),
        gpu("MIG-c", one, parent_uuid="GPU-a"),
        gpu("MIG-d", two, parent_uuid="GPU-a"),
    )

    assert found == {
        ("llama", "host-3/0"): ["GPU-a", "MIG-c"],
        ("llama", "host-3/1"): ["GPU-a", "MIG-d"],
    }


def test_where_no_process_names_an_engine_a_reading_is_of_all_on_the_host(start: Start) -> None:
    found = sent(Host("host-3", "llama"), gpu("GPU-a", start(UNNAMED)), gpu("GPU-b"))

    assert found == {("llama", None): ["GPU-a", "GPU-b"]}


def test_in_a_model_of_several_cells_an_engine_is_told_in_its_own_and_a_host_in_all() -> None:
    named = Host("host-3", "llama", "host-3/0", cells=4).samples([gpu("GPU-a")], 0.0)
    of_all = Host("host-3", "llama", cells=4).samples([gpu("GPU-a")], 0.0)

    engine = Source(model="llama", engine="host-3/0")
    assert [key for key, _ in named] == [cell_of(engine, 4)]
    assert [key for key, _ in of_all] == ["llama/0", "llama/1", "llama/2", "llama/3"]


def test_where_nobody_names_a_model_nothing_is_sent(start: Start) -> None:
    assert sent(Host("host-3"), gpu("GPU-a", start(UNNAMED))) == {}


def test_a_worker_that_lost_its_environment_has_that_of_its_engine(start: Start) -> None:
    assert said_by_process(start(ENGINE, WORKER_OF_AN_ENGINE)) == ENGINE


def test_a_process_that_has_ended_says_nothing() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""], env=ENGINE)
    done.wait()

    assert said_by_process(done.pid) == {}
