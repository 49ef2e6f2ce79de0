"""Measured latencies and arrivals as streams: what others recorded, spliced where it must change.

The data lie in ``$DAOM_DATA``, or beside the repository; each folder's README names its source and
licence. Rows without a time of their own are drawn anew, seeded, and arrive at 2 a second.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.detection.streams import (
    FOLLOWED_S,
    HOUR_S,
    RATE_HZ,
    START_S,
    Floats,
    Make,
    Stream,
    arrivals,
    served_s,
)
from daom.events import Source, Table, TelemetryBatch

_MIN_ROWS: Final = 100
"""An endpoint with fewer usable rows is left out."""
LIGHT_SCALE: Final = 100
_PGBENCH: Final = re.compile(r"Factor_(\d+)_Clients_(\d+)_Mode_(\w+?)_Average_Latency")
HEAVIER_SCALES: Final = (200, 300, 400, 500, 600, 700, 800, 900, 1000, 1500, 2000)


def data_dir() -> Path:
    """Return where the recorded data lie."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    return Path(os.environ.get("DAOM_DATA", beside))


def endpoints(data: Path) -> dict[str, Floats]:
    """Return the TTFT of every request of each hosted endpoint, in seconds."""
    found = {}
    for path in sorted((data / "llmperf_leaderboard/raw_data/individual").glob("*.json")):
        rows = json.loads(path.read_text(encoding="utf-8"))
        ttft_s = np.array([row["ttft_s"] for row in rows if row.get("ttft_s")], np.float64)
        if ttft_s.size >= _MIN_ROWS:
            found[path.stem] = ttft_s[:, None]
    return found


