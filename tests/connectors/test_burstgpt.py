import dataclasses
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from connectors.burstgpt import (
    DEMO_START_S,
    BurstGptLoad,
    convert_burstgpt,
    write_demo_recordings,
)
from connectors.recordings import read_csv, read_lines, record_time_s
from daom.codec import decode, encode_json, encode_msgpack
from daom.errors import SourceError
from daom.events import GpuSample, TelemetryBatch

REPOSITORY = Path(__file__).parents[2]
DEMO = REPOSITORY / "tests" / "data" / "burstgpt"
DATA = REPOSITORY / ".." / "shared" / "data" / "burstgpt_vllm_replay"
RECORDINGS = ["light.jsonl.gz", "light_to_overload.jsonl.gz"]
START_S = 1_764_000_000.0

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the BurstGPT replay logs (burstgpt_vllm_replay) are not here"
)


def convert(*loads, **options):
    options = {"model": "llama", "engine": "gpu-0", "start_s": START_S} | options
    return list(convert_burstgpt(loads, **options))


def batches(records):
    return [record for record in records if isinstance(record, TelemetryBatch)]


def gpu_samples(records):
    return [record for record in records if isinstance(record, GpuSample)]


def column(records, name):
    tables = [batch.requests for batch in batches(records) if batch.requests.rows]
    return np.concatenate([t.end_s if name == "end_s" else t.columns[name] for t in tables])


def demo_records(name):
    return [decode(line.value).record for line in read_lines(DEMO / name)]


def detail_log(scale):
    load = BurstGptLoad.of_scale(DATA, scale)
    return list(json.loads(load.detail_log.read_bytes()).values())


def write_load(folder, requests, rows, gpu_times=(1000.0,)):
    """Write the three logs of a small load and return it."""
    folder.mkdir(exist_ok=True)
    load = BurstGptLoad(
        detail_log=folder / "detail.json", gpu_log=folder / "gpu.json", vllm_log=folder / "vllm.csv"
    )
    names = ("record_time", "total_chunk_time", "first_chunk_time", "in_len")
    detail = {str(i): dict(zip(names, row, strict=True)) for i, row in enumerate(requests)}
    gpu = {"GPU_used_mem": 10, "GPU_total_mem": 100, "GPU_utilization": 50, "GPU_temperature": 60}
    header = "timestamp,prompt_throughput,generation_throughput,num_running,num_swapped,"
    csv = [f"{time},10,20,{running},0,3,25,0" for time, running in rows]
    load.detail_log.write_text(json.dumps(detail))
    load.gpu_log.write_text(
        json.dumps({str(i): {"record_time": t} | gpu for i, t in enumerate(gpu_times)})
    )
    load.vllm_log.write_text(
        "\n".join([header + "num_pending,gpu_kvcache_usage,cpu_kvcache_usage", *csv])
    )
    return load


def test_a_request_is_a_row_of_the_batch_in_which_it_ended(tmp_path):
    requests = [(1000.2, 0.2, 0.1, 7), (1000.5, 0.4, 0.1, 8), (1000.75, 0.5, 0.125, 9)]
    load = write_load(tmp_path, requests, rows=[(1000.0, 1), (1001.0, 1)])

    first, second = batches(convert(load))

    assert first.requests.end_s.tolist() == [START_S + 0.2, START_S + 0.5]
    assert (second.start_s, second.end_s) == (START_S + 0.5, START_S + 1.0)
    values = {name: values.tolist() for name, values in second.requests.columns.items()}
    assert values == {"prompt_tokens": [9], "ttft_s": [0.125], "decode_s": [0.375], "e2e_s": [0.5]}


def test_gauges_are_those_of_the_newest_row_and_percent_becomes_a_share(tmp_path):
    load = write_load(
        tmp_path, [(1001.0, 1.0, 0.1, 7)], rows=[(1000.0, 1), (1000.4, 2), (1001.0, 3)]
    )

    first, second = batches(convert(load))

    assert (first.gauges["running"], second.gauges["running"]) == (2.0, 3.0)
    assert first.gauges["kv_usage"] == 0.25


def test_an_engine_that_logged_nothing_while_no_request_was_in_flight_was_idle(tmp_path):
    load = write_load(
        tmp_path,
        [(1000.6, 0.6, 0.1, 7), (1003.0, 0.1, 0.1, 7)],
        rows=[(1000.0, 1), (1000.4, 1), (1003.0, 1)],
    )

    running = [batch.gauges["running"] for batch in batches(convert(load))]

    assert running == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_a_busy_engine_that_logs_late_keeps_its_newest_gauges(tmp_path):
    load = write_load(tmp_path, [(1002.0, 2.0, 0.1, 7)], rows=[(1000.0, 4), (1002.0, 4)])

    running = [batch.gauges["running"] for batch in batches(convert(load))]

    assert running == [4.0, 4.0, 4.0, 4.0]


