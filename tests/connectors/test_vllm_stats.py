"""vLLM's statistics into batches: everything once, nothing invented."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.vllm_stats import EngineStats
from daom.codec import decode, encode_json, encode_msgpack
from daom.events import Source
from tests.connectors.vllm_recorded import finished, recorded, scheduler, step

SOURCE = Source(model="tiny", engine="e", boot="b", seq=1)
NOW_S = 1_796_132_000.0


def batch_of(*pairs, is_only_frontend=True, now_s=NOW_S):
    """The batch of steps, each a pair of scheduler's and iteration's statistics."""
    stats = EngineStats(is_only_frontend=is_only_frontend)
    for of_scheduler, of_iteration in pairs:
        stats.take(of_scheduler, of_iteration, now_s)
    return stats.batch(SOURCE, now_s - 1.0, now_s, {})


def batches_by_process(name):
    """One batch for each process and engine of a recording."""
    stats = {}
    calls = recorded(name)
    for call in calls:
        key = (call.pid, call.engine)
        held = stats.setdefault(key, EngineStats(is_only_frontend=name != "two_engines"))
        held.take(call.scheduler, call.iteration, call.wall_s)
    start_s, end_s = calls[0].wall_s - 1.0, calls[-1].wall_s
    return {key: held.batch(SOURCE, start_s, end_s, {}) for key, held in stats.items()}


# What a real engine said


def test_every_request_and_every_token_of_a_real_engine_is_reported():
    (batch,) = batches_by_process("statlogger_sample").values()

    assert batch.requests.rows == batch.gauges["finished_total"] == 24
    assert batch.gauges["first_tokens_total"] == 25  # One was aborted by its client.
    assert batch.steps.columns["tokens"].sum() == batch.gauges["generation_tokens_total"] == 2_382
    assert batch.gauges["prefix_queries_total"] == 1_326
    assert batch.requests.text["finish_reason"] == ["length"] * 24


def test_every_finished_request_of_a_real_engine_finds_its_own_time_to_first_token():
    (batch,) = batches_by_process("statlogger_sample").values()
    columns = batch.requests.columns
    # What the engine's own clock says of the way to the first token, less what the frontend adds.
    told_s = columns["queue_s"] + columns["prefill_s"]

    assert not np.isnan(columns["ttft_s"]).any()
    assert (columns["ttft_s"] >= told_s).all()
    decoding_s = columns["e2e_s"] - columns["ttft_s"]
    assert decoding_s == pytest.approx(columns["decode_s"], abs=0.05)


def test_two_processes_that_serve_two_engines_report_each_token_and_each_step_once():
    batches = batches_by_process("two_engines")
    steps_s = {
        engine: sum(
            int((~np.isnan(b.steps.columns["itl_s"])).sum())
            for (_, of_engine), b in batches.items()
            if of_engine == engine and "itl_s" in b.steps.columns
        )
        for engine in (0, 1)
    }

    assert len(batches) == 4
    assert sum(b.steps.columns["tokens"].sum() for b in batches.values()) == 4_000
    assert sum(b.requests.rows for b in batches.values()) == 40
    assert sum(b.requests.columns["output_tokens"].sum() for b in batches.values()) == 4_000
    # Both processes saw each of the 200 steps; one of them reports its gap.
    assert all(190 <= steps <= 205 for steps in steps_s.values())


@pytest.mark.parametrize("name", ["statlogger_sample", "two_engines"])
@pytest.mark.parametrize("encode", [encode_json, encode_msgpack])
def test_what_is_reported_is_taken_without_a_fault(name, encode):
    for batch in batches_by_process(name).values():
        assert decode(encode(batch)).faults == ()


# Whose time to first token


@given(
    waits_s=st.lists(st.floats(1e-3, 30.0), min_size=1, max_size=20),
    decoding_s=st.lists(st.floats(1e-3, 60.0), min_size=20, max_size=20),
)
def test_requests_that_overlap_each_get_their_own_time_to_first_token(waits_s, decoding_s):
    arrivals_s = [NOW_S + 0.1 * number for number in range(len(waits_s))]
    events = []
    for arrival_s, wait_s, rest_s in zip(arrivals_s, waits_s, decoding_s, strict=False):
        first_s = arrival_s + wait_s
        end_s = first_s + rest_s
        events.append((first_s, step(first_s, ttfts_s=[first_s - arrival_s])))
        done = finished(end_s - arrival_s, num_prompt_tokens=int(1e4 * wait_s))
        events.append((end_s, step(end_s, finished=[done])))
    events.sort(key=lambda event: event[0])

    columns = batch_of(*((None, each) for _, each in events)).requests.columns

    expected = {int(1e4 * wait_s): wait_s for wait_s in waits_s}
    for tokens, ttft_s in zip(columns["prompt_tokens"], columns["ttft_s"], strict=True):
        assert ttft_s == pytest.approx(expected[int(tokens)], abs=2e-4)


def test_a_request_whose_first_token_was_not_seen_has_no_time_to_first_token():
    columns = batch_of((None, step(NOW_S, finished=[finished(2.0)]))).requests.columns

    assert "ttft_s" not in columns
    assert columns["e2e_s"] == pytest.approx([2.0])


def test_requests_that_never_finish_do_not_fill_the_memory():
    stats = EngineStats()
    for number in range(70_000):
        stats.take(None, step(NOW_S + number, ttfts_s=[0.5]), NOW_S)

    assert len(stats._arrivals) == 65_536


@pytest.mark.parametrize(("reason", "name"), [(2, "abort"), (3, "error")])
def test_how_long_a_request_took_that_was_cut_short_is_not_said(reason, name):
    table = batch_of((None, step(NOW_S, finished=[finished(9.0, reason=reason)]))).requests

    assert "e2e_s" not in table.columns
    assert table.text["finish_reason"] == [name]


# Versions


def test_of_an_old_version_what_it_has_is_reported():
    old = SimpleNamespace(num_generation_tokens=1, inter_token_latencies_iter=[0.02])

    batch = batch_of((scheduler(running=3), old))

    assert batch.steps.end_s.tolist() == [NOW_S]
    assert batch.steps.columns["itl_s"] == pytest.approx([0.02])
    assert batch.gauges["running"] == 3.0


@pytest.mark.parametrize("odd", [None, "x", math.nan, math.inf, [], object()])
def test_fields_of_another_type_are_left_out(odd):
    request = finished(odd, tokens=odd, queued_time=odd, num_prompt_tokens=7)
    stats = scheduler(running=odd, waiting=odd, kv_cache_usage=odd, prefix_cache_stats=odd)

    batch = batch_of((stats, step(NOW_S, finished=[request], num_preempted_reqs=odd)))

    assert batch.requests.columns.keys() <= {"prompt_tokens"} | {"ttft_s"}
    assert decode(encode_msgpack(batch)).faults == ()


# Gauges


def test_deferred_requests_wait_too():
    batch = batch_of((scheduler(waiting=2, num_skipped_waiting_reqs=3), None))

    assert batch.gauges["waiting"] == 5.0


def test_the_gauges_of_an_idle_engine_are_its_last():
    stats = EngineStats()
    stats.take(scheduler(running=0), None, NOW_S)
    stats.batch(SOURCE, NOW_S - 1.0, NOW_S, {})

    assert not stats.has_news
    assert stats.batch(SOURCE, NOW_S, NOW_S + 2.0, {}).gauges["running"] == 0.0


def test_a_frontend_that_has_not_heard_of_the_scheduler_lately_says_nothing_of_it():
    stats = EngineStats(is_only_frontend=False)
    stats.take(scheduler(running=5), step(NOW_S, gaps_s=[0.02]), NOW_S)

    first = stats.batch(SOURCE, NOW_S - 1.0, NOW_S, {})
    second = stats.batch(SOURCE, NOW_S, NOW_S + 2.0, {})

    assert first.gauges["running"] == 5.0
    assert "running" not in second.gauges
    assert second.gauges["generation_tokens_total"] == 1.0


def test_an_adapter_that_runs_no_more_is_at_zero():
    batch = batch_of(
        (scheduler(running_lora_adapters={"a": 2, "b": 1}), None),
        (scheduler(running_lora_adapters={"b": 4}), None),
    )

    assert (batch.gauges["lora.a"], batch.gauges["lora.b"]) == (0.0, 4.0)


def test_of_many_adapters_as_many_are_named_as_a_batch_may_hold():
    """A batch with too many gauges would be refused whole."""
    stats = EngineStats()
    for number in range(200):
        running = {f"adapter-{number}": 2, "x" * 300: 1}
        stats.take(scheduler(running_lora_adapters=running), None, NOW_S)

    batch = stats.batch(SOURCE, NOW_S - 1.0, NOW_S, {})

    named = {name: n for name, n in batch.gauges.items() if name.startswith("lora.")}
    assert len(named) == 16
    assert (named["lora.adapter-199"], named["lora.adapter-198"]) == (2.0, 0.0)
    assert decode(encode_msgpack(batch)).faults == ()


def test_a_step_says_how_many_requests_were_preempted_in_it():
    batch = batch_of(
        (scheduler(), step(NOW_S, gaps_s=[0.02], num_preempted_reqs=0)),
        (scheduler(), step(NOW_S, gaps_s=[0.02], num_preempted_reqs=2)),
    )

    assert batch.steps.columns["preemptions"].tolist() == [0.0, 2.0]
    assert batch.gauges["preemptions_total"] == 2.0


def test_what_no_batch_can_be_made_of_does_not_come_again():
    stats = EngineStats()
    stats.take(scheduler(running=10**400), step(NOW_S, gaps_s=[0.02]), NOW_S)

    with pytest.raises(OverflowError):
        stats.batch(SOURCE, NOW_S - 1.0, NOW_S, {})

    assert not stats.has_news
    stats.take(scheduler(running=3), step(NOW_S, gaps_s=[0.02]), NOW_S)
    assert stats.batch(SOURCE, NOW_S - 1.0, NOW_S, {}).gauges["running"] == 3.0


def test_accepted_drafts_and_graph_modes_are_counted():
    graph = SimpleNamespace(runtime_mode="CUDAGraphMode.FULL", num_paddings=3)
    drafts = SimpleNamespace(num_drafts=2, num_draft_tokens=6, num_accepted_tokens=4)

    gauges = batch_of((scheduler(spec_decoding_stats=drafts, cudagraph_stats=graph), None)).gauges

    assert gauges["spec_accepted_tokens_total"] == 4.0
    assert gauges["cudagraph_full_steps_total"] == 1.0
    assert gauges["cudagraph_paddings_total"] == 3.0
