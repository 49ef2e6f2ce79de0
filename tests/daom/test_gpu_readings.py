"""Readings of GPUs, however a tool names them, become one number each."""

import pytest

from daom.gpu_readings import counters, readings

HOT = {"temperature_c": 88.0}


@pytest.mark.parametrize("name", ["sm_clock_mhz", "temperature_c", "power_w"])
def test_an_impossible_zero_is_no_measurement(name):
    assert readings([{name: 0.0, "utilization": 0.0}]) == {"utilization": 0.0}


def test_of_several_gpus_the_worst_counts_and_of_the_rest_the_mean():
    found = readings(
        [
            {"sm_clock_mhz": 1_200.0, "temperature_c": 70.0, "utilization": 0.2},
            {"sm_clock_mhz": 1_800.0, "temperature_c": 80.0, "utilization": 0.4},
        ]
    )

    assert found["sm_clock_mhz"] == 1_200.0
    assert found["temperature_c"] == 80.0
    assert found["utilization"] == pytest.approx(0.3)


def test_one_gpu_that_is_lost_or_has_an_xid_is_one_too_many():
    assert readings([{"lost": 1, "xid": 79}, {"lost": 0, "xid": 0}]) == {"lost": 1.0, "xid": 79.0}


def test_counters_are_kept_apart_by_gpu():
    gpus = [{"uuid": "GPU-1", "xid_total": 2, "power_w": 90.0}, {"xid_total": 1, "lost": 0}]

    assert counters(gpus) == {("GPU-1", "xid_total"): 2.0, ("1", "xid_total"): 1.0}
    assert readings(gpus) == {"power_w": 90.0, "lost": 0.0}


FLAGS = {
    # What a GPU reports, and the flag that makes
    "a flag": ({"throttle_thermal": 1.0}, 1.0),
    "no flag": ({"throttle_thermal": 0.0}, 0.0),
    "a mask of software heat": ({"clocks_event_reasons": 0x20}, 1.0),
    "a mask of hardware heat among others": ({"clocks_throttle_reasons_active": 0x4C}, 1.0),
    "a mask of power and idleness": ({"clocks_event_reasons": 0x5}, 0.0),
    "words": ({"clocks_event_reasons": "SW Thermal Slowdown"}, 1.0),
    "other words": ({"clocks_event_reasons": "SW Power Cap"}, 0.0),
    "nvidia-smi": ({"sw_thermal_slowdown": "Active"}, 1.0),
    "nvidia-smi, not": ({"hw_thermal_slowdown": "Not Active"}, 0.0),
    "a reason of its own": ({"clocks_event_reasons.sw_thermal_slowdown": "Active"}, 1.0),
    "without a reason, hot": (HOT | {"hw_slowdown": 1.0}, 1.0),
    "without a reason, cool": ({"temperature_c": 60.0, "throttled": 1.0}, 0.0),
    "for power": (HOT | {"power_throttled": 1.0}, None),
    "a temperature at which it would": (HOT | {"slowdown_threshold_c": 92.0}, None),
    "nothing of the kind": (HOT, None),
}


@pytest.mark.parametrize(("gpu", "flag"), FLAGS.values(), ids=FLAGS)
def test_whether_heat_slows_a_gpu_is_understood(gpu, flag):
    assert readings([gpu]).get("throttle_thermal") == flag


def test_no_gpus_say_nothing():
    assert readings([]) == {}