def test_gpu_readings_are_thinned_to_one_a_second_and_carry_bytes_and_shares(tmp_path):
    load = write_load(
        tmp_path,
        [(1002.0, 2.0, 0.1, 7)],
        rows=[(1000.0, 1)],
        gpu_times=[1000.26, 1000.76, 1001.27, 1001.77],
    )

    first, second = gpu_samples(convert(load))

    assert (first.time_s, second.time_s) == (START_S + 0.2, START_S + 1.2)
    assert first.gpus[0] == {
        "memory_used_bytes": 10 * 2**20,
        "memory_total_bytes": 100 * 2**20,
        "utilization": 0.5,
        "temperature_c": 60.0,
    }


def test_loads_follow_each_other_without_a_gap_and_are_numbered_through(tmp_path):
    load = write_load(tmp_path, [(1000.9, 0.5, 0.1, 7)], rows=[(1000.0, 1)])

    records = batches(convert(load, load))

    assert [batch.source.seq for batch in records] == [0, 1, 2, 3]
    assert [START_S + 0.5 * n for n in range(1, 5)] == [batch.end_s for batch in records]
    assert column(records, "end_s").tolist() == [START_S + 0.9, START_S + 1.9]


def test_a_load_joined_late_leaves_out_what_ended_before(tmp_path):
    load = write_load(
        tmp_path, [(1000.2, 0.1, 0.1, 7), (1001.75, 1.5, 0.1, 8)], rows=[(1000.0, 1), (1000.4, 2)]
    )

    records = convert(dataclasses.replace(load, skip_s=1.0))

    assert column(records, "end_s").tolist() == [START_S + 0.75]
    assert batches(records)[0].gauges["running"] == 2.0


@pytest.mark.parametrize("log", ["detail_log", "gpu_log", "vllm_log"])
@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"0": {"a": "b"}}', '{"0": {"a": 1}}'])
def test_a_log_that_is_not_one_is_a_source_error(tmp_path, log, content):
    load = write_load(tmp_path, [(1000.9, 0.5, 0.1, 7)], rows=[(1000.0, 1)])
    path = getattr(load, log)
    path.unlink()
    if content is not None:
        path.write_text(content)

    with pytest.raises(SourceError, match=r"detail\.json|gpu\.json|vllm\.csv"):
        convert(load)


@needs_data
@pytest.mark.parametrize("scale", [100, 200, 500, 1000, 1500, 2000])
def test_every_request_of_a_load_is_there_with_its_latencies(scale):
    source = sorted(detail_log(scale), key=lambda request: request["record_time"])

    records = convert(BurstGptLoad.of_scale(DATA, scale))

    for name, of in [
        ("prompt_tokens", "in_len"),
        ("ttft_s", "first_chunk_time"),
        ("e2e_s", "total_chunk_time"),
    ]:
        expected = [request[of] for request in source]
        np.testing.assert_allclose(column(records, name), expected, rtol=1e-6, atol=1e-5)
    since_first_s = np.diff(column(records, "end_s") - START_S)
    expected = np.diff([request["record_time"] for request in source])
    np.testing.assert_allclose(since_first_s, expected, atol=2e-5)


@needs_data
def test_no_number_of_answer_tokens_is_made_up():
    records = convert(BurstGptLoad.of_scale(DATA, 100))

    names = {name for batch in batches(records) for name in batch.requests.columns}
    assert {"prompt_tokens", "ttft_s", "decode_s", "e2e_s"} == names


@needs_data
def test_prompt_lengths_are_a_quarter_more_than_the_engine_counted():
    """As the module says of in_len: another tokenizer than the model's."""
    for scale in (100, 500, 1500):
        rows = read_csv(BurstGptLoad.of_scale(DATA, scale).vllm_log)
        counted = float(np.sum(rows["prompt_throughput"][1:] * np.diff(rows["timestamp"])))
        logged = sum(request["in_len"] for request in detail_log(scale))

        assert pytest.approx(logged / counted, abs=0.01) == 1.25


