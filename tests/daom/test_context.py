"""The circumstances of an engine: what is usual, and how far from it the newest panes are."""

import numpy as np
import pytest

from daom.context import ContextState, Level, mean_shifts
from daom.events import GpuSample, Source
from tests.daom.stories import T0, batch, table

PANE_S = 10.0


def context(*panes, calm=True):
    """The circumstances after ``panes``, each a list of batches' gauges."""
    state = ContextState()
    for gauges in panes:
        for each in gauges:
            state.take_batch(batch("e1", T0, gauges=each))
        state.close_pane(PANE_S, calm=calm)
    return state


def recent(state, name):
    """The value of each pane."""
    return state.levels[name].recent


def test_a_gauge_is_averaged_over_its_pane():
    state = context([{"kv_usage": 0.2}, {"kv_usage": 0.4}], [{"kv_usage": 0.9}])

    assert recent(state, "kv_usage") == pytest.approx([0.3, 0.9])


def test_a_pane_without_readings_says_nothing():
    state = context([{"kv_usage": 0.2}], [], [{"kv_usage": 0.4}])

    assert recent(state, "kv_usage") == [0.2, 0.4]


# Counters

COUNTERS = {
    "rises": ([100.0, 130.0, 150.0], [0.0, 3.0, 2.0]),
    "stands": ([100.0, 100.0], [0.0, 0.0]),
    "starts again": ([100.0, 130.0, 20.0, 50.0], [0.0, 3.0, 2.0, 3.0]),
    "starts again at zero": ([100.0, 0.0, 10.0], [0.0, 0.0, 1.0]),
}


@pytest.mark.parametrize(("readings", "per_s"), COUNTERS.values(), ids=COUNTERS)
def test_a_counter_counts_what_it_rose_by(readings, per_s):
    state = context(*([{"preemptions_total": reading}] for reading in readings))

    assert recent(state, "preemptions_per_s") == per_s


def test_a_counter_read_often_in_a_pane_counts_once():
    state = context([{"preemptions_total": 0.0}], [{"preemptions_total": n} for n in (10.0, 20.0)])

    assert recent(state, "preemptions_per_s")[-1] == 2.0


def test_the_hit_ratio_is_that_of_the_newest_queries_not_of_a_lifetime():
    lifetime = {"prefix_queries_total": 1e6, "prefix_hits_total": 0.85e6}
    newest = {"prefix_queries_total": 1e6 + 200.0, "prefix_hits_total": 0.85e6 + 10.0}

    state = context([lifetime], [newest])

    assert recent(state, "prefix_hit_ratio") == [pytest.approx(0.05)]


def test_without_queries_there_is_no_hit_ratio():
    state = context(*([{"prefix_queries_total": 5.0, "prefix_hits_total": 3.0}] for _ in range(3)))

    assert "prefix_hit_ratio" not in state.levels


# Requests and arrivals


def test_request_columns_are_averaged_over_what_was_measured():
    state = ContextState()
    rows = table([T0] * 3, prompt_tokens=[100.0, np.nan, 300.0], queue_s=[np.nan] * 3)
    state.take_batch(batch("e1", T0, requests=rows))
    state.close_pane(PANE_S, calm=True)

    assert recent(state, "prompt_tokens") == [200.0]
    assert "queue_s" not in state.levels


def arrivals(*panes):
    """The arrival rate of panes of (requests finished, running, waiting)."""
    state = ContextState()
    for finished, running, waiting in panes:
        gauges = {"running": running, "waiting": waiting}
        rows = table([T0] * finished, ttft_s=[0.1] * finished)
        state.take_batch(batch("e1", T0, requests=rows, gauges=gauges))
        state.close_pane(PANE_S, calm=True)
    return recent(state, "arrivals_per_s")


def test_what_arrives_has_either_finished_or_is_in_flight():
    assert arrivals((0, 5.0, 0.0), (20, 5.0, 0.0), (20, 5.0, 30.0)) == [2.0, 5.0]


def test_requests_that_vanish_are_no_negative_arrivals():
    assert arrivals((0, 50.0, 0.0), (0, 0.0, 0.0)) == [0.0]


# GPUs


def gpu_pane(state, *readings, calm=True):
    """Close a pane in which the engine's GPUs were read once."""
    state.take_gpus(GpuSample(source=Source(model="m"), time_s=T0, gpus=readings))
    state.close_pane(PANE_S, calm=calm)


