"""Recordings of engines that serve requests, for comparing them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from daom.codec import encode_json
from daom.events import Source, Table, TelemetryBatch

START_S = 1_766_000_000.0
MODEL = "llama-3-8b"
_BATCH_S = 5.0
_REQUESTS = 40


def served(
    seed: int,
    minutes: float = 5.0,
    *,
    slower: float = 1.0,
    longer: float = 1.0,
    start_s: float = START_S,
    columns: dict[str, Any] | None = None,
    **source: Any,
) -> Iterator[bytes]:
    """Yield the batches of an engine, 8 requests a second.

    Args:
        slower: Factor on TTFT, which is in proportion to the prompt; longer: on the prompts.
        columns: Further columns of requests: a function of the generator and the number of rows.
        source: What the batches say of their source.
    """
    rng = np.random.default_rng(seed)
    for number in range(round(60.0 * minutes / _BATCH_S)):
        begins_s = start_s + number * _BATCH_S
        prompt = longer * rng.lognormal(6.0, 0.7, _REQUESTS)
        rows = {
            "prompt_tokens": prompt,
            "ttft_s": slower * 2e-4 * prompt * rng.lognormal(0.0, 0.2, _REQUESTS),
            **{name: draw(rng, _REQUESTS) for name, draw in (columns or {}).items()},
        }
        table = Table(
            end_s=np.sort(rng.uniform(begins_s, begins_s + _BATCH_S, _REQUESTS)),
            columns={name: values.astype(np.float32) for name, values in rows.items()},
        )
        yield encode_json(
            TelemetryBatch(
                source=Source(**{"model": MODEL, "engine": "gpu-0", **source}),
                start_s=begins_s,
                end_s=begins_s + _BATCH_S,
                requests=table,
            )
        )
