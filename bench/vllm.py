"""What the plugin costs a real vLLM: ``make bench-vllm`` (``ARGS=--short`` for a quick look).

Two servers stand side by side, one with the plugin and one without, and get the same load in turn:
the pairs share whatever else the machine does. Each server is started anew for some pairs, since
one start differs from the next. Measured is the CPU time of the API process for the same requests,
which is where the plugin lives, and the throughput. The load leaves the machine some air: where
all compete for the processor, it is the competition that is measured. ``record()`` is timed by
itself, call by call, in a loop that works as an event loop does between two steps, with the
plugin's thread beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from connectors.kafka import create_topics
from connectors.probe_settings import read_probe_settings
from connectors.vllm_probe import Probe
from daom.topics import Topics, TopicSpec
from tests.connectors.vllm_recorded import recorded
from tests.kafka_servers import RealKafka
from tests.vllm.engine import Load, Vllm

_STEP_S = 0.004
_CONFIDENCE_Z = 2.0
_ANSWER = {"id": "cmpl-0", "choices": [{"index": n, "text": "w" * 20} for n in range(8)]}


class Run(NamedTuple):
    """One load on one server."""

    cpu_s: float
    tokens_per_s: float
    ttft_s: float


def record_us(address: str, steps: int) -> tuple[np.ndarray, float]:
    """Return how long each call of ``record()`` took, and what its thread needs of a step.

    A step every 4 ms, all threads at work. Between the calls answers are encoded, as vLLM does: the
    processor is awake, and the plugin's code has left its innermost caches.
    """
    settings = read_probe_settings({"DAOM_KAFKA__BOOTSTRAP_SERVERS": address})
    probe = Probe(settings, None, [0], "0")
    probe.start()
    calls = recorded("statlogger_sample")
    taken = np.empty(steps)
    others_s = time.process_time() - time.thread_time()
    for number in range(steps):
        call = calls[number % len(calls)]
        began_ns = time.perf_counter_ns()
        probe.record(0, call.scheduler, call.iteration)
        taken[number] = 1e-3 * (time.perf_counter_ns() - began_ns)
        _serve_for(_STEP_S)
    others_s = time.process_time() - time.thread_time() - others_s
    probe.stop()
    return taken, 1e6 * others_s / steps


def _serve_for(duration_s: float) -> None:
    until_s = time.perf_counter() + duration_s
    while time.perf_counter() < until_s:
        json.dumps(_ANSWER)


def run(server: Vllm, load: Load) -> Run:
    """Put ``load`` on ``server``; the CPU time is that of its API process."""
    before_s, began_s = _cpu_s(server.pid), time.perf_counter()
    answers = load.run(server.url)
    wall_s = time.perf_counter() - began_s
    return Run(
        cpu_s=_cpu_s(server.pid) - before_s,
        tokens_per_s=sum(answer.output_tokens for answer in answers) / wall_s,
        ttft_s=float(np.mean([answer.ttft_s for answer in answers])),
    )


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process' threads, to the nanosecond; its children's left out."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return 1e-9 * sum(int(thread.read_text().split()[0]) for thread in threads)


def pairs(address: str, folder: Path, starts: int, loads: int) -> list[tuple[Run, Run]]:
    """Return pairs of runs: without the plugin, and with it."""
    found = []
    for start in range(starts):
        places = [folder / f"{start}-{name}" for name in ("without", "with")]
        for place in places:
            place.mkdir()
        reporting = {"DAOM_KAFKA__BOOTSTRAP_SERVERS": address}
        # A list of plugins in which DAOM's is not.
        silent = {"VLLM_PLUGINS": "none"}
        with (
            Vllm(places[0], environment=silent) as without,
            Vllm(places[1], environment=reporting) as instrumented,
        ):
            for server in (without, instrumented):
                run(server, Load(streams=20, requests=2))
            for number in range(loads):
                load = Load(streams=8, requests=6, output_tokens=100, think_s=0.2, seed=number)
                # Who goes first alternates: the second finds a warmer machine.
                order = (without, instrumented) if number % 2 else (instrumented, without)
                runs = {server: run(server, load) for server in order}
                found.append((runs[without], runs[instrumented]))
                print(f"start {start + 1}, pair {number + 1}: {found[-1]}", flush=True)
    return found


def main() -> None:
    """Measure, and print what was found with its 95 % limits."""
    parser = argparse.ArgumentParser(prog="python -m bench.vllm", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one start, three pairs")
    arguments = parser.parse_args()
    starts, loads = (1, 3) if arguments.short else (3, 12)
    with tempfile.TemporaryDirectory() as folder, RealKafka(Path(folder) / "kafka") as kafka:
        address = kafka.bootstrap_servers
        topic = TopicSpec(Topics().telemetry, 1, 1, {})
        asyncio.run(create_topics({"bootstrap_servers": address}, [topic]))
        taken, thread_us = record_us(address, 1_000 if arguments.short else 10_000)
        found = pairs(address, Path(folder), starts, loads)
    print(
        f"record(): mean {taken.mean():.2f} us, p99 {np.quantile(taken, 0.99):.2f} us; "
        f"the plugin's thread: {thread_us:.1f} us a step"
    )
    for name in Run._fields:
        sides = (np.array([getattr(pair[side], name) for pair in found]) for side in (0, 1))
        print(f"{name:14} {_difference(*sides)}")


def _difference(without: np.ndarray, instrumented: np.ndarray) -> str:
    """Return both means and the ratio of the pairs, with its limits."""
    logs = np.log(instrumented / without)
    error = _CONFIDENCE_Z * logs.std(ddof=1) / np.sqrt(logs.size)
    low, most_likely, high = 100.0 * np.expm1(logs.mean() + np.array([-error, 0.0, error]))
    return (
        f"without {without.mean():10.3f}  with {instrumented.mean():10.3f}  "
        f"{most_likely:+.1f} % ({low:+.1f} to {high:+.1f})"
    )


if __name__ == "__main__":
    main()
