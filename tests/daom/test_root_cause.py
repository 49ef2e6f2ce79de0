"""Every suspect is named on its evidence, and nobody on less."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.context import Shift
from daom.events import Cause, ChangeEvent, Source
from daom.root_cause import MIN_SCORE, SUSPECTS, Evidence, rank_causes

ONSET_S = 1_766_000_000.0


def shift(usual, now, z=None, peak=None):
    """A quantity that usually varies by 5 %, was ``usual`` and is ``now``."""
    sigma = max(0.05 * abs(usual), 1e-9)
    return Shift(
        usual=usual,
        now=now,
        z=(now - usual) / sigma if z is None else z,
        peak=now if peak is None else peak,
        sigma=sigma,
    )


def evidence(signal="ttft_s", attribution="service", **fields):
    known = {"shifts": {}, "onset_s": ONSET_S} | fields
    return Evidence(signal=signal, attribution=attribution, **known)


def changed(kind, before_s, **fields):
    return ChangeEvent(source=Source(model="m"), kind=kind, time_s=ONSET_S - before_s, **fields)


def ranked(*args, **fields):
    return [cause.cause for cause in rank_causes(evidence(*args, **fields))]


GUILTY = {
    "queue_saturation": {"waiting": shift(0.2, 294.0), "queue_s": shift(0.01, 30.0)},
    "traffic_surge": {"arrivals_per_s": shift(2.0, 2.5, peak=6.0)},
    "kv_cache_saturation": {"kv_usage": shift(0.79, 0.989), "waiting": shift(0.0, 0.0)},
    "preemption": {"preemptions_per_s": shift(0.0, 4.0), "kv_usage": shift(0.8, 0.85)},
    "prefix_cache_misses": {"prefix_hit_ratio": shift(0.8, 0.1)},
    "gpu_thermal": {
        "gpu_sm_clock_mhz": shift(1875.0, 1155.0),
        "gpu_temperature_c": shift(60.0, 90.0),
    },
    "gpu_clock": {
        "gpu_sm_clock_mhz": shift(1875.0, 1200.0),
        "gpu_temperature_c": shift(60.0, 61.0),
    },
    "gpu_errors": {"gpu_xid": shift(0.0, 31.0)},
    "clock_jump": {"clock_jumps_per_s": shift(0.0, 0.0, peak=0.03)},
}


def test_a_lost_gpu_is_blamed():
    [found] = rank_causes(evidence(shifts={"gpu_lost": shift(0.0, 1.0)}))

    assert found.cause == "gpu_errors"


DEAD = replace(shift(0.0, 0.0), has_moved=False)


@pytest.mark.parametrize("cause", GUILTY)
def test_the_guilty_is_named_alone_with_its_evidence(cause):
    [found] = rank_causes(evidence(shifts=GUILTY[cause]))

    assert found.cause == cause
    assert found.score >= MIN_SCORE
    assert found.evidence


INNOCENT = {
    "nothing reported": {},
    "nothing moved": {"waiting": shift(3.0, 3.0), "kv_usage": shift(0.5, 0.5)},
    "a queue of less than one": {"waiting": shift(0.01, 0.5)},
    "a queue that is usual": {"waiting": shift(50.0, 52.0)},
    "a queue within its usual spread": {"waiting": shift(50.0, 90.0, z=2.0)},
    "a little more traffic": {"arrivals_per_s": shift(2.0, 2.4)},
    "less traffic": {"arrivals_per_s": shift(2.0, 0.5)},
    "a full cache as always": {"kv_usage": shift(0.97, 0.97)},
    "a cache that is filling": {"kv_usage": shift(0.4, 0.9)},
    "more prefix hits": {"prefix_hit_ratio": shift(0.4, 0.8)},
    "power at its limit, the clock steady": {
        "gpu_power_w": shift(100.0, 140.0),
        "gpu_sm_clock_mhz": shift(1875.0, 1870.0),
    },
    "the flag says that a hot gpu's slower clock is not the heat's": {
        "gpu_sm_clock_mhz": shift(1_875.0, 1_850.0),
        "gpu_temperature_c": shift(60.0, 88.0),
        "gpu_throttle_thermal": shift(0.0, 0.0),
    },
    "a queue for a moment, its gauge dead": {"waiting": DEAD, "queue_s": shift(0.001, 0.01)},
    "no clock was set": {"clock_jumps_per_s": shift(0.0, 0.0)},
    "hot as always": {"gpu_temperature_c": shift(85.0, 85.0)},
    "a faster clock": {"gpu_sm_clock_mhz": shift(1200.0, 1875.0)},
}


@pytest.mark.parametrize("shifts", INNOCENT.values(), ids=INNOCENT)
def test_nobody_is_blamed_without_evidence(shifts):
    [only] = rank_causes(evidence(shifts=shifts))

    assert (only.cause, only.score) == ("unknown", 0.0)


def test_longer_requests_are_blamed_only_where_the_workload_is():
    shifts = {"prompt_tokens": shift(800.0, 2_400.0)}

    assert ranked(attribution="workload", shifts=shifts) == ["longer_requests"]
    assert ranked(attribution="mixed", shifts=shifts) == ["longer_requests"]
    assert ranked(attribution="service", shifts=shifts) == ["unknown"]


def test_prefix_misses_are_not_blamed_for_decoding():
    assert ranked("itl_s", shifts=GUILTY["prefix_cache_misses"]) == ["unknown"]


def test_a_clock_that_was_set_is_not_blamed_for_decoding():
    assert ranked("itl_s", shifts=GUILTY["clock_jump"]) == ["unknown"]


def test_heat_takes_the_blame_from_the_clock():
    assert "gpu_clock" not in ranked(shifts=GUILTY["gpu_thermal"])


def test_a_thermal_flag_alone_is_believed_less_than_with_the_clock():
    flag = {"gpu_throttle_thermal": shift(0.0, 1.0)}
    clock = flag | {"gpu_sm_clock_mhz": shift(1875.0, 1155.0)}

    [by_flag] = rank_causes(evidence(shifts=flag))
    [by_both] = rank_causes(evidence(shifts=clock))

    assert by_flag.cause == by_both.cause == "gpu_thermal"
    assert by_flag.score < by_both.score


def test_a_full_cache_is_blamed_before_the_queue_that_it_causes():
    shifts = GUILTY["kv_cache_saturation"] | {"waiting": shift(0.2, 40.0)}

    assert ranked(shifts=shifts) == ["kv_cache_saturation", "queue_saturation"]


def test_a_cache_that_was_full_for_a_moment_is_blamed_by_its_peak():
    shifts = {"kv_usage": shift(0.79, 0.87, z=0.5, peak=0.989)}

    [cause] = rank_causes(evidence("itl_s", shifts=shifts))

    assert cause.cause == "kv_cache_saturation"
    assert cause.evidence == ("kv_usage 0.79, at its peak 0.989",)


def test_a_clock_that_falls_by_five_percent_is_evidence_beside_the_flag():
    shifts = {
        "gpu_sm_clock_mhz": shift(1_215.0, 1_155.0),
        "gpu_throttle_thermal": shift(0.0, 1.0),
        "gpu_power_w": shift(140.0, 140.0),
    }

    [cause] = rank_causes(evidence("itl_s", shifts=shifts))

    assert cause.cause == "gpu_thermal"
    assert cause.evidence == (
        "gpu_sm_clock_mhz 1.22e+03 -> 1.16e+03",
        "gpu_throttle_thermal 0 -> 1",
        "gpu_power_w 140 -> 140",
    )


def test_a_dead_gauge_exonerates_nobody():
    queue = {"waiting": shift(0.2, 294.0), "kv_usage": DEAD}

    [cause] = rank_causes(evidence(shifts=queue))

    assert cause.cause == "queue_saturation"
    assert not any("KV memory" in words for words in cause.evidence)


@pytest.mark.parametrize("gauge", [{"waiting": DEAD}, {}], ids=["dead", "missing"])
def test_requests_that_queue_are_believed_more_than_a_gauge_that_never_moves(gauge):
    [cause] = rank_causes(evidence(shifts=gauge | {"queue_s": shift(0.01, 59.9)}))

    assert cause.cause == "queue_saturation"
    assert "queue_s 0.01 -> 59.9" in cause.evidence


# Measurements

JUMPED = {"itl_ratio": shift(1.0, 2.7), "request_itl_s": shift(0.02, 0.02)}


def test_a_measurement_that_jumped_is_blamed_first_where_something_was_changed():
    known = {"shifts": JUMPED, "measurement_jumped": True}

    assert ranked("itl_s", **known) == ["measurement_change"]
    assert ranked("itl_s", **known, changes=[changed("deploy", 10.0)]) == [
        "measurement_change",
        "change_deploy",
    ]


def test_without_a_change_a_full_cache_is_the_better_explanation():
    shifts = JUMPED | GUILTY["kv_cache_saturation"]

    assert ranked("itl_s", shifts=shifts, measurement_jumped=True) == [
        "kv_cache_saturation",
        "measurement_change",
    ]


# Changes


@pytest.mark.parametrize(
    ("kind", "before_s", "blamed"),
    [
        ("deploy", 120.0, True),
        ("config", 0.0, True),
        ("lora", 1_800.0, True),
        ("restart", 5.0, True),
        ("other", 5.0, True),
        ("deploy", 1_801.0, False),
        ("deploy", -30.0, True),
        ("deploy", -61.0, False),
        ("maintenance", 10.0, False),
        ("stop", 10.0, False),
    ],
)
def test_a_change_shortly_before_is_blamed(kind, before_s, blamed):
    expected = f"change_{kind}" if blamed else "unknown"

    assert ranked(changes=[changed(kind, before_s)]) == [expected]


def test_the_newest_change_is_blamed_with_its_version_and_its_time():
    changes = [changed("config", 900.0), changed("deploy", 120.0, version="v2", detail="fp8")]

    [cause] = rank_causes(evidence(changes=changes))

    assert cause.evidence == ("deploy v2 fp8, 120 s before the onset",)


def test_the_longer_ago_a_change_was_the_less_it_is_believed():
    [fresh] = rank_causes(evidence(changes=[changed("deploy", 60.0)]))
    [stale] = rank_causes(evidence(changes=[changed("deploy", 1_500.0)]))

    assert fresh.score > stale.score >= MIN_SCORE


def test_no_change_is_blamed_for_what_the_traffic_explains():
    assert ranked(attribution="workload", changes=[changed("deploy", 60.0)]) == ["unknown"]


# Nobody


@pytest.mark.parametrize(
    ("engines", "drifting", "words"),
    [
        (3, 1, "only this one of 3 engines drifts: look at its host"),
        (3, 3, "3 of 3 engines drift"),
        (1, 1, "1 of 1 engines drift"),
    ],
)
def test_unknown_says_where_to_look(engines, drifting, words):
    causes = rank_causes(evidence(engines=engines, drifting_engines=drifting))

    assert causes == (Cause(cause="unknown", score=0.0, evidence=(words,)),)


# Whatever the evidence

levels = st.floats(0.0, 1e6)
shifts = st.builds(shift, levels, levels, z=st.floats(-1e3, 1e3), peak=levels)
names = st.sampled_from(sorted({name for found in GUILTY.values() for name in found}))
all_evidence = st.builds(
    evidence,
    signal=st.sampled_from(["ttft_s", "itl_s", "e2e_s", ""]),
    attribution=st.sampled_from(["service", "workload", "mixed", "none"]),
    shifts=st.dictionaries(names, shifts),
    changes=st.lists(
        st.builds(changed, st.sampled_from(["deploy", "stop"]), st.floats(-100.0, 4_000.0)),
        max_size=3,
    ),
)


@given(found=all_evidence)
def test_causes_are_ranked_plausible_and_never_named_twice(found):
    causes = rank_causes(found)

    scores = [cause.score for cause in causes]
    names = [cause.cause for cause in causes]
    assert scores == sorted(scores, reverse=True)
    assert all(MIN_SCORE <= score <= 1.0 for score in scores) or names == ["unknown"]
    assert len(set(names)) == len(names)
    assert all(cause.evidence for cause in causes)


@given(found=all_evidence)
def test_the_order_of_the_suspects_does_not_matter(found):
    assert rank_causes(found) == rank_causes(found, SUSPECTS[::-1])
