"""What vLLM and SGLang show on /metrics: Prometheus text in, one reading an engine out.

Latencies are read as bucket counts. Of times and lengths that nobody monitors the sum and the count
are read, for their mean. What an engine does not show is left out.

Names are those of vLLM 0.6 to 0.33 and SGLang 0.4 and 0.5; of two names that say the same the first
in a table counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from daom.errors import SourceError

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_ENGINES: Final = ("vllm:", "sglang:")
_STARTED: Final = "process_start_time_seconds"

_HISTOGRAMS: Final = {
    "time_to_first_token_seconds": "ttft_s",
    "inter_token_latency_seconds": "itl_s",
    "time_per_output_token_seconds": "itl_s",
    "e2e_request_latency_seconds": "e2e_s",
}
_MEANS: Final = {
    "request_queue_time_seconds": "queue_s",
    "queue_time_seconds": "queue_s",
    "request_prefill_time_seconds": "prefill_s",
    "request_decode_time_seconds": "decode_s",
    "request_prompt_tokens": "prompt_tokens",
    "prompt_tokens_histogram": "prompt_tokens",
    "request_generation_tokens": "output_tokens",
    "generation_tokens_histogram": "output_tokens",
}
_NUMBERS: Final = {
    "num_requests_running": "running",
    "num_running_reqs": "running",
    "num_requests_waiting": "waiting",
    "num_queue_reqs": "waiting",
    "kv_cache_usage_perc": "kv_usage",
    "gpu_cache_usage_perc": "kv_usage",
    "token_usage": "kv_usage",
    "cache_hit_rate": "prefix_hit_ratio",
    "num_preemptions_total": "preemptions_total",
    "num_retracted_requests_total": "preemptions_total",
    "prefix_cache_queries_total": "prefix_queries_total",
    "gpu_prefix_cache_queries_total": "prefix_queries_total",
    "prefix_cache_hits_total": "prefix_hits_total",
    "gpu_prefix_cache_hits_total": "prefix_hits_total",
    "cached_tokens_total": "prefix_hits_total",
    "prompt_tokens_total": "prompt_tokens_total",
    "generation_tokens_total": "generation_tokens_total",
    "request_success_total": "finished_total",
    "num_requests_total": "finished_total",
    "num_aborted_requests_total": "finished_abort_total",
}
_SHARES: Final = frozenset({"kv_usage", "prefix_hit_ratio"})
"""Of several parts of an engine their mean; everything else is added up."""
_RANKS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})
"""Labels of processes that show the same thing."""

Labels = tuple[tuple[str, str], ...]


class EngineKey(NamedTuple):
    """Which engine of a server: ``engine`` is vLLM's label, None where there is none."""

    model: str
    engine: str | None


class Total(NamedTuple):
    """What some samples add up to since the engine's start, and how many they are."""

    added: float
    samples: float