def vllm_runs(data: Path) -> dict[str, Floats]:
    """Return TTFT in seconds and prompt tokens of LLMServingSim's vLLM runs, shape ``(n, 2)``."""
    found = {}
    for path in sorted((data / "llmservingsim_vllm").glob("*/*/vllm/requests.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        pairs = [(r["first_token_ts"] - r["queued_ts"], r["input_toks"]) for r in rows]
        found[f"{path.parts[-4]} {path.parts[-3]}"] = np.array(pairs, np.float64)
    return found


def drawn(runs: Mapping[str, Floats], *, change: bool) -> tuple[int, Make]:
    """Return how many ways there are to follow one run by another (or by itself), and the streams.

    Seed k gives the k-th way: rows of the first run drawn anew until the onset, one to two hours
    after the beginning, then rows of the second.
    """
    ways = list(permutations(runs, 2)) if change else [(name, name) for name in runs]

    def make(seed: int) -> Stream:
        rng = np.random.default_rng(seed)
        first, second = (runs[name] for name in ways[(seed - 1) % len(ways)])
        onset_s = rng.uniform(HOUR_S, 2.0 * HOUR_S)
        at_s = arrivals(rng, RATE_HZ, onset_s + FOLLOWED_S)
        before = int(np.searchsorted(at_s, onset_s))
        rows = np.concatenate([rng.choice(first, before), rng.choice(second, at_s.size - before)])
        return _stream(at_s, rows, onset_s, onset_s + FOLLOWED_S)

    return len(ways), make


def _stream(at_s: Floats, rows: Floats, onset_s: float, end_s: float) -> Stream:
    return Stream(
        times_s=START_S + at_s,
        values_s=rows[:, 0],
        workload=rows[:, 1] if rows.shape[1] > 1 else None,
        end_s=START_S + end_s,
        onset_s=START_S + onset_s,
    )


def burstgpt_load(data: Path, scale: int) -> tuple[Floats, Floats]:
    """Return when each request of a load ended, from 0 s on, and its TTFT and prompt tokens."""
    name = f"detail_log_scale{scale}_prompt500.json"
    log = json.loads((data / "burstgpt_vllm_replay/detail_log" / name).read_text(encoding="utf-8"))
    fields = ("record_time", "first_chunk_time", "in_len")
    rows = np.array([[row[name] for name in fields] for row in log.values()], np.float64)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return rows[:, 0] - rows[0, 0], rows[:, 1:]


def overload(data: Path, scales: tuple[int, ...]) -> Make:
    """Return streams of the light load, again and again for over an hour, then of another once.

    Seed k gives the k-th of ``scales``; the light load begins at a random one of its requests.
    """
    light_s, light = burstgpt_load(data, LIGHT_SCALE)
    loads = [burstgpt_load(data, scale) for scale in scales]
    period_s = float(light_s[-1]) + 1.0
    times = int(np.ceil(1.1 * HOUR_S / period_s))

    def make(seed: int) -> Stream:
        first = int(np.random.default_rng(seed).integers(len(light)))
        order = np.roll(np.arange(len(light)), -first)
        once_s = (light_s[order] - light_s[first]) % period_s
        calm_s = np.concatenate([once_s + n * period_s for n in range(times)])
        onset_s = times * period_s
        then_s, then = loads[(seed - 1) % len(loads)]
        rows = np.concatenate([np.tile(light[order], (times, 1)), then])
        at_s = np.concatenate([calm_s, onset_s + then_s])
        return _stream(at_s, rows, onset_s, onset_s + float(then_s[-1]) + 1.0)

    return make


def code_after_conversation(data: Path) -> Make:
    """Return streams of real arrivals and tokens: an hour of conversation, then an hour of code.

    Latency is the tokens' own (``streams.served_s``), so nothing happens to the service.
    """
    talk_s, talk = _azure_requests(data / "azure_llm_2023/AzureLLMInferenceTrace_conv.csv")
    code_s, code = _azure_requests(data / "azure_llm_2023/AzureLLMInferenceTrace_code.csv")
    onset_s = float(talk_s[-1])
    at_s = np.concatenate([talk_s, onset_s + code_s])
    tokens = np.concatenate([talk, code])

    def make(seed: int) -> Stream:
        latency_s = served_s(np.random.default_rng(seed), tokens)
        rows = np.stack([latency_s, tokens], axis=1)
        return _stream(at_s, rows, onset_s, float(at_s[-1]))

    return make


def _azure_requests(path: Path) -> tuple[Floats, Floats]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # Python's ISO dates end at microseconds; the trace has 100 ns.
    at_s = np.array([datetime.fromisoformat(r["TIMESTAMP"][:26]).timestamp() for r in rows])
    return at_s - at_s[0], np.array([r["ContextTokens"] for r in rows], np.float64)


def healthy_services(data: Path) -> Iterator[tuple[str, dict[str, Floats]]]:
    """Yield each PostgreSQL service's VMs, of each time and latency, shape ``(n, 2)``."""
    for path in sorted((data / "azure_vm_noise").glob("*.csv")):
        vms: dict[str, list[tuple[float, float]]] = {}
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                at_s = datetime.fromisoformat(row["starttime"]).timestamp()
                vms.setdefault(row["VM_id"], []).append((at_s, 1e-3 * float(row["value"])))
        if vms:
            scale, clients, mode = _PGBENCH.findall(path.stem)[0]
            name = f"pgbench {scale} x {clients}, {mode.replace('_', ' ').lower()}"
            yield name, {vm: np.array(sorted(rows)) for vm, rows in vms.items()}


def closer_together(rows: Floats, gap_s: float) -> Floats:
    """Return ``rows`` with the same values in the same order, ``gap_s`` seconds apart."""
    return np.stack([START_S + gap_s * np.arange(len(rows)), rows[:, 1]], axis=1)


def telemetry(vms: Mapping[str, Floats]) -> Iterator[Any]:
    """Yield the batches of a cell whose engines are the VMs: one finished request each."""
    rows = [(at_s, vm, value_s) for vm, series in vms.items() for at_s, value_s in series.tolist()]
    for seq, (at_s, vm, value_s) in enumerate(sorted(rows)):
        yield TelemetryBatch(
            source=Source(model="pgsql", engine=vm, boot="b", seq=seq),
            start_s=at_s - 1.0,
            end_s=at_s,
            requests=Table(
                end_s=np.array([at_s]), columns={"e2e_s": np.array([value_s], np.float32)}
            ),
        )
