"""The recording of tests/data/tuning: real arrivals, simulated latencies, a written-down day.

``python -m bench.tuning_recording`` writes it and its incidents anew, the same bytes each time on
one machine. What is real: when requests came and how long prompts and answers were, from
tests/data/azure. What is not: every latency, which comes from the little model of an engine below,
and what happened, which is the list ``HAPPENINGS``.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import numpy as np

from connectors.arrivals import Arrival, read_arrivals
from connectors.recordings import merge_by_time, write_recording
from daom.codec import encode_json
from daom.events import Record, Source, Table, TelemetryBatch

DATA: Final = Path(__file__).parents[1] / "tests" / "data"
MODEL: Final = "chat-8b"
ENGINES: Final = ("gpu-0", "gpu-1")
START_S: Final = 1_764_610_200.0
"""2025-12-01 17:30 UTC, an arbitrary choice."""
HOURS: Final = 12.0
SEED: Final = 20_251_201

_BATCH_S: Final = 10.0
_PIECE_S: Final = 120.0
"""Arrivals are the trace's in pieces of this length, begun anywhere in it."""
_SHARE: Final = 0.14
"""Of the trace's requests, to one engine: it is one of seven."""
_SWING: Final = 0.25
"""How much more, or less, come at the best and worst hour."""
_PREFILL_TOKENS_PER_S: Final = 9_000.0
_OVERHEAD_S: Final = 0.012
_STEP_S: Final = 0.018
"""Of one request alone; each further one that runs costs"""
_STEP_PER_REQUEST_S: Final = 0.0008
"""more."""
_NOISE: Final = 0.10

What = Literal["incident", "small", "blip", "batch"]


@dataclass(frozen=True)
class Happening:
    """Something that changed, ``at_min`` after the start, for ``minutes``.

    Attributes:
        what: ``incident``: to be caught. ``small``: slower, but nobody wants to be woken for it.
            ``blip``: over before anybody could look. ``batch``: a job that sends long requests.
        engine: None is all.
        slower: Factor on the time of prefill and step.
        load: Share of requests that the batch job adds.
        note: What a person would have written down.
    """

    what: What
    at_min: float
    minutes: float
    engine: str | None
    slower: float = 1.0
    load: float = 0.0
    note: str = ""

    def is_on(self, engine: str, time_s: float) -> bool:
        """Return whether it concerns ``engine`` at ``time_s`` after the start."""
        since_s = time_s - 60.0 * self.at_min
        return self.engine in {engine, None} and 0.0 <= since_s < 60.0 * self.minutes


HAPPENINGS: Final = (
    # The first 60 % of the 720 minutes: what a setting is chosen on.
    Happening("small", 46, 34, "gpu-1", 1.16),
    Happening("blip", 84, 1.2, "gpu-0", 3.2),
    Happening("incident", 103, 22, "gpu-1", 1.75, note="thermal throttling"),
    Happening("batch", 136, 20, None, load=0.9),
    Happening("blip", 167, 1.5, "gpu-1", 2.6),
    Happening("small", 183, 42, "gpu-0", 1.22),
    Happening("incident", 238, 14, "gpu-0", 2.3, note="a neighbour took the memory bandwidth"),
    Happening("blip", 264, 1.0, "gpu-0", 3.8),
    Happening("small", 278, 28, "gpu-1", 1.14),
    Happening("batch", 316, 20, None, load=0.8),
    Happening("blip", 344, 1.4, "gpu-1", 3.0),
    Happening("incident", 362, 27, "gpu-0", 1.6, note="a slow kernel after a driver update"),
    Happening("small", 399, 30, "gpu-0", 1.2),
    Happening("blip", 427, 1.3, "gpu-1", 2.4),
    # The rest: what judges it. Nothing of it was drawn with the same noise or the same numbers.
    Happening("small", 446, 37, "gpu-0", 1.18),
    Happening("incident", 486, 18, "gpu-1", 1.68, note="thermal throttling"),
    Happening("blip", 516, 1.1, "gpu-0", 3.5),
    Happening("batch", 526, 20, None, load=0.85),
    Happening("incident", 556, 31, "gpu-0", 1.9, note="half of the batch slots lost"),
    Happening("small", 595, 25, "gpu-1", 1.24),
    Happening("blip", 622, 1.5, "gpu-1", 2.9),
    Happening("small", 635, 33, "gpu-0", 1.13),
    Happening("incident", 672, 12, "gpu-1", 2.7, note="a neighbour took the memory bandwidth"),
    Happening("blip", 697, 1.2, "gpu-1", 3.1),
)