@dataclass(slots=True)
class Reading:
    """What one engine showed.

    Attributes:
        histograms: Samples in each bucket since the engine's start, by column and upper edge.
        totals: Of what only the mean is told.
        numbers: Gauges, and counters, whose names end in ``_total``.
    """

    histograms: dict[str, dict[float, int]] = field(default_factory=dict)
    totals: dict[str, Total] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one server showed at ``time_s``, Unix seconds.

    Attributes:
        engines: Every engine that it showed.
        started_s: When its process started, where it says so.
    """

    time_s: float
    engines: Mapping[EngineKey, Reading] = field(default_factory=dict)
    started_s: float | None = None


def read_metrics(text: str, time_s: float) -> Scrape:
    """Return what ``text``, the answer of /metrics at ``time_s``, says of engines.

    Raises:
        SourceError: If it is no Prometheus text, or of neither vLLM nor SGLang.
    """
    try:
        started_s, found = _samples_of_engines(text)
        readings = {key: _reading(found[key]) for key in sorted(found, key=str)}
    except (ValueError, IndexError, KeyError) as error:
        first = text.strip().partition("\n")[0]
        raise SourceError(f"not Prometheus text: {first[:80]!r}") from error
    engines = {key: reading for key, reading in readings.items() if reading != Reading()}
    if not engines:
        raise SourceError(
            "no metrics of vLLM or SGLang (vllm:..., sglang:... with a model_name); SGLang shows "
            "them with --enable-metrics"
        )
    return Scrape(time_s, engines, started_s)


def _samples_of_engines(
    text: str,
) -> tuple[float | None, dict[EngineKey, dict[str, list[Sample]]]]:
    """Return when the process started, and the samples of each engine by their names."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - an extra.

    started_s: float | None = None
    found: dict[EngineKey, dict[str, list[Sample]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name, labels = sample.name, sample.labels
            if name == _STARTED and math.isfinite(sample.value):
                started_s = sample.value
            elif name.startswith(_ENGINES) and labels.get("model_name"):
                key = EngineKey(labels["model_name"], labels.get("engine"))
                found.setdefault(key, {}).setdefault(name.partition(":")[2], []).append(sample)
    return started_s, found


def _reading(samples: Mapping[str, list[Sample]]) -> Reading:
    reading = Reading()
    for name, column in _HISTOGRAMS.items():
        by_bucket = _by_bucket(samples.get(f"{name}_bucket", ()))
        if any(map(math.isfinite, by_bucket)) and column not in reading.histograms:
            reading.histograms[column] = by_bucket
    for name, column in _MEANS.items():
        if f"{name}_count" in samples and column not in reading.totals:
            sums, counts = (samples.get(f"{name}{of}", ()) for of in ("_sum", "_count"))
            reading.totals[column] = Total(_added(sums), _added(counts))
    for name, number in _NUMBERS.items():
        value = _combined(samples.get(name, ()), mean=number in _SHARES)
        if value is not None:
            reading.numbers.setdefault(number, value)
    for reason, value in _by_reason(samples.get("request_success_total", ())).items():
        reading.numbers[f"finished_{reason}_total"] = value
    queries = reading.numbers.get("prompt_tokens_total")
    if "cached_tokens_total" in samples and queries is not None:
        # SGLang looks every token of a prompt up.
        reading.numbers.setdefault("prefix_queries_total", queries)
    return reading


def _by_bucket(samples: Iterable[Sample]) -> dict[float, int]:
    """Return the samples in each bucket; on the wire each counts those below it too."""
    up_to: dict[float, float] = {}
    for sample in samples:
        edge = float(sample.labels["le"])
        # No latency is 0 or less: such a bucket is a part of the next.
        if edge > 0.0 and math.isfinite(sample.value):
            up_to[edge] = up_to.get(edge, 0.0) + sample.value
    counts, below = {}, 0.0
    for edge in sorted(up_to):
        counts[edge] = max(0, round(up_to[edge] - below))
        below = up_to[edge]
    return counts


def _added(samples: Iterable[Sample]) -> float:
    return math.fsum(sample.value for sample in samples if math.isfinite(sample.value))


def _combined(samples: Iterable[Sample], *, mean: bool) -> float | None:
    """Return one number for the parts of an engine; None if it shows none."""
    parts: dict[Labels, float] = {}
    for sample in samples:
        if not math.isfinite(sample.value) or sample.labels.get("cache_source") == "total":
            continue
        part = tuple(sorted(item for item in sample.labels.items() if item[0] not in _RANKS))
        parts[part] = max(sample.value, parts.get(part, sample.value))
    if not parts:
        return None
    total = math.fsum(parts.values())
    return total / len(parts) if mean else total


def _by_reason(samples: Iterable[Sample]) -> dict[str, float]:
    """Return how many requests have finished, by reason."""
    finished: dict[str, float] = {}
    for sample in samples:
        reason = sample.labels.get("finished_reason")
        if reason and math.isfinite(sample.value):
            finished[reason] = finished.get(reason, 0.0) + sample.value
    return finished
