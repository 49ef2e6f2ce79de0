"""Statistics of a real vLLM, as its stat loggers get them."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

DATA = Path(__file__).parents[1] / "data" / "vllm"
_MAPPINGS = ("running_lora_adapters", "waiting_lora_adapters", "num_kv_fetch_reqs_by_stage")


class Taken(NamedTuple):
    """One call of ``record``: which process it was in, and what it was given."""

    pid: int
    engine: int
    scheduler: object
    iteration: object
    wall_s: float


def recorded(name):
    """Return the calls of ``record`` that the recording ``name`` holds."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt") as lines:
        calls = [json.loads(line) for line in lines]
    return [
        Taken(
            call["pid"],
            call["engine_idx"],
            objects(call["scheduler"]),
            objects(call["iteration"]),
            call["wall"],
        )
        for call in calls
        if call["kind"] == "record"
    ]


def objects(value):
    """Return ``value`` with attributes instead of keys, as vLLM's own classes have them."""
    if isinstance(value, dict):
        return SimpleNamespace(**{k: v if k in _MAPPINGS else objects(v) for k, v in value.items()})
    if isinstance(value, list):
        return [objects(each) for each in value]
    return value


def step(at_s, *, ttfts_s=(), gaps_s=(), finished=(), tokens=None, **more):
    """An IterationStats of ``at_s``; what is not given is not there, as in an older version."""
    return SimpleNamespace(
        iteration_timestamp=at_s,
        num_generation_tokens=len(ttfts_s) + len(gaps_s) if tokens is None else tokens,
        time_to_first_tokens_iter=list(ttfts_s),
        inter_token_latencies_iter=list(gaps_s),
        finished_requests=list(finished),
        **more,
    )


def scheduler(running=1, waiting=0, **more):
    """A SchedulerStats."""
    return SimpleNamespace(num_running_reqs=running, num_waiting_reqs=waiting, **more)


def finished(e2e_s, tokens=10, reason=1, **more):
    """A FinishedRequestStats."""
    return SimpleNamespace(
        finish_reason=reason, e2e_latency=e2e_s, num_generation_tokens=tokens, **more
    )
