"""Measured vLLM runs published with LLMServingSim, as telemetry.

Each run sent 300 ShareGPT requests at 10 a second to one vLLM engine, more than some of the GPUs
could take. A run's folder holds ``requests.jsonl`` (a request each), ``timeseries.csv`` (the
engine's gauges each second) and ``meta.json`` (when it started, and on what).

What the logs do and do not say:

* A request's times in the engine (``queued_ts`` to ``last_token_ts``) are monotonic, its arrival
  is the wall clock's. All latencies are differences of the engine's times, as in the source's own
  summaries: ``ttft_s`` and ``e2e_s`` count from the moment the engine queued the request, not from
  its arrival, which was up to 0.4 s before in a busy process.
* The two clocks are brought together by the request that was queued soonest after it arrived:
  none is queued before it arrives, and that one is taken to have been queued at once. A request's
  end keeps its place among the engine's events that way, which its arrival plus its latency would
  not.
* ``t`` of a row counts from the start that ``meta.json`` gives.
* ``kv_cache_pct`` is percent; it is sent as a share of 1. On the RTX PRO 6000 it is 0 from
  beginning to end, while a hundred requests ran: that gauge was dead. A gauge that cannot rest at
  0 while requests are served, and yet does for the whole run, is left out, not sent as 0.
  ``waiting`` can, so it is left out only if a request is known to have waited longer than a tick.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from connectors.recordings import read_csv, read_json, read_lines, rows_between
from daom.errors import SourceError
from daom.events import Source, Table, TelemetryBatch

TICK_S: Final = 1.0
_DECIMALS: Final = 6
_REQUEST_FIELDS: Final = (
    *("arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"),
    *("input_toks", "output_toks"),
)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run; times are seconds since it started."""

    requests: Table
    tick_s: NDArray[np.float64]
    gauges: Mapping[str, NDArray[np.float64]]


def convert_llmservingsim(
    run_dir: Path, *, model: str, engine: str, start_s: float, boot: str = "replay"
) -> Iterator[TelemetryBatch]:
    """Yield a run as the stream of one engine: a batch each second, with the gauges of its end.

    Args:
        run_dir: The ``vllm`` folder of one GPU and model.
        model: Model to report.
        engine: Engine to report.
        start_s: Event time of the run's start, Unix seconds.
        boot: Names the run of the probe.

    Raises:
        SourceError: If a file of the run cannot be read, or is not what the data set holds.
    """
    run = _read_run(run_dir)
    ends_s = run.tick_s
    late_s = float(run.requests.end_s.max(initial=0.0))
    if late_s > ends_s[-1]:
        ends_s = np.append(ends_s, np.ceil(late_s))
    finished = np.searchsorted(run.requests.end_s, ends_s, side="right").tolist()
    requests = Table(
        end_s=np.round(start_s + run.requests.end_s, _DECIMALS), columns=run.requests.columns
    )
    batch_start_s, first = start_s, 0
    for seq, (end_s, stop) in enumerate(zip((start_s + ends_s).tolist(), finished, strict=True)):
        known = run.gauges if seq < run.tick_s.size else {}
        yield TelemetryBatch(
            source=Source(model=model, engine=engine, boot=boot, seq=seq),
            start_s=batch_start_s,
            end_s=end_s,
            requests=rows_between(requests, first, stop),
            gauges={name: float(values[seq]) for name, values in known.items()},
            logged_s=end_s,
        )
        batch_start_s, first = end_s, stop


def _read_run(run_dir: Path) -> _Run:
    rows = read_csv(run_dir / "timeseries.csv")
    times = _read_requests(run_dir / "requests.jsonl")
    started_s = _read_started_s(run_dir / "meta.json")
    soonest_s = float(np.max(times["arrival_time"] - times["queued_ts"]))
    end_s = times["last_token_ts"] + soonest_s - started_s
    order = np.argsort(end_s, kind="stable")
    latencies_s = _latencies_s(times)
    columns = {"prompt_tokens": times["input_toks"], "output_tokens": times["output_toks"]}
    requests = Table(
        end_s=end_s[order],
        columns={
            name: np.round(values[order], _DECIMALS).astype(np.float32)
            for name, values in (columns | latencies_s).items()
        },
    )
    try:
        gauges = _gauges(rows)
        tick_s = rows["t"]
    except KeyError as error:
        raise SourceError(f"{run_dir / 'timeseries.csv'}: no column {error}") from error
    longest_queue_s = float(latencies_s["queue_s"].max())
    return _Run(requests, tick_s, _live(gauges, longest_queue_s))


def _latencies_s(times: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    queued, scheduled = times["queued_ts"], times["scheduled_ts"]
    first_token, last_token = times["first_token_ts"], times["last_token_ts"]
    return {
        "queue_s": scheduled - queued,
        "prefill_s": first_token - scheduled,
        "ttft_s": first_token - queued,
        "decode_s": last_token - first_token,
        "e2e_s": last_token - queued,
    }


def _gauges(rows: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    return {
        "running": rows["running"],
        "waiting": rows["waiting"],
        "kv_usage": np.round(rows["kv_cache_pct"] / 100.0, _DECIMALS),
        "prompt_tokens_per_s": rows["prompt_throughput"],
        "generation_tokens_per_s": rows["gen_throughput"],
    }


def _live(
    gauges: Mapping[str, NDArray[np.float64]], longest_queue_s: float
) -> dict[str, NDArray[np.float64]]:
    may_rest = {"waiting"} if longest_queue_s <= TICK_S else set()
    return {name: values for name, values in gauges.items() if values.any() or name in may_rest}


def _read_requests(path: Path) -> dict[str, NDArray[np.float64]]:
    requests: list[dict[str, Any]] = []
    for line in read_lines(path):
        try:
            request = json.loads(line.value)
            requests.append({name: float(request[name]) for name in _REQUEST_FIELDS})
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(f"{path}:{line.number}: not a request of a run: {error!r}") from error
    if not requests:
        raise SourceError(f"{path}: holds no request")
    return {name: np.array([r[name] for r in requests]) for name in _REQUEST_FIELDS}


def _read_started_s(path: Path) -> float:
    try:
        started = datetime.fromisoformat(read_json(path)["started_at"])
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{path}: no ISO time in started_at: {error!r}") from error
    if started.tzinfo is None:
        raise SourceError(f"{path}: started_at {started.isoformat()} has no time zone")
    return started.timestamp()
