"""Heat: a GPU that slows its clock is reported before latency shows it; power at its limit is not.

Figures of a report from the field, 0 to 105 s: 58 °C idle, 85, 90 and the slowdown flag; SM clock
1,215, 1,200, 1,155 MHz; power 140 of 140 W all the time.
"""

import pytest

from daom.events import GpuSample
from tests.daom.stories import (
    LEARNED_MINUTES,
    Load,
    alerts,
    at,
    briefly,
    by_time,
    calm,
    chapter,
    outputs,
    slower,
    source,
    story,
    triggers,
)

NOW = LEARNED_MINUTES
ONE = ("e1",)
COOL = {"sm_clock_mhz": 1_215.0, "temperature_c": 58.0, "throttle_thermal": 0.0}
WARM = {"sm_clock_mhz": 1_200.0, "temperature_c": 85.0, "throttle_thermal": 0.0}
THROTTLED = {"sm_clock_mhz": 1_155.0, "temperature_c": 90.0, "throttle_thermal": 1.0}
AT_LIMIT = {"power_w": 140.0, "power_limit_w": 140.0}


def gpus(*told, engine="e1"):
    """Readings every five seconds: minutes of each of ``told``, one after the other."""
    samples, time_s = [], at(0.0)
    for minutes, *readings in told:
        for _ in range(round(minutes * 12.0)):
            each = tuple(AT_LIMIT | reading for reading in readings)
            samples.append(GpuSample(source=source(engine), time_s=time_s, gpus=each))
            time_s += 5.0
    return samples


def said_of(readings, *chapters, engines=ONE):
    return outputs(by_time(story(*chapters, engines=engines), readings))


def throttled(said):
    return [a for a in alerts(said) if a.name == "GpuThrottled"]


@pytest.fixture(scope="module")
def heat():
    """Hot from minute 16 on, throttled from 17 to 27; tokens slow from 20 to 27."""
    readings = gpus((16, COOL), (1, WARM), (10, THROTTLED), (6, COOL))
    slow = chapter(7, Load(itl=1.6))
    return said_of(readings, calm(20), slow, calm(6))


def test_a_gpu_that_heat_slows_is_reported_before_latency_shows_it(heat):
    firing, resolved = throttled(heat)
    drift = next(a for a in alerts(heat, "firing") if a.name == "LatencyDrift")

    assert (firing.state, firing.labels["severity"]) == ("firing", "warning")
    assert at(17) < firing.event_time_s <= at(18.5) < drift.event_time_s
    assert (resolved.state, resolved.event_time_s <= at(29)) == ("resolved", True)


def test_clock_and_flag_are_the_evidence(heat):
    [firing, _] = throttled(heat)

    assert "SM clock 1214 -> 1155 MHz" in firing.annotations["evidence"]
    assert "thermal flag 0 -> 1" in firing.annotations["evidence"]


def test_heat_is_the_cause_of_the_slow_tokens_that_follow(heat):
    trigger = next(t for t in triggers(heat) if t.name == "LatencyDrift")

    cause = trigger.causes[0]
    assert cause.cause == "gpu_thermal"
    assert "gpu_sm_clock_mhz 1.21e+03 -> 1.16e+03" in cause.evidence
    assert "gpu_throttle_thermal 0 -> 1" in cause.evidence


UNHARMED = {
    # Readings of ten minutes that raise nothing.
    "power at its limit": COOL,
    "hot, and as fast as ever": COOL | {"temperature_c": 89.0},
    "a slower clock at the power limit": WARM | {"sm_clock_mhz": 1_100.0},
    "a flag that costs no clock": COOL | {"throttle_thermal": 1.0},
    "a mask that says power": COOL | {"sm_clock_mhz": 1_100.0, "clocks_event_reasons": 4.0},
}


@pytest.mark.parametrize("reading", UNHARMED.values(), ids=UNHARMED)
def test_a_gpu_that_heat_does_not_slow_raises_nothing(reading):
    said = said_of(gpus((16, COOL), (10, reading)), calm(26))

    assert [a for a in alerts(said) if a.state != "pending"] == []


@pytest.mark.parametrize("reading", [COOL, WARM], ids=["cool", "warm"])
def test_power_at_its_limit_is_blamed_for_nothing(reading):
    slow = chapter(8, slower(1.6))

    said = said_of(gpus((16, COOL), (12, reading)), calm(20), slow)

    assert triggers(said)
    assert not {c.cause for t in triggers(said) for c in t.causes} & {"gpu_thermal", "gpu_clock"}


WORDS = {
    # As tools name it
    "nvml's mask": {"clocks_throttle_reasons": 0x20},
    "nvml's mask, hardware": {"clocks_event_reasons": 0x40 | 0x8},
    "words": {"clocks_event_reasons": "SW Power Cap, SW Thermal Slowdown"},
    "nvidia-smi": {"hw_thermal_slowdown": "Active"},
    "a flag without a reason on a hot gpu": {"throttled": 1.0},
    "a slowdown flag on a hot gpu": {"hw_slowdown": 1.0},
}


@pytest.mark.parametrize("flag", WORDS.values(), ids=WORDS)
def test_the_flag_may_be_named_as_any_tool_names_it(flag):
    hot = {"sm_clock_mhz": 1_155.0, "temperature_c": 90.0} | flag
    cool = COOL | {name: "" if isinstance(value, str) else 0 for name, value in flag.items()}

    said = said_of(gpus((16, cool), (3, hot)), calm(19))

    assert briefly(throttled(said)) == [("GpuThrottled", "e1", "", "firing")]


def test_one_hot_gpu_of_eight_slows_its_engine():
    cool, hot = (COOL,) * 8, (THROTTLED, *(COOL,) * 7)

    said = said_of(gpus((16, *cool), (3, *hot)), calm(19))

    assert briefly(throttled(said)) == [("GpuThrottled", "e1", "", "firing")]


def test_a_flag_that_shows_for_a_moment_raises_nothing():
    readings = gpus((16, COOL), (0.25, THROTTLED), (4, COOL))

    assert throttled(said_of(readings, calm(20))) == []


def test_a_flag_that_flickers_is_one_alert():
    flickers = [(0.25, THROTTLED), (0.083, COOL)] * 20

    said = said_of(gpus((16, COOL), *flickers), calm(22))

    assert briefly(throttled(said)) == [("GpuThrottled", "e1", "", "firing")]


def test_a_gpu_that_is_no_longer_read_has_not_recovered():
    said = said_of(gpus((16, COOL), (3, THROTTLED)), calm(30))

    assert briefly(throttled(said)) == [("GpuThrottled", "e1", "", "firing")]


def test_heat_never_becomes_the_usual_clock():
    said = said_of(gpus((16, COOL), (120, THROTTLED)), calm(136))

    assert briefly(throttled(said)) == [("GpuThrottled", "e1", "", "firing")]
