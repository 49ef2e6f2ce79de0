import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from connectors.llmservingsim import convert_llmservingsim
from connectors.recordings import read_csv
from daom.codec import decode, encode_json, encode_msgpack
from daom.errors import SourceError

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "llmservingsim_vllm"
RUNS = [
    "RTX4090/Llama-3.1-8B",
    "RTXPRO6000/Llama-3.1-8B",
    "RTXPRO6000/Qwen3-30B-A3B-Instruct-2507",
    "RTXPRO6000/Qwen3-32B",
]
START_S = 1_764_000_000.0

on_every_run = pytest.mark.parametrize("name", RUNS)
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the LLMServingSim vLLM runs (llmservingsim_vllm) are not here"
)


def convert(folder):
    return list(convert_llmservingsim(folder, model="llama", engine="rtx", start_s=START_S))


def column(batches, name):
    tables = [batch.requests for batch in batches if batch.requests.rows]
    return np.concatenate([t.end_s if name == "end_s" else t.columns[name] for t in tables])


def source_requests(name):
    lines = (DATA / name / "vllm" / "requests.jsonl").read_text().splitlines()
    return sorted(map(json.loads, lines), key=lambda request: request["last_token_ts"])


def write_run(folder, requests, rows):
    """Write a small run: requests as offsets of (arrival, queued, scheduled, first, last)."""
    names = ("arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
    objects = [
        dict(zip(names, (1000.0 + arrival, *engine), strict=True))
        | {"input_toks": 100, "output_toks": 10}
        for arrival, *engine in requests
    ]
    (folder / "meta.json").write_text('{"started_at": "1970-01-01T00:16:40Z"}')
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, objects)))
    header = "t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct"
    (folder / "timeseries.csv").write_text("\n".join([header, *rows]))
    return folder


def test_latencies_are_differences_of_the_engines_own_times(tmp_path):
    run = write_run(tmp_path, [(0.0, 5.0, 5.25, 5.5, 6.5)], ["1,1,1,1,1,50", "2,1,1,1,1,50"])

    batches = convert(run)

    assert {name: float(values[0]) for name, values in batches[1].requests.columns.items()} == {
        "prompt_tokens": 100.0,
        "output_tokens": 10.0,
        "queue_s": 0.25,
        "prefill_s": 0.25,
        "ttft_s": 0.5,
        "decode_s": 1.0,
        "e2e_s": 1.5,
    }


def test_a_request_ends_when_the_engine_says_however_long_it_took_to_be_queued(tmp_path):
    at_once = (0.0, 5.0, 5.0, 5.1, 5.8)
    queued_late = (0.0, 5.5, 5.5, 5.6, 5.7)

    (batch,) = convert(write_run(tmp_path, [at_once, queued_late], ["1,1,1,1,1,50"]))

    assert pytest.approx([START_S + 0.7, START_S + 0.8]) == batch.requests.end_s
    assert pytest.approx([0.2, 0.8]) == batch.requests.columns["e2e_s"]


def test_a_request_that_outlives_the_gauges_is_sent_without_them(tmp_path):
    run = write_run(tmp_path, [(0.0, 5.0, 5.0, 5.1, 7.5)], ["1,1,1,1,0,50"])

    first, last = convert(run)

    assert first.gauges["kv_usage"] == 0.5
    assert (last.gauges, last.end_s, last.requests.rows) == ({}, START_S + 3.0, 1)


@pytest.mark.parametrize(("scheduled", "sent"), [(5.5, True), (6.5, False)])
def test_a_waiting_of_0_is_believed_unless_a_request_waited_longer_than_a_tick(
    tmp_path, scheduled, sent
):
    run = write_run(tmp_path, [(0.0, 5.0, scheduled, 7.0, 7.5)], ["3,1,1,1,0,50"])

    (batch,) = convert(run)

    assert sent == ("waiting" in batch.gauges)


@pytest.mark.parametrize("file", ["meta.json", "requests.jsonl", "timeseries.csv"])
@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"started_at": "2026-01-01"}', "t\n1"])
def test_a_file_that_is_not_of_a_run_is_a_source_error(tmp_path, file, content):
    write_run(tmp_path, [(0.0, 5.0, 5.0, 5.1, 5.5)], ["1,1,1,1,0,50"])
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_text(content)

    with pytest.raises(SourceError, match=file):
        convert(tmp_path)


@needs_data
@on_every_run
def test_every_request_of_a_run_is_there_with_its_latencies(name):
    source = source_requests(name)

    batches = convert(DATA / name / "vllm")

    def between(begin, end):
        return [request[end] - request[begin] for request in source]

    for signal, expected in {
        "prompt_tokens": [request["input_toks"] for request in source],
        "output_tokens": [request["output_toks"] for request in source],
        "queue_s": between("queued_ts", "scheduled_ts"),
        "ttft_s": between("queued_ts", "first_token_ts"),
        "e2e_s": between("queued_ts", "last_token_ts"),
    }.items():
        np.testing.assert_allclose(column(batches, signal), expected, rtol=1e-6, atol=1e-6)


@needs_data
@on_every_run
def test_the_mean_time_to_first_token_is_the_one_the_source_published(name):
    summary = (DATA / name / "validation" / "summary.txt").read_text()
    published_ms = float(summary.split("TTFT Mean")[1].split()[0])

    ttft_s = column(convert(DATA / name / "vllm"), "ttft_s")

    assert published_ms == pytest.approx(1e3 * ttft_s.mean(dtype=np.float64), abs=0.1)


@needs_data
@on_every_run
def test_running_is_the_number_of_requests_scheduled_and_not_done(name):
    """So the requests and the gauges are on one clock; preemption loosens it on the small GPU."""
    batches = convert(DATA / name / "vllm")
    end_s = column(batches, "end_s")
    scheduled_s = end_s - column(batches, "e2e_s") + column(batches, "queue_s")

    differences = [
        np.sum((scheduled_s <= batch.end_s) & (end_s > batch.end_s)) - batch.gauges["running"]
        for batch in batches
    ]

    assert np.mean(np.abs(differences)) < 3.0


@needs_data
@on_every_run
def test_a_dead_gauge_is_left_out_and_a_live_one_is_a_share(name):
    percent = read_csv(DATA / name / "vllm" / "timeseries.csv")["kv_cache_pct"]

    batches = convert(DATA / name / "vllm")

    sent = [batch.gauges["kv_usage"] for batch in batches if "kv_usage" in batch.gauges]
    assert name.startswith("RTX4090") == bool(sent)
    assert pytest.approx(percent / 100.0) == sent or not percent.any()


@needs_data
@on_every_run
def test_a_run_is_a_faultless_gapless_stream_of_one_batch_a_second(name):
    batches = convert(DATA / name / "vllm")

    assert list(range(len(batches))) == [batch.source.seq for batch in batches]
    assert [START_S + n for n in range(1, len(batches) + 1)] == [b.end_s for b in batches]
    assert all(before.end_s == after.start_s for before, after in pairwise(batches))
    for batch in batches:
        record, faults = decode(encode_json(batch))
        packed, packed_faults = decode(encode_msgpack(batch))
        assert (faults, packed_faults) == ((), ())
        assert encode_json(batch) == encode_json(record) == encode_json(packed)
        assert (batch.start_s, batch.end_s) == (record.start_s, record.end_s)
