"""Replay: what a day of one busy engine takes, from the bytes of its messages to its verdicts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bench.samples import MODEL, START_S
from daom.codec import encode_msgpack
from daom.config import Config
from daom.events import Source, Table, TelemetryBatch
from daom.fold import Fold
from daom.presets import cell_settings
from detectors.histogram import N_BINS, bin_index

DAY_S = 86_400.0
STEPS_PER_S = 232
TOKENS_A_STEP = 22
"""Together 5,104 tokens a second: 441 million a day."""
_REQUESTS_PER_S = 8
_LEARNING_S = 3_600.0
_ROOMY_BATCH_S = 2.0


class Day(NamedTuple):
    """What a day of one engine takes on one core, in seconds.

    Attributes:
        replay_s: To replay it.
        bincount_s: To do no more than bin and count its token samples.
    """

    replay_s: float
    bincount_s: float


def day(batch_s: float, minutes: float) -> Day:
    """Return what a day takes, by ``minutes`` of it once the reference is learned.

    Args:
        batch_s: A message holds so much; the plugin's default is 0.25 s.
        minutes: How much of it is replayed.
    """
    fold, rng = Fold(cell_settings(Config())), np.random.default_rng(1)
    for value in messages(rng, 0, START_S, _LEARNING_S, _ROOMY_BATCH_S):
        fold.take(value, None)
    measured_s = 60.0 * minutes
    begin_s = START_S + _LEARNING_S
    values = list(messages(rng, 1_000_000, begin_s, measured_s, batch_s))
    began_s = time.perf_counter()
    for value in values:
        fold.take(value, None)
    replay_s = time.perf_counter() - began_s
    a_day = DAY_S / measured_s
    return Day(replay_s * a_day, _bincount_s(rng, measured_s) * a_day)


def messages(
    rng: np.random.Generator, first_seq: int, begin_s: float, span_s: float, batch_s: float
) -> Iterator[bytes]:
    """Yield the messages of one engine, as its plugin writes them."""
    steps, requests = round(STEPS_PER_S * batch_s), max(1, round(_REQUESTS_PER_S * batch_s))
    for number in range(round(span_s / batch_s)):
        start_s = begin_s + number * batch_s
        end_s = start_s + batch_s - 1e-3
        yield encode_msgpack(
            TelemetryBatch(
                source=Source(model=MODEL, engine="gpu-0", boot="b", seq=first_seq + number),
                start_s=start_s,
                end_s=end_s,
                steps=_steps(rng, np.linspace(start_s, end_s, steps)),
                requests=_requests(rng, np.linspace(start_s, end_s, requests)),
                gauges={"running": float(TOKENS_A_STEP), "waiting": 0.0, "kv_usage": 0.4},
            )
        )


def _steps(rng: np.random.Generator, end_s: np.ndarray) -> Table:
    full = np.full(end_s.size, TOKENS_A_STEP, np.float32)
    itl_s = _drawn(rng, -5.5, 0.1, end_s)
    return Table(end_s=end_s, columns={"itl_s": itl_s, "running": full, "tokens": full})


def _requests(rng: np.random.Generator, end_s: np.ndarray) -> Table:
    columns = {
        "ttft_s": _drawn(rng, -2.0, 0.3, end_s),
        "e2e_s": _drawn(rng, 1.0, 0.3, end_s),
        "queue_s": _drawn(rng, -4.0, 0.3, end_s),
        "prompt_tokens": _drawn(rng, 6.0, 1.0, end_s),
        "output_tokens": _drawn(rng, 5.0, 0.5, end_s),
    }
    return Table(end_s=end_s, columns=columns)


def _drawn(rng: np.random.Generator, mean: float, sigma: float, like: np.ndarray) -> np.ndarray:
    return rng.lognormal(mean, sigma, like.size).astype(np.float32)


def _bincount_s(rng: np.random.Generator, span_s: float) -> float:
    """Return the seconds to bin and count every token's gap, a second of them at a time."""
    gaps = rng.lognormal(-5.5, 0.1, STEPS_PER_S * TOKENS_A_STEP).astype(np.float32)
    total = np.zeros(N_BINS, np.int64)
    began_s = time.perf_counter()
    for _ in range(round(span_s)):
        total += np.bincount(bin_index(gaps), minlength=N_BINS)
    return time.perf_counter() - began_s
