"""A vLLM engine under a replayed public trace, as telemetry.

BurstGPT's arrivals were replayed against one vLLM engine (Llama-3.2-1B on a 24 GiB GPU) at several
speed-ups, called scales. Each replay, a *load*, left three logs on one monotonic clock:
``detail_log`` (a request each), ``vllm_log`` (the engine's gauges) and ``gpu_log``.

What the logs do and do not say:

* Latencies were taken by the client, so they hold its share of HTTP too. A request without a
  token beyond its first chunk has a ``decode_s`` near 0.
* ``in_len`` is the prompt's length in tokens of the replayer's own tokenizer. It comes to 1.25
  times the prompt tokens that the engine itself counted, in every load alike. It is sent as
  ``prompt_tokens``: good to compare prompts by, not to bill them.
* ``out_len`` is the number of *characters* of prompt and answer together, and the characters of
  the prompt were not logged. So neither ``output_tokens`` nor a number of output characters can
  be had of a request, and none is sent.
* ``gpu_kvcache_usage`` is percent; it is sent as a share of 1. Nothing was ever swapped.
* The engine logged each half second while it had work, and nothing at all while it had none: one
  silence lasts a minute, after a last row that still says "1 running". The client knows when no
  request was in flight; such a time is sent as what it was, an idle engine.
* ``GPU_utilization`` is 0 when nothing ran just before, and is sent as it is. A GPU reading is up
  to half a second older than its time: the replayer read first and then waited.

The names of the gauges follow vLLM's, tokens per second are averages over the half second before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from connectors.recordings import (
    merge_by_time,
    read_csv,
    read_json,
    record_time_s,
    rows_between,
    write_recording,
)
from daom.codec import encode_json
from daom.errors import SourceError
from daom.events import GpuSample, Record, Source, Table, TelemetryBatch

LOG_INTERVAL_S: Final = 0.5
"""How often a busy engine logged its gauges."""
DEMO_MODEL: Final = "llama-3.2-1b"
DEMO_START_S: Final = 1_764_000_000.0
LIGHT: Final = 100
OVERLOAD: Final = 1500
DEMO_PHASE_S: Final = 150.0
DEMO_BATCH_S: Final = 1.0
_GPU_INTERVAL_S: Final = 1.0
_MIB: Final = 2**20
_DECIMALS: Final = 5
"""Of seconds and shares: 10 microseconds are finer than a client in Python measures."""
_GPU_TIME_STEPS_PER_S: Final = 10
"""The age of a reading is not known any better than to a tenth of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstGptLoad:
    """One replayed load: where its three logs are, and from where in it to begin.

    Attributes:
        detail_log: JSON, an object a finished request.
        gpu_log: JSON, an object a GPU reading.
        vllm_log: CSV, a row each half second of work.
        skip_s: Seconds to leave out at the beginning; what was in flight then is reported whole.
    """

    detail_log: Path
    gpu_log: Path
    vllm_log: Path
    skip_s: float = 0.0

    @classmethod
    def of_scale(cls, data_dir: Path, scale: int, *, skip_s: float = 0.0) -> Self:
        """Return the load of one speed-up, such as 100 (light) or 1500 (overload)."""
        run = f"scale{scale}_prompt500"
        return cls(
            detail_log=data_dir / "detail_log" / f"detail_log_{run}.json",
            gpu_log=data_dir / "gpu_log" / f"gpu_log_{run}.json",
            vllm_log=data_dir / "vllm_log" / f"vllm_log_{run}.csv",
            skip_s=skip_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """The three logs of a load; times are seconds since the load began, or was joined."""

    requests: Table
    begin_s: NDArray[np.float64]
    row_s: NDArray[np.float64]
    gauges: Mapping[str, NDArray[np.float64]]
    gpu_s: NDArray[np.float64]
    gpus: Mapping[str, NDArray[np.float64]]

    @property
    def duration_s(self) -> float:
        times_s = self.requests.end_s, self.row_s, self.gpu_s
        return float(max(times.max(initial=0.0) for times in times_s))


def convert_burstgpt(
    loads: Sequence[BurstGptLoad],
    *,
    model: str,
    engine: str,
    start_s: float,
    boot: str = "replay",
    batch_s: float = 0.5,
) -> Iterator[Record]:
    """Yield the loads, one right after the other, as the stream of one engine in time order.

    Every ``batch_s`` of each load, from its first reading to its last, there is one TelemetryBatch
    with the requests finished since the one before and the newest gauges; and one GpuSample a
    second. Batches are numbered through all loads; GPU readings, another producer's, are not.

    Args:
        loads: What to convert; each begins where the batches of the one before end.
        model: Model to report.
        engine: Engine to report.
        start_s: Event time of the first load's beginning, Unix seconds.
        boot: Names the run of the probe.
        batch_s: Seconds a batch spans; more than 0.5 thins the gauges.

    Raises:
        SourceError: If a log cannot be read, or is not what the data set holds.
    """
    probe = (Source(model=model, engine=engine, boot=boot, seq=seq) for seq in count())
    for load in loads:
        logs = _read_logs(load)
        ends_s = batch_s * np.arange(1.0, math.ceil(logs.duration_s / batch_s) + 1.0)
        batches = _telemetry(logs, ends_s, probe, start_s)
        readings = _gpu_samples(logs, Source(model=model, engine=engine), start_s)
        yield from merge_by_time([batches, readings])
        start_s += ends_s.size * batch_s


def _read_logs(load: BurstGptLoad) -> _Logs:
    requests = _columns(load.detail_log)
    gpus = _columns(load.gpu_log)
    rows = read_csv(load.vllm_log)
    try:
        times_s = requests["record_time"], rows["timestamp"], gpus["record_time"]
        joined_s = float(min(times.min() for times in times_s)) + load.skip_s
        end_s, row_s, gpu_s = (np.round(times - joined_s, _DECIMALS) for times in times_s)
        order = np.argsort(end_s, kind="stable")
        order = order[end_s[order] >= 0.0]
        return _Logs(
            requests=Table(end_s=end_s[order], columns=_request_columns(requests, order)),
            begin_s=np.sort(end_s[order] - requests["total_chunk_time"][order]),
            row_s=row_s,
            gauges=_gauges(rows),
            gpu_s=gpu_s[gpu_s >= 0.0],
            gpus={name: values[gpu_s >= 0.0] for name, values in _gpu_numbers(gpus).items()},
        )
    except KeyError as error:
        raise SourceError(f"{load.detail_log} and its siblings: no column {error}") from error


def _columns(path: Path) -> dict[str, NDArray[np.float64]]:
    """Return the numbers of a log that holds one flat object a row, by name."""
    log = read_json(path)
    try:
        rows = list(log.values())
        return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{path}: not a log of flat objects with the same numbers") from error


def _request_columns(
    requests: Mapping[str, NDArray[np.float64]], order: NDArray[np.intp]
) -> dict[str, NDArray[np.float32]]:
    ttft_s, e2e_s = requests["first_chunk_time"], requests["total_chunk_time"]
    columns = {
        "prompt_tokens": requests["in_len"],
        "ttft_s": ttft_s,
        "decode_s": e2e_s - ttft_s,
        "e2e_s": e2e_s,
    }
    return {
        name: np.round(values[order], _DECIMALS).astype(np.float32)
        for name, values in columns.items()
    }


def _gauges(rows: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    return {
        "running": rows["num_running"],
        "waiting": rows["num_pending"],
        "swapped": rows["num_swapped"],
        "kv_usage": np.round(rows["gpu_kvcache_usage"] / 100.0, _DECIMALS),
        "prompt_tokens_per_s": np.round(rows["prompt_throughput"], 1),
        "generation_tokens_per_s": np.round(rows["generation_throughput"], 1),
    }


def _gpu_numbers(gpus: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    return {
        "memory_used_bytes": gpus["GPU_used_mem"] * _MIB,
        "memory_total_bytes": gpus["GPU_total_mem"] * _MIB,
        "utilization": gpus["GPU_utilization"] / 100.0,
        "temperature_c": gpus["GPU_temperature"],
    }


def _telemetry(
    logs: _Logs, ends_s: NDArray[np.float64], probe: Iterator[Source], start_s: float
) -> Iterator[TelemetryBatch]:
    finished = np.searchsorted(logs.requests.end_s, ends_s, side="right")
    in_flight = np.searchsorted(logs.begin_s, ends_s, side="right") - finished
    newest_row = np.searchsorted(logs.row_s, ends_s, side="right") - 1
    requests = Table(
        end_s=np.round(start_s + logs.requests.end_s, _DECIMALS), columns=logs.requests.columns
    )
    batch_start_s, first = start_s, 0
    for i, end_s in enumerate((start_s + ends_s).tolist()):
        row, stop = int(newest_row[i]), int(finished[i])
        gauges = {name: float(values[row]) for name, values in logs.gauges.items() if row >= 0}
        if gauges and not in_flight[i] and ends_s[i] - logs.row_s[row] > LOG_INTERVAL_S:
            gauges = dict.fromkeys(gauges, 0.0)
        yield TelemetryBatch(
            source=next(probe),
            start_s=batch_start_s,
            end_s=end_s,
            requests=rows_between(requests, first, stop),
            gauges=gauges,
            logged_s=end_s,
        )
        batch_start_s, first = end_s, stop


def _gpu_samples(logs: _Logs, source: Source, start_s: float) -> Iterator[GpuSample]:
    seconds = np.floor(logs.gpu_s / _GPU_INTERVAL_S)
    for i in np.unique(seconds, return_index=True)[1].tolist():
        time_s = start_s + math.floor(logs.gpu_s[i] * _GPU_TIME_STEPS_PER_S) / _GPU_TIME_STEPS_PER_S
        numbers = {name: float(values[i]) for name, values in logs.gpus.items()}
        yield GpuSample(source=source, time_s=time_s, gpus=(numbers,), logged_s=time_s)


def demo_records(data_dir: Path) -> Iterator[Record]:
    """Yield the demo: two engines of one model under light load, one of which is overloaded.

    ``gpu-0`` runs through three light loads, the overload, and two light loads again. ``gpu-1``
    runs through light loads alone, ``DEMO_PHASE_S`` ahead, so that the two are not in lockstep,
    and ends when ``gpu-0`` does.

    Raises:
        SourceError: If a log of the data set cannot be read.
    """
    scales = (LIGHT, LIGHT, LIGHT, OVERLOAD, LIGHT, LIGHT)
    overloaded = list(_demo_engine(data_dir, "gpu-0", scales))
    steady = _demo_engine(data_dir, "gpu-1", (LIGHT,) * 6, skip_s=DEMO_PHASE_S)
    end_s = record_time_s(overloaded[-1])
    together = takewhile(lambda record: record_time_s(record) <= end_s, steady)
    return merge_by_time([overloaded, together])


def _demo_engine(
    data_dir: Path, engine: str, scales: Sequence[int], *, skip_s: float = 0.0
) -> Iterator[Record]:
    first, *others = scales
    loads = [BurstGptLoad.of_scale(data_dir, first, skip_s=skip_s)]
    loads += [BurstGptLoad.of_scale(data_dir, scale) for scale in others]
    return convert_burstgpt(
        loads, model=DEMO_MODEL, engine=engine, start_s=DEMO_START_S, batch_s=DEMO_BATCH_S
    )


def write_demo_recordings(data_dir: Path, out_dir: Path) -> dict[Path, int]:
    """Write the recordings that DAOM brings along; return how many records each holds.

    ``light.jsonl.gz`` is one light load of one engine, ``light_to_overload.jsonl.gz`` the two
    engines of ``demo_records``.

    Raises:
        SourceError: If a log of the data set cannot be read.
        SinkError: If a recording cannot be written.
    """
    recordings = {
        "light.jsonl.gz": _demo_engine(data_dir, "gpu-0", (LIGHT,)),
        "light_to_overload.jsonl.gz": demo_records(data_dir),
    }
    return {
        out_dir / name: write_recording(out_dir / name, map(encode_json, records))
        for name, records in recordings.items()
    }
