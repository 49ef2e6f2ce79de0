"""The recording of tests/data/tuning: real arrivals, simulated latencies, drawn events.

``python -m bench.tuning_recording`` writes it and its incidents anew, the same bytes each time on
one machine; with another ``--seed`` another day of the same kind. What is real: when requests came
and how long prompts and answers were, from tests/data/azure. What is not: every latency, which
comes from the little model of an engine below, and what happens, which is drawn: as many of each
kind in every two hours or so, in random order. The same draw makes the part that chooses and the
part that judges.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import numpy as np

from connectors.arrivals import Arrival, read_arrivals
from connectors.recordings import merge_by_time, write_recording
from daom.codec import encode_json
from daom.events import ChangeEvent, Record, Source, Table, TelemetryBatch

DATA: Final = Path(__file__).parents[1] / "tests" / "data"
MODEL: Final = "chat-8b"
ENGINES: Final = ("gpu-0", "gpu-1")
START_S: Final = 1_764_612_000.0
"""2025-12-01 18:00 UTC, an arbitrary choice."""
HOURS: Final = 10.0
SEED: Final = 20_251_201

_BATCH_S: Final = 10.0
_PIECE_S: Final = 120.0
"""Arrivals are the trace's in pieces of this length, begun anywhere in it."""
_SHARE: Final = 0.25
"""Of the trace's requests, to one engine: it is one of four."""
_SWING: Final = 0.25
"""How much more, or less, come at the best and worst hour."""
_PREFILL_TOKENS_PER_S: Final = 16_000.0
_OVERHEAD_S: Final = 0.012
_STEP_S: Final = 0.018
"""Of one request alone; each further one that runs costs"""
_STEP_PER_REQUEST_S: Final = 0.0008
"""more."""
_NOISE: Final = 0.10

What = Literal["incident", "small", "blip", "batch", "deploy"]

DECK: Final[tuple[What, ...]] = (
    "incident", "incident", "small", "small", "small", "blip", "batch", "deploy",
)  # fmt: skip
"""What happens in every two hours or so, in an order that is drawn."""
_FIRST_MIN: Final = 40.0
"""Until then nothing happens: the detector learns."""
_LAST_MIN: Final = 20.0
"""Nothing begins so shortly before the end."""
_CALM_MIN: Final = (8.0, 13.0)
"""Between two happenings."""


@dataclass(frozen=True)
class Happening:
    """Something that changed, ``at_min`` after the start, for ``minutes``.

    Attributes:
        what: ``incident``: to be caught. ``small``: slower, but nobody wants to be woken for it.
            ``blip``: over before anybody could look. ``batch``: a job that sends long requests.
            ``deploy``: told as a change; for a minute or so caches are cold.
        engine: None is all.
        slower: Factor on the time of prefill and step.
        load: Share of requests that the batch job adds.
        for_good: Factor on the same from then on.
    """

    what: What
    at_min: float
    minutes: float
    engine: str | None
    slower: float = 1.0
    load: float = 0.0
    for_good: float = 1.0

    def is_on(self, engine: str, time_s: float) -> bool:
        """Return whether it concerns ``engine`` at ``time_s`` after the start."""
        since_s = time_s - 60.0 * self.at_min
        return self.engine in {engine, None} and 0.0 <= since_s < 60.0 * self.minutes

    def factor(self, engine: str, time_s: float) -> float:
        """Return how many times as long ``engine`` takes for it at ``time_s``."""
        lasting = self.for_good if time_s >= 60.0 * self.at_min else 1.0
        return lasting * (self.slower if self.is_on(engine, time_s) else 1.0)


def happenings(seed: int) -> list[Happening]:
    """Return what happens on the day, in order."""
    rng = np.random.default_rng((seed, 2))
    found: list[Happening] = []
    at_min, deck = _FIRST_MIN, list[What]()
    while at_min < 60.0 * HOURS - _LAST_MIN:
        deck = deck or [DECK[number] for number in rng.permutation(len(DECK))]
        found.append(_drawn(deck.pop(), round(at_min), rng))
        at_min += found[-1].minutes + rng.uniform(*_CALM_MIN)
    return found


def _drawn(what: What, at_min: float, rng: np.random.Generator) -> Happening:
    engine = ENGINES[rng.integers(len(ENGINES))]
    match what:
        case "incident":
            minutes = float(rng.integers(10, 16))
            return Happening(what, at_min, minutes, engine, slower=rng.uniform(1.7, 2.7))
        case "small":
            minutes = float(rng.integers(10, 19))
            return Happening(what, at_min, minutes, engine, slower=rng.uniform(1.12, 1.25))
        case "blip":
            minutes = rng.uniform(0.3, 0.7)
            return Happening(what, at_min, minutes, engine, slower=rng.uniform(2.0, 3.5))
        case "batch":
            return Happening(what, at_min, 15.0, None, load=rng.uniform(0.3, 0.6))
        case "deploy":
            lasting = float(np.exp(rng.normal(0.0, 0.03)))
            return Happening(what, at_min, 2.0, None, slower=1.3, for_good=lasting)


