"""A change of a real vLLM engine is found, and a restart with nothing changed is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from daom.codec import decode_output
from daom.events import Alert, DriftVerdict, RcaTrigger
from tests.fleet import Fleet
from tests.servers import eventually
from tests.vllm.engine import Load, Vllm

T = TypeVar("T")

pytestmark = [pytest.mark.vllm, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

# Panes of a second, so that a minute is a reference.
SETTINGS = {"DAOM_TIME__PANE_S": "1", "DAOM_TIME__LATENESS_S": "1", "DAOM_ALERTS__PENDING_S": "5"}
STREAMS = Load(streams=8, requests=10, prompt_words=60, output_tokens=24, think_s=0.2)
ROUNDS = 40
JUDGED_PANES = 20


def serve_until(engine: Vllm, condition: Callable[[], T], seed: int) -> T:
    """Send round after round of requests, until ``condition`` holds; return what it said."""
    for round_seed in range(seed, seed + ROUNDS):
        replace(STREAMS, seed=round_seed).run(engine.url)
        if answer := condition():
            return answer
    raise AssertionError(f"not so after {ROUNDS} rounds; vLLM's log:\n{engine.log[-2_000:]}")


def said(fleet: Fleet, kind: type) -> list:
    outputs = [decode_output(value) for value in fleet.said().values()]
    return sorted((o for o in outputs if isinstance(o, kind)), key=lambda o: o.event_time_s)


def judged(fleet: Fleet, after_s: float = 0.0) -> set[float]:
    """Panes after ``after_s`` in which a signal had a reference to be judged by."""
    verdicts = said(fleet, DriftVerdict)
    known = {v.event_time_s for v in verdicts if v.drifting != "insufficient"}
    return {event_time_s for event_time_s in known if event_time_s > after_s}


def firing(fleet: Fleet) -> list[Alert]:
    """Drift alerts that have fired."""
    alerts = said(fleet, Alert)
    return [a for a in alerts if a.state == "firing" and a.name == "LatencyDrift"]


def test_a_lower_limit_of_sequences_is_found_and_a_restart_is_not(
    kafka, topic_prefix: str, tmp_path: Path
) -> None:
    with Fleet(kafka.bootstrap_servers, topic_prefix, partitions=1, settings=SETTINGS) as fleet:
        fleet.start_worker(tmp_path / "worker.log")
        environment = {
            "DAOM_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "DAOM_KAFKA__TOPIC_PREFIX": topic_prefix,
            "DAOM_PROBE__ENGINE": "blue",
        }
        with Vllm(tmp_path, environment=environment) as engine:
            learned = serve_until(engine, lambda: judged(fleet), seed=100)
        stopped_s = max(learned)

        with Vllm(tmp_path, environment=environment) as engine:
            serve_until(
                engine, lambda: len(judged(fleet, after_s=stopped_s)) >= JUDGED_PANES, seed=200
            )
        assert firing(fleet) == []

        with Vllm(tmp_path, "--max-num-seqs", "1", environment=environment) as engine:
            alerts = serve_until(engine, lambda: firing(fleet), seed=300)

        assert {"ttft_s", "e2e_s"} & {a.labels["signal"] for a in alerts}
        assert {a.attribution for a in alerts} <= {"service", "mixed"}
        triggers = eventually(lambda: said(fleet, RcaTrigger), 30.0, every_s=1.0)
        causes = [cause for trigger in triggers for cause in trigger.causes]
        assert any("max_num_seqs=1" in word for cause in causes for word in cause.evidence)