@dataclass
class Engine:
    """A server that reads one prompt after the other and answers all requests together.

    A first token waits for the prompts before it and for its own to be read; each further token
    takes a step, which is the longer the more requests run.
    """

    name: str
    rng: np.random.Generator
    reading_until_s: float = 0.0
    running: list[float] = field(default_factory=list)

    def serve(self, arrival: Arrival) -> tuple[float, float, float]:
        """Return when a request ends, its time to first token and its whole time, seconds."""
        at_s = arrival.at_s
        while self.running and self.running[0] <= at_s:
            heapq.heappop(self.running)
        slower = float(np.prod([h.slower for h in HAPPENINGS if h.is_on(self.name, at_s)]))
        noise = self.rng.lognormal(0.0, _NOISE, 2)
        reading_s = slower * noise[0] * arrival.prompt_tokens / _PREFILL_TOKENS_PER_S
        begin_s = max(at_s, self.reading_until_s)
        self.reading_until_s = begin_s + reading_s
        ttft_s = self.reading_until_s + slower * noise[0] * _OVERHEAD_S - at_s
        step_s = slower * noise[1] * (_STEP_S + _STEP_PER_REQUEST_S * len(self.running))
        e2e_s = ttft_s + step_s * (arrival.output_tokens - 1)
        heapq.heappush(self.running, at_s + e2e_s)
        return at_s + e2e_s, ttft_s, e2e_s


def arrivals(trace: Sequence[Arrival], engine: str, seed: Sequence[int]) -> Iterator[Arrival]:
    """Yield the requests of ``engine``: the trace's by pieces, thinned; and those of batch jobs."""
    rng = np.random.default_rng(seed)
    length_s = trace[-1].at_s
    for number in range(round(HOURS * 3_600.0 / _PIECE_S)):
        start_s = number * _PIECE_S
        from_s = rng.uniform(0.0, length_s - _PIECE_S)
        swing = 1.0 + _SWING * np.sin(2.0 * np.pi * start_s / (HOURS * 3_600.0))
        extra = sum(h.load for h in HAPPENINGS if h.is_on(engine, start_s))
        for came in trace:
            at_s = start_s + came.at_s - from_s
            if not start_s <= at_s < start_s + _PIECE_S:
                continue
            if rng.uniform() < _SHARE * swing:
                yield Arrival(at_s, came.prompt_tokens, came.output_tokens)
            if rng.uniform() < _SHARE * extra:
                # A job that summarises documents: long prompts, long answers.
                yield Arrival(at_s, int(rng.integers(2_000, 4_100)), int(rng.integers(300, 700)))


def batches(trace: Sequence[Arrival], number: int) -> Iterator[Record]:
    """Yield what engine ``number`` sends, a batch each ten seconds."""
    engine = Engine(ENGINES[number], np.random.default_rng((SEED, number, 1)))
    served = sorted(
        (*engine.serve(arrival), arrival)
        for arrival in arrivals(trace, engine.name, (SEED, number, 0))
    )
    ends_s = np.array([end_s for end_s, *_ in served])
    begins_s = np.sort([arrival.at_s for *_, arrival in served])
    for seq in range(round(HOURS * 3_600.0 / _BATCH_S)):
        start_s, end_s = seq * _BATCH_S, (seq + 1) * _BATCH_S
        first, last = np.searchsorted(ends_s, [start_s, end_s])
        running = float(np.searchsorted(begins_s, end_s) - last)
        yield TelemetryBatch(
            source=Source(model=MODEL, engine=engine.name, boot="simulated", seq=seq),
            start_s=START_S + start_s,
            end_s=START_S + end_s - 0.1,
            requests=_table(served[first:last], end_s),
            gauges={"running": running},
        )


def _table(served: Sequence[tuple[float, float, float, Arrival]], end_s: float) -> Table:
    times = [START_S + min(round(at_s, 1), end_s - 0.1) for at_s, *_ in served]
    columns = {
        "prompt_tokens": [arrival.prompt_tokens for *_, arrival in served],
        "output_tokens": [arrival.output_tokens for *_, arrival in served],
        "ttft_s": [float(f"{ttft_s:.3g}") for _, ttft_s, _, _ in served],
        "e2e_s": [float(f"{e2e_s:.3g}") for *_, e2e_s, _ in served],
    }
    return Table(
        end_s=np.array(times, np.float64),
        columns={name: np.array(values, np.float32) for name, values in columns.items()},
    )


def incidents() -> str:
    """Return the label file: what an operator would have written down."""
    lines = ["# What happened on the day of day.jsonl.gz, as its script had it: see README.md."]
    for found in HAPPENINGS:
        if found.what in {"incident", "batch"}:
            kind = "degradation" if found.what == "incident" else "workload"
            note = found.note or "the batch job, long prompts and answers"
            end_min = found.at_min + found.minutes
            lines += [f"- start: +{found.at_min}m", f"  end: +{end_min}m", f"  kind: {kind}"]
            lines += [f"  engine: {found.engine}"] if found.engine else []
            lines += [f"  note: {note}"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the recording and its incidents into the folder given, or tests/data/tuning."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "tuning"
    trace = read_arrivals(DATA / "azure" / "conversation.csv.gz")
    records = merge_by_time([batches(trace, number) for number in range(len(ENGINES))])
    count = write_recording(target / "day.jsonl.gz", map(encode_json, records))
    (target / "incidents.yaml").write_text(incidents(), encoding="utf-8")
    print(f"{count} records in {target / 'day.jsonl.gz'}")


if __name__ == "__main__":
    main()