def test_an_engine_is_as_hot_as_its_hottest_gpu_and_as_fast_as_its_slowest():
    state = ContextState()
    gpu_pane(
        state,
        {"uuid": "GPU-1", "temperature_c": 60.0, "sm_clock_mhz": 1_200.0, "power_w": 100.0},
        {"uuid": "GPU-2", "temperature_c": 80.0, "sm_clock_mhz": 1_800.0, "power_w": 140.0},
    )

    assert recent(state, "gpu_temperature_c") == [80.0]
    assert recent(state, "gpu_sm_clock_mhz") == [1_200.0]
    assert recent(state, "gpu_power_w") == [120.0]
    assert "gpu_uuid" not in state.levels


def test_what_a_gpu_does_while_heat_slows_it_never_becomes_usual():
    state = ContextState()
    gpu_pane(state, {"sm_clock_mhz": 1_875.0, "throttle_thermal": 0.0})
    for _ in range(100):
        gpu_pane(state, {"sm_clock_mhz": 1_155.0, "throttle_thermal": 1.0})

    assert state.levels["gpu_sm_clock_mhz"].usual == 1_875.0


def test_counters_of_gpus_become_rates_each_gpus_its_own():
    state = ContextState()
    one, two = {"uuid": "GPU-1", "errors_total": 4}, {"uuid": "GPU-2", "errors_total": 1_000}
    gpu_pane(state, one, two)
    one, two = {**one, "errors_total": 14}, {**two, "errors_total": 1_030}
    gpu_pane(state, one, two)
    gpu_pane(state, two)

    assert recent(state, "gpu_errors_per_s") == [0.0, 4.0, 0.0]


def test_a_gpu_counter_that_reads_zero_for_a_while_has_not_risen_when_it_is_back():
    state = ContextState()
    for counted in (50, 0, 50, 52):
        gpu_pane(state, {"uuid": "GPU-1", "ecc_corrected_total": counted})

    assert recent(state, "gpu_ecc_corrected_per_s") == [0.0, 0.0, 0.0, 0.2]


def test_a_gpu_counter_that_was_restarted_counts_from_zero():
    state = ContextState()
    for counted in (50, 0, 5):
        gpu_pane(state, {"uuid": "GPU-1", "ecc_corrected_total": counted})

    assert recent(state, "gpu_ecc_corrected_per_s") == [0.0, 0.0, 0.5]


# The gap between tokens, told by steps and by requests


def gaps(requests=None, steps=None, gauges=None):
    """The levels after one batch."""
    state = ContextState()
    tables = {
        name: table([T0] * len(next(iter(columns.values()))), **columns)
        for name, columns in (("requests", requests), ("steps", steps))
        if columns is not None
    }
    state.take_batch(batch("e1", T0, gauges={"preemptions_total": 0.0}))
    state.take_batch(batch("e1", T0, gauges=gauges or {}, **tables))
    state.close_pane(PANE_S, calm=True)
    return {name: level.recent[-1] for name, level in state.levels.items()}


REQUESTS = {"ttft_s": [0.1, 0.3], "e2e_s": [1.1, 2.3], "output_tokens": [51.0, 51.0]}
STEPS = {"itl_s": [0.02, 0.04], "running": [2.0, 6.0], "tokens": [2.0, 6.0]}


def test_requests_tell_the_mean_gap_between_tokens():
    assert gaps(REQUESTS)["request_itl_s"] == pytest.approx(3.0 / 100.0)


def test_answers_of_one_token_and_what_was_not_measured_tell_no_gap():
    odd = {"ttft_s": [0.1, 0.3, 0.2, np.nan], "e2e_s": [1.1, 2.3, 0.2, 9.0]}

    found = gaps(odd | {"output_tokens": [51.0, 51.0, 1.0, 51.0]})

    assert found["request_itl_s"] == pytest.approx(3.0 / 100.0)
    assert found["decoding_s"] == pytest.approx(1.5)


STEP_GAPS = {
    "each counts for who waited": (STEPS, 0.28 / 8.0),
    "three tokens for each": (STEPS | {"tokens": [6.0, 18.0]}, 0.28 / 24.0),
    "by tokens alone": ({"itl_s": [0.02, 0.04], "tokens": [2.0, 6.0]}, 0.28 / 8.0),
    "by steps alone": ({"itl_s": [0.02, 0.04]}, 0.03),
    "not all measured": (STEPS | {"itl_s": [0.02, np.nan]}, 0.02),
}