@dataclass
class Engine:
    """A server that reads one prompt after the other and answers all requests together.

    A first token waits for the prompts before it and for its own to be read; each further token
    takes a step, which is the longer the more requests run.
    """

    name: str
    rng: np.random.Generator
    day: Sequence[Happening]
    reading_until_s: float = 0.0
    running: list[float] = field(default_factory=list)

    def serve(self, arrival: Arrival) -> tuple[float, float, float]:
        """Return when a request ends, its time to first token and its whole time, seconds."""
        at_s = arrival.at_s
        while self.running and self.running[0] <= at_s:
            heapq.heappop(self.running)
        slower = float(np.prod([found.factor(self.name, at_s) for found in self.day]))
        noise = self.rng.lognormal(0.0, _NOISE, 2)
        reading_s = slower * noise[0] * arrival.prompt_tokens / _PREFILL_TOKENS_PER_S
        begin_s = max(at_s, self.reading_until_s)
        self.reading_until_s = begin_s + reading_s
        ttft_s = self.reading_until_s + slower * noise[0] * _OVERHEAD_S - at_s
        step_s = slower * noise[1] * (_STEP_S + _STEP_PER_REQUEST_S * len(self.running))
        e2e_s = ttft_s + step_s * (arrival.output_tokens - 1)
        heapq.heappush(self.running, at_s + e2e_s)
        return at_s + e2e_s, ttft_s, e2e_s


def arrivals(
    trace: Sequence[Arrival], engine: str, day: Sequence[Happening], rng: np.random.Generator
) -> Iterator[Arrival]:
    """Yield the requests of ``engine``: the trace's by pieces, thinned; and those of batch jobs."""
    length_s = trace[-1].at_s
    for number in range(round(HOURS * 3_600.0 / _PIECE_S)):
        start_s = number * _PIECE_S
        from_s = rng.uniform(0.0, length_s - _PIECE_S)
        swing = 1.0 + _SWING * np.sin(2.0 * np.pi * start_s / (HOURS * 3_600.0))
        extra = sum(found.load for found in day if found.is_on(engine, start_s))
        for came in trace:
            at_s = start_s + came.at_s - from_s
            if not start_s <= at_s < start_s + _PIECE_S:
                continue
            if rng.uniform() < _SHARE * swing:
                yield Arrival(at_s, came.prompt_tokens, came.output_tokens)
            if rng.uniform() < _SHARE * extra:
                # A job that summarises documents: long prompts, long answers.
                yield Arrival(at_s, int(rng.integers(2_000, 4_100)), int(rng.integers(300, 700)))


def batches(
    trace: Sequence[Arrival], number: int, day: Sequence[Happening], seed: int
) -> Iterator[Record]:
    """Yield what engine ``number`` sends, a batch each ten seconds."""
    engine = Engine(ENGINES[number], np.random.default_rng((seed, number, 1)), day)
    coming = arrivals(trace, engine.name, day, np.random.default_rng((seed, number, 0)))
    served = sorted((*engine.serve(arrival), arrival) for arrival in coming)
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


def deploys(day: Sequence[Happening]) -> Iterator[Record]:
    """Yield what the pipeline that deploys tells."""
    for number, found in enumerate(found for found in day if found.what == "deploy"):
        yield ChangeEvent(
            source=Source(model=MODEL),
            time_s=START_S + 60.0 * found.at_min,
            kind="deploy",
            version=f"v{number + 2}",
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


def incidents(day: Sequence[Happening]) -> str:
    """Return the label file: what an operator would have written down."""
    lines = [
        "# What happened in the ten hours of night.jsonl.gz and is to be caught: see README.md."
    ]
    for found in day:
        if found.what == "incident":
            end_min = found.at_min + found.minutes
            lines += [
                f"- start: +{found.at_min}m",
                f"  end: +{end_min:.0f}m",
                "  kind: degradation",
            ]
            lines += [f"  engine: {found.engine}"]
    return "\n".join(lines) + "\n"


def write(target: Path, seed: int) -> list[Happening]:
    """Write a day's recording and incidents into the folder ``target``; return what happens."""
    day = happenings(seed)
    trace = read_arrivals(DATA / "azure" / "conversation.csv.gz")
    sent = [batches(trace, number, day, seed) for number in range(len(ENGINES))]
    write_recording(
        target / "night.jsonl.gz", map(encode_json, merge_by_time([*sent, deploys(day)]))
    )
    (target / "incidents.yaml").write_text(incidents(day), encoding="utf-8")
    return day


def main() -> None:
    """Write the recording and its incidents, and print what happens in it."""
    parser = argparse.ArgumentParser(prog="python -m bench.tuning_recording", description=__doc__)
    parser.add_argument("target", type=Path, nargs="?", default=DATA / "tuning")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    for found in write(given.target, given.seed):
        print(
            f"{found.at_min:4.0f} {found.minutes:5.1f} min {found.what:9} {found.engine or 'all':6}"
            f" times {found.slower:.2f}, load +{found.load:.0%}, for good {found.for_good:.2f}"
        )


if __name__ == "__main__":
    main()
