"""Situations that people reported from the field, and what a cell should have said of them.

Each test generates a small fleet with the reporters' figures; the default preset judges it.
"""

import pytest

from daom.config import Config
from daom.events import SloThreshold
from tests.daom.stories import (
    LEARNED_MINUTES,
    Load,
    after_learning,
    alerts,
    at,
    briefly,
    calm,
    chapter,
    outputs,
    silence,
    slower,
    story,
    triggers,
    verdicts,
)

NOW = LEARNED_MINUTES
ONE = ("e1",)
ONE_SIGNAL = Config.model_validate({"signals": {"ttft_s": {"workload": "prompt_tokens"}}})


def moved(said, signal=None):
    """The alerts that fired or resolved, those on ``signal`` if given."""
    chosen = [a for a in alerts(said) if a.state != "pending"]
    return [a for a in chosen if signal in {None, a.labels.get("signal")}]


def first_cause(said):
    """The cause that stands first in the first root-cause trigger."""
    return triggers(said)[0].causes[0].cause


# Throughput collapses at a steady load and returns unaided: ~350 -> ~30 -> ~300 tokens/s for
# about 15 minutes. One incident, opened early, held through the plateau, resolved once.

TENTH = Load(requests=3.4, steps=3, itl=12.0, ttft=12.0)


@pytest.fixture(scope="module")
def collapse():
    return after_learning(calm(3), chapter(15, TENTH), chapter(12, slower(1.05)), engines=ONE)


def test_a_collapse_of_throughput_is_one_incident_with_one_resolve(collapse):
    assert [a.state for a in moved(collapse)] == ["firing", "resolved"]
    assert {a.labels["severity"] for a in moved(collapse)} == {"critical"}


def test_a_collapse_is_opened_early_and_held_until_it_is_over(collapse):
    opened, closed = moved(collapse)

    assert opened.event_time_s <= at(NOW + 3 + 2.5)
    assert closed.event_time_s >= at(NOW + 18 + 2)


def test_the_plateau_of_a_collapse_is_not_taken_for_normal(collapse):
    plateau = [v for v in verdicts(collapse) if at(NOW + 6) < v.event_time_s <= at(NOW + 18)]
    moves = [o for o in collapse if isinstance(o, SloThreshold)]

    assert {v.drifting for v in plateau} == {True}
    assert all(move.threshold_s < 1.1 * move.previous_s for move in moves)


# Time per output token as the KV cache fills, nobody waiting: 107 ms at 79.4 %, 114 at 92.4 %,
# 440 at 98.9 %.


def filled(kv_usage, itl_ms):
    return Load(itl=itl_ms / 107.0, gauges={"kv_usage": kv_usage, "waiting": 0.0})


@pytest.fixture(scope="module")
def full_cache():
    before = [chapter(3, filled(0.794, 107.0)), chapter(3, filled(0.924, 114.0))]
    return after_learning(*before, chapter(5, filled(0.989, 440.0)), engines=ONE)


def test_slow_tokens_of_a_full_cache_are_critical_although_nobody_waits(full_cache):
    [firing] = moved(full_cache)

    assert (firing.labels["signal"], firing.labels["severity"]) == ("itl_s", "critical")
    assert at(NOW + 6) < firing.event_time_s <= at(NOW + 8)


def test_a_full_cache_is_named_as_the_cause_of_slow_tokens(full_cache):
    assert first_cause(full_cache) == "kv_cache_saturation"


# Healthy work for 13 minutes, then every request is preempted and added again: 0 tokens/s.


def test_an_engine_that_works_and_finishes_nothing_is_stalled():
    thrashing = Load(requests=0.0, steps=0, gauges={"running": 8.0})

    said = after_learning(calm(13), chapter(5, thrashing), engines=ONE)

    assert briefly(moved(said)) == [("EngineStalled", "e1", "", "firing")]
    assert moved(said)[0].event_time_s <= at(NOW + 13 + 2)


# Time to first token jumps to ~90 s now and then while the cumulative hit ratio says 79 to 85 %.

MISSES = Load(ttft=90.0, hit_ratio=0.05)