@pytest.mark.parametrize(("steps", "expected"), STEP_GAPS.values(), ids=STEP_GAPS)
def test_steps_tell_the_mean_gap_between_tokens(steps, expected):
    assert gaps(REQUESTS, steps)["step_itl_s"] == pytest.approx(expected)


def test_without_requests_there_is_no_gap_to_compare_with():
    assert "step_itl_s" not in gaps(steps=STEPS)


def test_the_two_gaps_are_compared():
    assert gaps(REQUESTS, STEPS)["itl_ratio"] == pytest.approx(0.035 / 0.03)


@pytest.mark.parametrize(
    ("column", "gauges"),
    [({"preemptions": [0.0, 2.0]}, {}), ({}, {"preemptions_total": 3.0})],
    ids=["by their column", "by the counter"],
)
def test_requests_that_were_preempted_are_not_compared(column, gauges):
    assert "itl_ratio" not in gaps(REQUESTS | column, STEPS, gauges)


# What is usual


def usual(values, *, calm=True):
    level = Level(usual=values[0])
    for value in values:
        level.observe(value, calm=calm)
    return level


def test_the_usual_level_and_spread_are_those_of_the_calm_panes():
    rng = np.random.default_rng(1)

    level = usual(rng.normal(10.0, 1.0, 300).tolist())

    assert level.usual == pytest.approx(10.0, abs=0.2)
    assert level.shift(1).sigma == pytest.approx(1.0, rel=0.25)


def test_while_the_engine_is_agitated_nothing_becomes_usual():
    level = usual([10.0] * 100)

    for _ in range(100):
        level.observe(50.0, calm=False)

    assert level.usual == 10.0
    assert level.shift(10).now == 50.0


def test_slow_change_becomes_usual():
    level = usual([10.0] * 360)

    for _ in range(2_000):
        level.observe(12.0, calm=True)

    assert level.usual == pytest.approx(12.0, abs=0.02)


@pytest.mark.parametrize(("now", "sign"), [(20.0, 1.0), (5.0, -1.0), (10.0, 0.0)])
def test_a_shift_has_a_direction(now, sign):
    level = usual([9.9, 10.1] * 50)

    for _ in range(6):
        level.observe(now, calm=False)

    assert np.sign(round(level.shift(6).z, 1)) == sign


def test_a_level_that_never_moved_needs_more_than_a_trifle_to_be_notable():
    level = usual([10.0] * 100)
    level.observe(10.5, calm=False)

    assert level.shift(1).z == pytest.approx(1.0)


def test_a_short_peak_is_seen_although_the_mean_hides_it():
    level = usual([1.0] * 100)
    for value in (1.0, 9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0):
        level.observe(value, calm=False)

    shift = level.shift(9)

    assert shift.peak == 9.0
    assert shift.now == pytest.approx(33.0 / 9.0)


def test_a_peak_just_before_the_onset_counts_and_one_long_before_does_not():
    level = usual([1.0] * 100)
    for value in (9.0, 9.0, 9.0, *[1.0] * 8):
        level.observe(value, calm=False)

    assert level.shift(2).peak == 9.0
    for _ in range(6):
        level.observe(1.0, calm=False)
    assert level.shift(2).peak == 1.0


def test_only_the_newest_panes_are_kept():
    assert len(usual([1.0] * 500).recent) == 60


def test_a_gauge_that_has_never_moved_is_known():
    still = context(*([{"kv_usage": 0.0}] for _ in range(20)))
    moving = context(*([{"kv_usage": value}] for value in (0.0, 0.0, 0.1, 0.0)))

    assert not mean_shifts([still], 3)["kv_usage"].has_moved
    assert mean_shifts([moving], 3)["kv_usage"].has_moved


def test_what_has_long_not_been_reported_is_no_evidence():
    state = context([{"waiting": 30.0}], *([{}] for _ in range(13)))

    assert "waiting" in mean_shifts([state], 1)
    state.close_pane(PANE_S, calm=True)
    assert "waiting" not in mean_shifts([state], 1)


def test_a_fleets_shift_is_the_mean_of_its_engines():
    calm = context(*([{"waiting": 0.0}] for _ in range(10)))
    busy = context(*([{"waiting": 30.0}] for _ in range(10)))

    assert mean_shifts([calm, busy], 1)["waiting"].now == 15.0


def test_a_quantity_that_one_engine_reports_is_that_engines():
    silent = context([{}])
    busy = context([{"waiting": 30.0}])

    assert mean_shifts([silent, busy], 1)["waiting"].now == 30.0
