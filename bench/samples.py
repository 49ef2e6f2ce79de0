"""The samples that every benchmark uses: one engine's steps, seeded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daom.events import Source, Table, TelemetryBatch

BATCH_ROWS = 1_024
START_S = 1_764_000_000.0
BATCH_S = 0.5
PANE_S = 10.0
MODEL = "bench"


def batches(
    count: int,
    engine: str = "gpu-0",
    seed: int = 1,
    batch_s: float = BATCH_S,
    *,
    begin_s: float = START_S,
    first_seq: int = 0,
) -> Iterator[TelemetryBatch]:
    """Yield ``count`` batches of 1,024 steps, one each ``batch_s`` of event time."""
    rng = np.random.default_rng(seed)
    values = rng.lognormal(-4.0, 0.3, (64, BATCH_ROWS)).astype(np.float32)
    # The batch size of an engine moves slowly against its steps.
    walk = np.cumsum(rng.normal(0.0, 0.2, 64 * BATCH_ROWS))
    running = np.clip(100.0 + walk, 1.0, 256.0).round().astype(np.float32).reshape(64, BATCH_ROWS)
    for number in range(count):
        start_s = begin_s + number * batch_s
        yield TelemetryBatch(
            source=Source(model=MODEL, engine=engine, boot="b", seq=first_seq + number),
            start_s=start_s,
            end_s=start_s + batch_s - 1e-3,
            steps=Table(
                end_s=np.linspace(start_s, start_s + batch_s - 1e-3, BATCH_ROWS),
                columns={"itl_s": values[number % 64], "running": running[number % 64]},
            ),
            gauges={"running": 100.0, "waiting": 0.0},
        )
