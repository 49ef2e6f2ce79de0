"""A recording with everything in it that producers get wrong, for replays and for live workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from connectors.recordings import Line, record_time_s
from daom.codec import decode
from tests.fleet import LIGHT, read_lines

TEN_MEGABYTES: Final = 10 * 2**20
_EVERY: Final = 17
_FIRST: Final = 20 * _EVERY
"""Lines before the first odd one: far enough from the beginning to be late."""


class Odd(NamedTuple):
    """One line; ``kind`` is that of its fault, None if it is good or does no harm."""

    value: bytes
    kind: str | None = None


def _batch(now_s: float, **changes: Any) -> dict[str, Any]:
    """Return a good batch that ends at ``now_s``, not numbered."""
    batch = {
        "schema": "TelemetryBatch/1",
        "source": {"model": "llama-3.2-1b", "engine": "gpu-0"},
        "start_s": now_s - 1.0,
        "end_s": now_s,
        "requests": {"end_s": [now_s - 0.7, now_s - 0.2], "ttft_s": [0.04, 0.05]},
    }
    return batch | changes


def bad_lines(now_s: float) -> dict[str, Odd]:
    """Return one of each kind of fault; of the negative duration only the value is lost."""

    def written(**changes: Any) -> bytes:
        return json.dumps(_batch(now_s, **changes)).encode()

    def requests(*ttft_s: object) -> bytes:
        return written(requests=_batch(now_s)["requests"] | {"ttft_s": ttft_s})

    return {
        "no JSON": Odd(b"Traceback (most recent call last):", "not_decodable"),
        "half a record": Odd(written()[:90], "not_decodable"),
        "another version": Odd(written(schema="TelemetryBatch/2"), "schema_version"),
        "another schema": Odd(written(schema="Weather/1"), "unknown_schema"),
        "no model": Odd(written(source={"engine": "gpu-0"}), "missing_field"),
        "unequal columns": Odd(requests(0.04), "columns_unequal"),
        "NaN": Odd(requests(0.04, float("nan")), "not_decodable"),
        "words for a number": Odd(requests("fast", 0.05), "wrong_type"),
        "a negative duration": Odd(requests(0.04, -1.0), "negative"),
        "milliseconds": Odd(written(end_s=1_000.0 * now_s), "time_out_of_range"),
        "ten megabytes": Odd(b'{"junk":"' + b"x" * TEN_MEGABYTES + b'"}', "too_large"),
    }


def harmless_lines(now_s: float) -> dict[str, Odd]:
    """Return what is odd, and no fault: it is used as far as it says anything."""

    def written(**changes: Any) -> Odd:
        return Odd(json.dumps(_batch(now_s, **changes)).encode())

    rows = _batch(now_s)["requests"]
    long_ago_s = now_s - 120.0
    return {
        "no rows": written(requests={"end_s": [], "ttft_s": []}),
        "an unknown column": written(requests=rows | {"semantic_score": [0.3, 0.4]}),
        "an unknown field": written(colour="blue"),
        "time running backwards": Odd(json.dumps(_batch(long_ago_s)).encode()),
    }


def with_bad_lines() -> list[tuple[Line, str | None]]:
    """Return the light load with odd lines strewn in, and the kind of each line's fault."""
    return [(Line(number, odd.value), odd.kind) for number, odd in enumerate(_strewn(), start=1)]


def _strewn() -> Iterator[Odd]:
    left = [*bad_lines(0.0), *harmless_lines(0.0)]
    for number, line in enumerate(read_lines(LIGHT)):
        yield Odd(line.value)
        if number == _FIRST - 1:
            yield Odd(line.value)
        elif number >= _FIRST and number % _EVERY == 0 and left:
            now_s = record_time_s(decode(line.value).record)
            yield {**bad_lines(now_s), **harmless_lines(now_s)}[left.pop(0)]
    assert not left, "the recording is too short for all of them"


def kinds(lines: list[tuple[Line, str | None]]) -> Counter[str]:
    """Return how many faults of each kind are in ``lines``."""
    return Counter(kind for _, kind in lines if kind is not None)