@pytest.fixture(scope="module")
def cache_misses():
    return after_learning(calm(30), chapter(4, MISSES), calm(15), chapter(4, MISSES), engines=ONE)


def test_every_spike_of_prefix_misses_is_reported(cache_misses):
    spikes = [a for a in moved(cache_misses) if a.state == "firing"]

    assert [(a.labels["signal"], a.labels["severity"]) for a in spikes] == [
        ("ttft_s", "critical"),
        ("ttft_s", "critical"),
    ]


def test_a_good_lifetime_average_does_not_exonerate_the_cache(cache_misses):
    causes = [trigger.causes[0].cause for trigger in triggers(cache_misses)]

    assert causes == ["prefix_cache_misses", "prefix_cache_misses"]


# Concurrency 1 to 4: the mean goes from 76 to 167 ms, the P99 from 83 to 1,395.


def test_a_tail_that_explodes_over_a_body_that_doubles_is_critical():
    said = after_learning(calm(3), chapter(6, Load(ttft=2.0, tail=8.0)), engines=ONE)

    opened = moved(said, "ttft_s")[0]
    assert (opened.state, opened.labels["severity"]) == ("firing", "critical")
    assert opened.event_time_s <= at(NOW + 3 + 2)


def test_a_tail_that_explodes_is_told_apart_from_its_body():
    said = after_learning(calm(3), chapter(8, Load(ttft=1.1, tail=8.0)), engines=ONE)

    [opened] = moved(said, "ttft_s")
    drifting = [v for v in verdicts(said, "ttft_s") if v.drifting is True]
    assert (opened.state, opened.labels["severity"]) == ("firing", "critical")
    assert all(v.p99_s > 2.0 * v.threshold_s for v in drifting)
    assert all(v.evidence["p50_s"] < 1.5 * v.evidence["expected_p50_s"] for v in drifting)


# A shift for good fires for weeks; single outliers fire; one speed-up fired three times.


@pytest.fixture(scope="module")
def for_good():
    usual, shifted = Load(steps=0), Load(steps=0, ttft=1.4)
    return outputs(story(chapter(20, usual), chapter(360, shifted), engines=ONE), ONE_SIGNAL)


def test_a_level_that_shifts_for_good_is_reported_once_and_then_adopted(for_good):
    firing, resolved = moved(for_good)

    assert (firing.state, resolved.state) == ("firing", "resolved")
    assert firing.event_time_s <= at(20 + 4)
    assert at(20 + 120) <= resolved.event_time_s <= at(20 + 150)


def test_the_adopted_level_is_audited_and_calm(for_good):
    adopted = [o for o in for_good if isinstance(o, SloThreshold) and "adopted" in o.why]
    later = [v for v in verdicts(for_good) if v.event_time_s > at(20 + 160)]

    assert len(adopted) == 2
    assert all(move.threshold_s > 1.2 * move.previous_s for move in adopted)
    assert {v.drifting for v in later} == {False}


@pytest.mark.parametrize("times", [2.0, 10.0, 100.0])
def test_a_single_outlier_does_not_fire(times):
    said = after_learning(calm(5), chapter(1 / 6, slower(times)), calm(8), engines=ONE)

    assert moved(said) == []


@pytest.mark.parametrize("times", [0.9, 0.5, 0.1])
def test_a_speed_up_never_pages(times):
    said = after_learning(calm(3), chapter(15, slower(times)), engines=ONE)

    assert alerts(said) == []


# Holes of up to a minute and a half in the data, which cleared alerts that were still true.


def test_a_hole_in_the_data_is_no_recovery():
    slow = chapter(4, slower(1.3))

    said = after_learning(calm(3), slow, silence(1.5), slow, silence(1.5), slow, engines=ONE)

    assert [a.state for a in moved(said)] == ["firing"]


def test_one_engines_hole_is_no_recovery_either():
    slow, hole = chapter(4, e2=slower(1.3)), chapter(0.9, e2=None)

    said = after_learning(calm(3), slow, hole, slow, hole, slow)

    assert [(a.labels.get("engine"), a.state) for a in moved(said)] == [("e2", "firing")]
