"""vLLM's statistics of each step into the columns of a TelemetryBatch.

vLLM hands a stat logger one pair of objects a step: what the scheduler sees and what the outputs of
the step were. Their classes differ from version to version, so every field is asked for by name and
may be absent. Nothing here imports vLLM.

Where several processes ("frontends") serve one engine, each is told of its own requests only, and
one of them of the scheduler. A step's gap is reported by that one, so it is reported once; tokens
and requests by each for its own.

It runs in the process that serves, so it must cost little: a step becomes a tuple of what was
given, and numbers are looked at only when a batch is made, a column at a time.

TTFT comes without a request, and a finished request without its TTFT. But both are differences from
the request's time of arrival, on one clock: ``now - arrival``. So the arrival tells which TTFT is
whose, to within the rounding of a float.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from daom.events import EMPTY_TABLE, Source, Table, TelemetryBatch

Floats = NDArray[np.float64]

_REQUEST_FIELDS: Final[Mapping[str, str]] = {
    "e2e_s": "e2e_latency",
    "queue_s": "queued_time",
    "prefill_s": "prefill_time",
    "decode_s": "decode_time",
    "prompt_tokens": "num_prompt_tokens",
    "cached_tokens": "num_cached_tokens",
    "output_tokens": "num_generation_tokens",
    "preemptions": "num_preemptions",
}
_REQUEST_COLUMNS: Final = ("end_s", "ttft_s", *_REQUEST_FIELDS)
_STEP_COLUMNS: Final = (
    *("end_s", "tokens", "prefill_tokens", "itl_s", "decoding", "running", "waiting"),
    *("deferred", "forward_ms", "prompt_tokens", "preemptions", "corrupted"),
)
_SCHEDULER_COLUMNS: Final = ("running", "waiting", "deferred", "kv_usage", "queries", "hits")
_STEP_TOTALS: Final[Mapping[str, str]] = {
    "generation_tokens_total": "tokens",
    "prompt_tokens_total": "prompt_tokens",
    "preemptions_total": "preemptions",
    "corrupted_total": "corrupted",
}
_CACHE_TOTALS: Final = {"prefix_queries_total": "queries", "prefix_hits_total": "hits"}
_DRAFT_TOTALS: Final[Mapping[str, str]] = {
    "spec_drafts_total": "num_drafts",
    "spec_draft_tokens_total": "num_draft_tokens",
    "spec_accepted_tokens_total": "num_accepted_tokens",
}
_FINISH_REASONS: Final = ("stop", "length", "abort", "error", "repetition")
_CUT_SHORT: Final = frozenset({"abort", "error"})
"""How long such a request took says nothing of the service."""
_SAME_ARRIVAL_S: Final = 2e-5
_MAX_ARRIVALS: Final = 65_536
"""Requests that have begun and not finished: an aborted one never does."""
_MAX_ADAPTERS: Final = 16
"""A batch may hold 64 gauges: with more of them it would be refused whole."""
_MAX_NAME: Final = 200
_ADAPTERS: Final = "running_lora_adapters"
_NAN: Final = math.nan
_NOTHING: Final[Mapping[str, Any]] = {}


class EngineStats:
    """What one engine has done since the last batch.

    Args:
        is_only_frontend: No other process serves the engine: then its gauges are known even while
            the scheduler is silent.
    """

    def __init__(self, *, is_only_frontend: bool = True) -> None:
        self._is_only_frontend = is_only_frontend
        self._steps: list[tuple[Any, ...]] = []
        self._scheduled: list[tuple[Any, ...]] = []
        self._requests: list[tuple[Any, ...]] = []
        self._finish_reasons: list[str | None] = []
        self._gauges: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._arrivals: OrderedDict[int, list[tuple[float, float]]] = OrderedDict()

    @property
    def has_news(self) -> bool:
        """Whether anything has happened since the last batch."""
        return bool(self._steps or self._requests or self._scheduled)

    @property
    def rows(self) -> int:
        """How many rows its next batch will have."""
        return len(self._steps) + len(self._requests)

    def take(self, scheduler: Any, iteration: Any, now_s: float) -> None:
        """Take one step's statistics; either may be None.

        Args:
            scheduler: vLLM's SchedulerStats.
            iteration: vLLM's IterationStats.
            now_s: When it was, if ``iteration`` does not say.
        """
        scheduled, given = _fields(scheduler), _fields(iteration)
        if scheduler is not None:
            self._take_scheduler(scheduled)
        self._take_adapters(scheduled, given)
        if iteration is None:
            return
        end_s = _number(given.get("iteration_timestamp"), now_s)
        self._take_step(scheduled, given, end_s, getattr(iteration, "num_prompt_tokens", _NAN))
        ttfts_s = given.get("time_to_first_tokens_iter") or ()
        for ttft_s in ttfts_s:
            self._note_first_token(end_s - ttft_s, ttft_s)
        if ttfts_s:
            self._count("first_tokens_total", len(ttfts_s))
        for request in given.get("finished_requests") or ():
            self._take_request(_fields(request), end_s)

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
        # Taken away first: what cannot be made a batch of must not come again, and pile up.
        taken, self._steps, self._scheduled = (self._steps, self._scheduled), [], []
        requests, self._requests = self._requests, []
        reasons, self._finish_reasons = self._finish_reasons, []
        steps = _columns(_STEP_COLUMNS, taken[0])
        knows_scheduler = self._is_only_frontend or bool(taken[1])
        if taken[1]:
            self._note_scheduled(_columns(_SCHEDULER_COLUMNS, taken[1]))
        for name, column in _STEP_TOTALS.items():
            self._count(name, float(np.nansum(steps[column])))
        steps["waiting"] = steps["waiting"] + np.nan_to_num(steps.pop("deferred"))
        steps["forward_s"] = 1e-3 * steps.pop("forward_ms")
        for name in ("prompt_tokens", "corrupted"):
            del steps[name]
        return TelemetryBatch(
            source=source,
            start_s=start_s,
            end_s=end_s,
            requests=_table(_columns(_REQUEST_COLUMNS, requests), {"finish_reason": reasons}),
            steps=_table(steps, {}),
            gauges={**(self._gauges if knows_scheduler else {}), **self._totals, **own},
        )

    def _count(self, name: str, by: float) -> None:
        self._totals[name] = self._totals.get(name, 0.0) + by

    def _take_scheduler(self, scheduled: Mapping[str, Any]) -> None:
        get = scheduled.get
        cache = _fields(get("prefix_cache_stats"))
        self._scheduled.append(
            (
                get("num_running_reqs", _NAN),
                get("num_waiting_reqs", _NAN),
                get("num_skipped_waiting_reqs", _NAN),
                get("kv_cache_usage", _NAN),
                cache.get("queries", _NAN),
                cache.get("hits", _NAN),
            )
        )
        if (drafts := get("spec_decoding_stats")) is not None:
            for name, field in _DRAFT_TOTALS.items():
                self._count(name, _number(_fields(drafts).get(field), 0.0))
        if (graph := get("cudagraph_stats")) is not None:
            of_graph = _fields(graph)
            mode = str(of_graph.get("runtime_mode", "unknown")).rpartition(".")[2].lower()
            self._count(f"cudagraph_{mode}_steps_total", 1.0)
            self._count("cudagraph_paddings_total", _number(of_graph.get("num_paddings"), 0.0))

    def _note_scheduled(self, scheduled: Mapping[str, Floats]) -> None:
        """Make the newest of what the scheduler said the gauges, and count the rest."""
        newest = {name: float(column[-1]) for name, column in scheduled.items()}
        self._gauges["running"] = _number(newest["running"], 0.0)
        self._gauges["waiting"] = sum(_number(newest[n], 0.0) for n in ("waiting", "deferred"))
        if math.isfinite(newest["kv_usage"]):
            self._gauges["kv_usage"] = newest["kv_usage"]
        for name, column in _CACHE_TOTALS.items():
            self._count(name, float(np.nansum(scheduled[column])))

    def _take_adapters(self, *holders: Mapping[str, Any]) -> None:
        """Take how many requests of each adapter run: 0.11.1 told it with the step's outputs."""
        told = [h[_ADAPTERS] for h in holders if isinstance(h.get(_ADAPTERS), Mapping)]
        running: Mapping[Any, Any] = next((each for each in told if each), _NOTHING)
        if not (running or (told and "lora" in self._gauges)):
            return
        others = {name: n for name, n in self._gauges.items() if not name.startswith("lora")}
        before = [name for name in self._gauges if name.startswith("lora.")]
        now = {
            f"lora.{name}"[:_MAX_NAME]: _number(requests, 0.0)
            for name, requests in list(running.items())[:_MAX_ADAPTERS]
        }
        # One that runs no more is at zero, as long as there is room for it.
        room = _MAX_ADAPTERS - len(now)
        idle = [name for name in before if name not in now][-room:] if room else []
        self._gauges = {
            **others,
            "lora": float(len(running)),
            **dict.fromkeys(idle, 0.0),
            **now,
        }

    def _take_step(
        self,
        scheduled: Mapping[str, Any],
        given: Mapping[str, Any],
        end_s: float,
        prompt_tokens: Any,
    ) -> None:
        prompt = _fields(given.get("prompt_token_stats"))
        total = prompt.get("total", prompt_tokens)
        gap_s, decoding = _NAN, _NAN
        if scheduled:
            gaps_s = given.get("inter_token_latencies_iter") or ()
            decoding = len(gaps_s)
            if gaps_s:
                # All that decode in a step share its gap, but for who was just let in again.
                gap_s = sorted(gaps_s)[decoding // 2]
        self._steps.append(
            (
                end_s,
                given.get("num_generation_tokens", _NAN),
                prompt.get("computed", total),
                gap_s,
                decoding,
                scheduled.get("num_running_reqs", _NAN),
                scheduled.get("num_waiting_reqs", _NAN),
                scheduled.get("num_skipped_waiting_reqs", _NAN),
                _fields(scheduled.get("iteration_details")).get("elapsed_ms", _NAN),
                total,
                given.get("num_preempted_reqs", _NAN),
                given.get("num_corrupted_reqs", _NAN),
            )
        )

    def _take_request(self, given: Mapping[str, Any], end_s: float) -> None:
        reason = _finish_reason(given.get("finish_reason"))
        told = {column: given.get(field, _NAN) for column, field in _REQUEST_FIELDS.items()}
        e2e_s = _number(told["e2e_s"], _NAN)
        ttft_s = self._ttft_s(end_s - e2e_s) if math.isfinite(e2e_s) else _NAN
        if reason in _CUT_SHORT:
            told["e2e_s"] = told["decode_s"] = _NAN
        self._count("finished_total", 1.0)
        self._requests.append((end_s, ttft_s, *told.values()))
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


def _fields(owner: Any) -> Mapping[str, Any]:
    """Return what ``owner`` holds, by name."""
    if owner is None:
        return _NOTHING
    fields = getattr(owner, "__dict__", None)
    if fields is not None:
        return fields  # type: ignore[no-any-return]
    names: Sequence[str] = getattr(owner, "__struct_fields__", getattr(owner, "__slots__", ()))
    return {name: getattr(owner, name) for name in names if hasattr(owner, name)}


def _number(value: Any, absent: float) -> float:
    """Return ``value`` if it is a finite number, else ``absent``."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return absent


def _finish_reason(reason: Any) -> str | None:
    """Return vLLM's name of the reason, whatever kind of enumeration it is."""
    if reason is None:
        return None
    if isinstance(reason, int):
        return _FINISH_REASONS[reason] if 0 <= reason < len(_FINISH_REASONS) else str(int(reason))
    return str(getattr(reason, "name", reason)).lower()


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Floats]:
    """Return ``rows`` as columns; what is no finite number is NaN."""
    try:
        table = np.array(rows, np.float64).reshape(len(rows), len(names))
        table[~np.isfinite(table)] = _NAN
    except (TypeError, ValueError):
        clean = [[_number(value, _NAN) for value in row] for row in rows]
        table = np.array(clean, np.float64).reshape(len(rows), len(names))
    return dict(zip(names, table.T, strict=True))


def _table(columns: Mapping[str, Floats], text: Mapping[str, list[str | None]]) -> Table:
    """Return a table of ``columns``; one in which nothing was measured is left out."""
    if not columns["end_s"].size:
        return EMPTY_TABLE
    return Table(
        end_s=columns["end_s"],
        columns={
            name: column.astype(np.float32)
            for name, column in columns.items()
            if name != "end_s" and not np.isnan(column).all()
        },
        text=text,
    )