@needs_data
@pytest.mark.parametrize("scale", [100, 1500])
def test_running_and_waiting_are_the_requests_in_flight(scale):
    source = detail_log(scale)
    ended_s = np.array([request["record_time"] for request in source])
    began_s = ended_s - [request["total_chunk_time"] for request in source]
    origin_s = read_csv(BurstGptLoad.of_scale(DATA, scale).vllm_log)["timestamp"][0]

    differences = []
    for batch in batches(convert(BurstGptLoad.of_scale(DATA, scale))):
        now_s = origin_s + batch.end_s - START_S
        in_flight = int(np.sum((began_s <= now_s) & (ended_s > now_s)))
        differences.append(batch.gauges["running"] + batch.gauges["waiting"] - in_flight)

    assert np.mean(np.abs(differences)) < 2.0


@needs_data
def test_an_idle_engine_sends_its_gauges_too():
    """The engine's log of this load is silent for a minute; the stream is not."""
    records = batches(convert(BurstGptLoad.of_scale(DATA, 100)))

    silent = [b for b in records if 215.0 < b.end_s - START_S < 265.0]
    assert len(silent) == 99
    assert {0.0} == {value for batch in silent for value in batch.gauges.values()}


@needs_data
def test_several_loads_are_one_continuous_stream():
    records = convert(*(BurstGptLoad.of_scale(DATA, scale) for scale in (100, 100, 2000)))

    sent = batches(records)
    times = [record_time_s(record) for record in records]
    assert times == sorted(times)
    assert list(range(len(sent))) == [batch.source.seq for batch in sent]
    assert all(before.end_s == after.start_s for before, after in pairwise(sent))
    assert sum(batch.requests.rows for batch in sent) == 1500


@needs_data
def test_the_demo_recordings_can_be_made_again(tmp_path):
    counts = write_demo_recordings(DATA, tmp_path)

    assert [path.name for path in counts] == RECORDINGS
    for path, records in counts.items():
        made = [line.value for line in read_lines(path)]
        assert records == len(made)
        assert [line.value for line in read_lines(DEMO / path.name)] == made


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_demo_record_is_faultless_in_both_forms(name):
    for line in read_lines(DEMO / name):
        record, faults = decode(line.value)
        packed, packed_faults = decode(encode_msgpack(record))

        assert (faults, packed_faults) == ((), ())
        assert line.value == encode_json(record) == encode_json(packed)


@pytest.mark.parametrize("name", RECORDINGS)
def test_demo_times_ascend_and_rows_lie_within_their_batch(name):
    records = demo_records(name)

    times = [record_time_s(record) for record in records]
    assert times == sorted(times)
    for batch in batches(records):
        ends_s = batch.requests.end_s
        assert np.all((batch.start_s <= ends_s) & (ends_s <= batch.end_s))
        assert batch.end_s == batch.logged_s


@pytest.mark.parametrize("name", RECORDINGS)
def test_nothing_in_a_demo_recording_is_missing_or_impossible(name):
    for batch in batches(demo_records(name)):
        numbers = [*batch.gauges.values()]
        numbers += [float(v) for values in batch.requests.columns.values() for v in values]
        assert np.all(np.isfinite(numbers))
        assert min(numbers) >= 0.0
        assert batch.gauges["kv_usage"] <= 1.0


def test_the_light_demo_is_one_load_of_one_engine():
    records = demo_records("light.jsonl.gz")

    assert column(records, "e2e_s").size == 500
    assert {("llama-3.2-1b", "gpu-0")} == {(r.source.model, r.source.engine) for r in records}
    assert 420.0 < record_time_s(records[-1]) - DEMO_START_S <= 421.0


def test_one_of_two_demo_engines_is_overloaded_and_recovers():
    records = demo_records("light_to_overload.jsonl.gz")
    by_engine = {
        engine: [r for r in batches(records) if r.source.engine == engine]
        for engine in ("gpu-0", "gpu-1")
    }
    engines = Counter(record.source.engine for record in records)

    assert set(by_engine) == set(engines)
    assert column(by_engine["gpu-0"], "ttft_s").size == 3000
    queueing = [batch.end_s for batch in by_engine["gpu-0"] if batch.gauges["waiting"] > 10]
    assert min(queueing) > DEMO_START_S + 3 * 421
    assert max(queueing) < DEMO_START_S + 3 * 421 + 138
    assert max(batch.gauges["waiting"] for batch in by_engine["gpu-1"]) < 10
    assert 80.0 < column(by_engine["gpu-0"], "ttft_s").max() < 90.0
    assert column(by_engine["gpu-1"], "ttft_s").max() < 0.5
    assert by_engine["gpu-0"][-1].end_s == by_engine["gpu-1"][-1].end_s


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_demo_recording_is_small(name):
    assert (DEMO / name).stat().st_size < 300_000
