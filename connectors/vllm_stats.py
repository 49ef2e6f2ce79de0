"""vLLM's statistics of each step into the columns of a TelemetryBatch.

vLLM hands a stat logger one pair of objects a step: what the scheduler sees and what the outputs of
the step were. Their classes differ from version to version, so every field is asked for by name and
may be absent. Nothing here imports vLLM.

Where several processes ("frontends") serve one engine, each is told of its own requests only, and
one of them of the scheduler. A step's gap is reported by that one, so it is reported once; tokens
and requests by each for its own.

TTFT comes without a request, and a finished request without its TTFT. But both are differences from
the request's time of arrival, on one clock: ``now - arrival``. So the arrival tells which TTFT is
whose, to within the rounding of a float.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from daom.events import EMPTY_TABLE, Source, Table, TelemetryBatch

_REQUEST_COLUMNS: Final[Mapping[str, str]] = {
    "e2e_s": "e2e_latency",
    "queue_s": "queued_time",
    "prefill_s": "prefill_time",
    "decode_s": "decode_time",
    "prompt_tokens": "num_prompt_tokens",
    "cached_tokens": "num_cached_tokens",
    "output_tokens": "num_generation_tokens",
    "preemptions": "num_preemptions",
}
_STEP_COLUMNS: Final = (
    *("itl_s", "tokens", "decoding", "running", "waiting"),
    *("prefill_tokens", "forward_s"),
)
_FINISH_REASONS: Final = ("stop", "length", "abort", "error", "repetition")
_CUT_SHORT: Final = frozenset({"abort", "error"})
"""How long such a request took says nothing of the service."""
_SAME_ARRIVAL_S: Final = 2e-5
_MAX_ARRIVALS: Final = 65_536
"""Requests that have begun and not finished: an aborted one never does."""
_MAX_ADAPTERS: Final = 16

Row = dict[str, float]


class EngineStats:
    """What one engine has done since the last batch.

    Args:
        is_only_frontend: No other process serves the engine: then its gauges are known even while
            the scheduler is silent.
    """

    def __init__(self, *, is_only_frontend: bool = True) -> None:
        self._is_only_frontend = is_only_frontend
        self._steps: list[Row] = []
        self._requests: list[Row] = []
        self._finish_reasons: list[str | None] = []
        self._gauges: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._arrivals: OrderedDict[int, list[tuple[float, float]]] = OrderedDict()
        self._heard_scheduler = False

    @property
    def has_news(self) -> bool:
        """Whether anything has happened since the last batch."""
        return bool(self._steps or self._requests or self._heard_scheduler)

    def take(self, scheduler: Any, iteration: Any, now_s: float) -> None:
        """Take one step's statistics; either may be None.

        Args:
            scheduler: vLLM's SchedulerStats.
            iteration: vLLM's IterationStats.
            now_s: When it was, if ``iteration`` does not say.
        """
        if scheduler is not None:
            self._take_scheduler(scheduler)
        if iteration is None:
            return
        end_s = float(getattr(iteration, "iteration_timestamp", None) or now_s)
        self._take_step(scheduler, iteration, end_s)
        ttfts_s = getattr(iteration, "time_to_first_tokens_iter", None) or ()
        for ttft_s in ttfts_s:
            self._note_first_token(end_s - ttft_s, ttft_s)
        self._count("first_tokens_total", len(ttfts_s))
        for request in getattr(iteration, "finished_requests", None) or ():
            self._take_request(request, end_s)

    def batch(
        self, source: Source, start_s: float, end_s: float, own: Mapping[str, float]
    ) -> TelemetryBatch:
        """Return what has happened since the last batch, and begin the next.

        Args:
            source: Who sends it.
            start_s: When the batch began,
            end_s: and when it ends.
            own: Gauges and counters of the probe itself.
        """
        known = self._is_only_frontend or self._heard_scheduler
        gauges = {**(self._gauges if known else {}), **self._totals, **own}
        made = TelemetryBatch(
            source=source,
            start_s=start_s,
            end_s=end_s,
            requests=_table(self._requests, {"finish_reason": self._finish_reasons}),
            steps=_table(self._steps, {}),
            gauges=gauges,
        )
        self._steps, self._requests, self._finish_reasons = [], [], []
        self._heard_scheduler = False
        return made

    def _count(self, name: str, by: float) -> None:
        self._totals[name] = self._totals.get(name, 0.0) + by

    def _take_scheduler(self, scheduler: Any) -> None:
        self._heard_scheduler = True
        gauges = self._gauges
        gauges["running"] = _number(scheduler, "num_running_reqs", 0.0)
        gauges["waiting"] = _waiting(scheduler)
        usage = _number(scheduler, "kv_cache_usage")
        if usage is not None:
            gauges["kv_usage"] = usage
        cache = getattr(scheduler, "prefix_cache_stats", None)
        if cache is not None:
            self._count("prefix_queries_total", _number(cache, "queries", 0.0))
            self._count("prefix_hits_total", _number(cache, "hits", 0.0))
        drafts = getattr(scheduler, "spec_decoding_stats", None)
        if drafts is not None:
            self._count("spec_drafts_total", _number(drafts, "num_drafts", 0.0))
            self._count("spec_draft_tokens_total", _number(drafts, "num_draft_tokens", 0.0))
            self._count("spec_accepted_tokens_total", _number(drafts, "num_accepted_tokens", 0.0))
        graph = getattr(scheduler, "cudagraph_stats", None)
        if graph is not None:
            mode = str(getattr(graph, "runtime_mode", "unknown")).rpartition(".")[2].lower()
            self._count(f"cudagraph_{mode}_steps_total", 1.0)
            self._count("cudagraph_paddings_total", _number(graph, "num_paddings", 0.0))
        self._take_adapters(getattr(scheduler, "running_lora_adapters", None) or {})

    def _take_adapters(self, running: Mapping[str, int]) -> None:
        for name in [name for name in self._gauges if name.startswith("lora_running.")]:
            self._gauges[name] = 0.0
        for name, requests in list(running.items())[:_MAX_ADAPTERS]:
            self._gauges[f"lora_running.{name}"] = float(requests)

    def _take_step(self, scheduler: Any, iteration: Any, end_s: float) -> None:
        tokens = _number(iteration, "num_generation_tokens", 0.0)
        prompt = getattr(iteration, "prompt_token_stats", None)
        total = _number(prompt, "total", _number(iteration, "num_prompt_tokens", 0.0))
        computed = _number(prompt, "computed", total)
        self._count("generation_tokens_total", tokens)
        self._count("prompt_tokens_total", total)
        self._count("preemptions_total", _number(iteration, "num_preempted_reqs", 0.0))
        self._count("corrupted_total", _number(iteration, "num_corrupted_reqs", 0.0))
        row = {"end_s": end_s, "tokens": tokens, "prefill_tokens": computed}
        if scheduler is not None:
            gaps_s = getattr(iteration, "inter_token_latencies_iter", None) or ()
            if gaps_s:
                # All that decode in a step share its gap, but for who was just let in again.
                row["itl_s"] = sorted(gaps_s)[len(gaps_s) // 2]
            row["decoding"] = float(len(gaps_s))
            row["running"], row["waiting"] = self._gauges["running"], self._gauges["waiting"]
            details = getattr(scheduler, "iteration_details", None)
            elapsed_ms = _number(details, "elapsed_ms") if details is not None else None
            if elapsed_ms is not None:
                row["forward_s"] = 1e-3 * elapsed_ms
        self._steps.append(row)

    def _take_request(self, request: Any, end_s: float) -> None:
        reason = _finish_reason(getattr(request, "finish_reason", None))
        row = {"end_s": end_s}
        for column, name in _REQUEST_COLUMNS.items():
            value = _number(request, name)
            if value is not None:
                row[column] = value
        if "e2e_s" in row:
            row["ttft_s"] = self._ttft_s(end_s - row["e2e_s"])
        if reason in _CUT_SHORT:
            row.pop("e2e_s", None)
            row.pop("decode_s", None)
        self._count("finished_total", 1.0)
        self._requests.append(row)
        self._finish_reasons.append(reason)

    def _note_first_token(self, arrival_s: float, ttft_s: float) -> None:
        """Keep a TTFT until the request that arrived at ``arrival_s`` finishes."""
        self._arrivals.setdefault(_place(arrival_s), []).append((arrival_s, ttft_s))
        while len(self._arrivals) > _MAX_ARRIVALS:
            self._arrivals.popitem(last=False)

    def _ttft_s(self, arrival_s: float) -> float:
        """Return the TTFT of the request that arrived then; NaN if it is not known."""
        place = _place(arrival_s)
        near = [
            (abs(kept[0] - arrival_s), there, kept)
            for there in (place - 1, place, place + 1)
            for kept in self._arrivals.get(there, ())
        ]
        if not near:
            return math.nan
        distance_s, there, kept = min(near)
        if distance_s > _SAME_ARRIVAL_S:
            return math.nan
        held = self._arrivals[there]
        held.remove(kept)
        if not held:
            del self._arrivals[there]
        return kept[1]


def _place(arrival_s: float) -> int:
    return math.floor(arrival_s / _SAME_ARRIVAL_S)


def _number(owner: Any, name: str, absent: Any = None) -> Any:
    """Return the finite number that ``owner`` has under ``name``, else ``absent``."""
    value = getattr(owner, name, None)
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return absent


def _waiting(scheduler: Any) -> float:
    """Return the requests that wait, deferred ones too."""
    waiting: float = _number(scheduler, "num_waiting_reqs", 0.0)
    return waiting + float(_number(scheduler, "num_skipped_waiting_reqs", 0.0))


def _finish_reason(reason: Any) -> str | None:
    """Return vLLM's name of the reason, whatever kind of enumeration it is."""
    if reason is None:
        return None
    if isinstance(reason, int):
        return _FINISH_REASONS[reason] if 0 <= reason < len(_FINISH_REASONS) else str(int(reason))
    return str(getattr(reason, "name", reason)).lower()


def _table(rows: list[Row], text: Mapping[str, list[str | None]]) -> Table:
    """Return ``rows`` as columns; one that no row has is left out."""
    if not rows:
        return EMPTY_TABLE
    names = (*_STEP_COLUMNS, "ttft_s", *_REQUEST_COLUMNS)
    held = [name for name in names if any(name in row for row in rows)]
    return Table(
        end_s=np.array([row["end_s"] for row in rows], np.float64),
        columns={
            name: np.array([row.get(name, math.nan) for row in rows], np.float32) for name in held
        },
        text=text,
    )
