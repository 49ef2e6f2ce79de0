"""Prometheus text of engines: what is read of it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.metrics_scrape import Naming, since_the_start
from connectors.metrics_text import EngineKey, read_metrics
from daom.codec import decode, encode_json
from daom.errors import SourceError
from tests.connectors.metrics_server import SAMPLE

T0 = 1_766_000_000.0
TINY = EngineKey("tiny", "0")


def reading(text):
    """What the only engine of ``text`` shows."""
    (found,) = read_metrics(text, T0).engines.values()
    return found


def histogram(name, counts, labels='model_name="m"'):
    """A histogram as Prometheus shows it, of samples in each bucket."""
    lines, up_to = [f"# TYPE {name} histogram"], 0
    for edge, count in counts.items():
        up_to += count
        lines.append(f'{name}_bucket{{le="{edge}",{labels}}} {up_to}.0')
    return "\n".join([*lines, f"{name}_count{{{labels}}} {up_to}.0", f"{name}_sum{{{labels}}} 1.5"])


def test_a_real_vllm_is_read():
    scrape = read_metrics(SAMPLE.read_text("utf-8"), T0)

    found = scrape.engines[TINY]
    assert list(scrape.engines) == [TINY]
    assert scrape.started_s == 1796132098.7
    assert list(found.histograms) == ["ttft_s", "itl_s", "e2e_s"]
    assert {column: sum(c.values()) for column, c in found.histograms.items()} == {
        "ttft_s": 145,
        "itl_s": 28_467,
        "e2e_s": 145,
    }
    assert list(found.histograms["ttft_s"])[-2:] == [2560.0, math.inf]
    assert found.totals["prompt_tokens"] == (10_131.0, 145.0)
    assert found.numbers == {
        "running": 0.0,
        "waiting": 0.0,
        "kv_usage": 0.0,
        "preemptions_total": 0.0,
        "prefix_queries_total": 10_131.0,
        "prefix_hits_total": 0.0,
        "prompt_tokens_total": 10_131.0,
        "generation_tokens_total": 28_612.0,
        "finished_total": 145.0,
        "finished_stop_total": 0.0,
        "finished_length_total": 145.0,
        "finished_abort_total": 0.0,
        "finished_error_total": 0.0,
        "finished_repetition_total": 0.0,
    }


def test_counts_are_of_a_bucket_alone():
    counts = {"0.1": 3, "0.5": 0, "+Inf": 2}

    found = reading(histogram("vllm:time_to_first_token_seconds", counts))

    assert found.histograms["ttft_s"] == {0.1: 3, 0.5: 0, math.inf: 2}


def test_a_bucket_up_to_zero_is_a_part_of_the_next():
    found = reading(histogram("vllm:time_to_first_token_seconds", {"0.0": 1, "0.5": 2, "+Inf": 0}))

    assert found.histograms["ttft_s"] == {0.5: 3, math.inf: 0}


def test_an_older_vllm_counts_the_same_under_another_name():
    old = histogram("vllm:time_per_output_token_seconds", {"0.1": 3, "+Inf": 0})
    new = histogram("vllm:inter_token_latency_seconds", {"0.1": 5, "+Inf": 0})
    usage = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.25'

    assert reading(old).histograms["itl_s"][0.1] == 3
    assert reading(f"{old}\n{new}").histograms["itl_s"][0.1] == 5
    assert reading(usage).numbers == {"kv_usage": 0.25}


SGLANG = """
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m"} 800.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 700.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{model_name="m",cache_source="device"} 200.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 50.0
sglang:cached_tokens_total{model_name="m",cache_source="total"} 250.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{model_name="m"} 9.0
# TYPE sglang:num_aborted_requests_total counter
sglang:num_aborted_requests_total{model_name="m"} 1.0
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{model_name="m",tp_rank="0"} 4.0
sglang:num_retracted_requests_total{model_name="m",tp_rank="1"} 4.0
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="1"} 3.0
sglang:num_running_reqs{model_name="m",dp_rank="1",tp_rank="0"} 5.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m"} 2.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m",dp_rank="0"} 0.2
sglang:token_usage{model_name="m",dp_rank="1"} 0.4
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{model_name="m"} 0.3
"""


def test_sglang_is_read_its_ranks_once_and_its_replicas_together():
    buckets = {"0.1": 2, "0.2": 7, "+Inf": 0}
    shown = "\n".join(
        histogram(f"sglang:{name}", buckets)
        for name in (
            "time_to_first_token_seconds",
            "inter_token_latency_seconds",
            "e2e_request_latency_seconds",
            "queue_time_seconds",
        )
    )

    scrape = read_metrics(f"{SGLANG}\n{shown}\n", T0)

    found = scrape.engines[EngineKey("m", None)]
    assert scrape.started_s is None
    assert set(found.histograms) == {"ttft_s", "itl_s", "e2e_s"}
    assert found.totals == {"queue_s": (1.5, 9.0)}
    assert found.numbers == pytest.approx(
        {
            "running": 8.0,
            "waiting": 2.0,
            "kv_usage": 0.3,
            "prefix_hit_ratio": 0.3,
            "preemptions_total": 4.0,
            "prefix_hits_total": 250.0,
            "prefix_queries_total": 800.0,
            "prompt_tokens_total": 800.0,
            "generation_tokens_total": 700.0,
            "finished_total": 9.0,
            "finished_abort_total": 1.0,
        }
    )


def test_families_that_are_missing_are_left_out():
    found = reading('vllm:num_requests_running{model_name="m",engine="0"} 3.0\n')

    assert (found.histograms, found.totals, found.numbers) == ({}, {}, {"running": 3.0})


def test_several_engines_and_models_are_kept_apart():
    lines = [
        f'vllm:num_requests_running{{model_name="{model}",engine="{engine}"}} {number}'
        for number, (model, engine) in enumerate([("a", "0"), ("a", "1"), ("b", "0")])
    ]

    found = read_metrics("\n".join(lines), T0).engines

    assert [key.engine for key in found] == ["0", "1", "0"]
    assert found[EngineKey("a", "1")].numbers == {"running": 1.0}


NONSENSE = {
    "a page": "<html><body>404</body></html>",
    "JSON": '{"status": "ok"}',
    "words": "hello world",
    "half a line": 'vllm:num_requests_running{model_name="m',
    "a bucket of what": 'vllm:time_to_first_token_seconds_bucket{model_name="m",le="x"} 3',
}


@pytest.mark.parametrize("text", NONSENSE.values(), ids=NONSENSE)
def test_what_is_no_prometheus_text_is_refused(text):
    with pytest.raises(SourceError, match="not Prometheus text"):
        read_metrics(text, T0)


@pytest.mark.parametrize("text", ["", "process_start_time_seconds 1.0", "node_load1 0.5"])
def test_another_programs_metrics_are_refused_with_what_is_missing(text):
    with pytest.raises(SourceError, match=r"vllm:.*--enable-metrics"):
        read_metrics(text, T0)


@st.composite
def damaged(draw):
    """What a real vLLM showed, with some characters changed, cut out or put in."""
    lines = SAMPLE.read_text("utf-8").splitlines()
    start = draw(st.integers(0, len(lines) - 1))
    text = "\n".join(lines[start : start + 40])
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 8))
        text = text[:place] + draw(st.text(max_size=4)) + text[place + length :]
    return text


@given(text=damaged() | st.text(max_size=60))
def test_a_damaged_answer_is_refused_or_makes_a_batch_that_can_be_read(text):
    try:
        found = read_metrics(text, T0)
    except SourceError:
        return
    for batch in since_the_start(Naming("e"), found):
        decode(encode_json(batch))
