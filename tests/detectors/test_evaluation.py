"""What holds for the scores of any alarms and any episodes."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import poisson

from detectors.evaluation import (
    Episode,
    alarm_every_n_baseline,
    detection_delays,
    f1,
    false_alarms,
    match,
    mean_time_between_false_alarms,
    missed_share,
    mtbfa_interval,
    owner_of,
    precision,
    recall,
    share_interval,
)

HOUR_S = 3_600.0

times_s = st.integers(0, 1_000)
"""Whole seconds: then sums and differences of times are exact."""
alarm_times = st.lists(times_s, max_size=12)
episode_lists = st.lists(
    st.tuples(times_s, st.integers(0, 200)).map(lambda t: Episode(t[0], t[0] + t[1])), max_size=6
)
graces = st.integers(0, 100)


def missed(delays_s):
    return [math.isnan(delay_s) for delay_s in delays_s]


# Whose an alarm is


@given(alarms_s=alarm_times, episodes=episode_lists, grace_s=graces)
def test_every_alarm_is_of_one_episode_or_false(alarms_s, episodes, grace_s):
    matching = match(alarms_s, episodes, grace_s)

    kept = [alarm_s for hits_s in matching.hits_s for alarm_s in hits_s]
    assert sorted(kept + matching.false_alarms_s) == sorted(alarms_s)


@given(alarm_s=times_s, episodes=episode_lists, grace_s=graces)
def test_an_alarm_is_false_where_no_episode_or_its_grace_covers_it(alarm_s, episodes, grace_s):
    covered = any(e.start_s <= alarm_s <= e.end_s + grace_s for e in episodes)

    assert (owner_of(alarm_s, episodes, grace_s) is not None) == covered


def test_the_grace_of_an_episode_does_not_take_the_alarm_of_the_next():
    episodes = [Episode(100.0, 200.0), Episode(250.0, 300.0)]

    assert match([240.0, 260.0], episodes, grace_s=100.0).hits_s == [[240.0], [260.0]]


@given(alarms_s=alarm_times, episodes=episode_lists, grace_s=graces, more_s=graces)
def test_more_grace_makes_no_alarm_false(alarms_s, episodes, grace_s, more_s):
    longer = false_alarms(alarms_s, episodes, grace_s + more_s)

    assert set(longer) <= set(false_alarms(alarms_s, episodes, grace_s))


@given(alarms_s=alarm_times, episodes=episode_lists, grace_s=graces, shift_s=times_s)
def test_scores_do_not_depend_on_when_time_begins(alarms_s, episodes, grace_s, shift_s):
    later = [Episode(e.start_s + shift_s, e.end_s + shift_s) for e in episodes]
    later_s = [alarm_s + shift_s for alarm_s in alarms_s]

    moved = detection_delays(later_s, later, grace_s)

    assert moved == pytest.approx(detection_delays(alarms_s, episodes, grace_s), nan_ok=True)


# Delays, recall, precision


@given(alarms_s=alarm_times, episodes=episode_lists, grace_s=graces)
def test_a_delay_is_within_the_episode_and_its_grace(alarms_s, episodes, grace_s):
    delays_s = detection_delays(alarms_s, episodes, grace_s)

    assert len(delays_s) == len(episodes)
    for delay_s, episode in zip(delays_s, episodes, strict=True):
        longest_s = episode.end_s + grace_s - episode.start_s
        assert math.isnan(delay_s) or 0.0 <= delay_s <= longest_s


@given(alarms_s=alarm_times, another_s=times_s, episodes=episode_lists, grace_s=graces)
def test_one_more_alarm_never_loses_nor_delays_an_episode(alarms_s, another_s, episodes, grace_s):
    before_s = detection_delays(alarms_s, episodes, grace_s)
    after_s = detection_delays([*alarms_s, another_s], episodes, grace_s)

    for earlier_s, later_s in zip(before_s, after_s, strict=True):
        assert math.isnan(earlier_s) or later_s <= earlier_s


@given(alarms_s=alarm_times, episodes=episode_lists, grace_s=graces)
def test_missed_episodes_are_those_without_a_delay(alarms_s, episodes, grace_s):
    assume(episodes)
    without = missed(detection_delays(alarms_s, episodes, grace_s))

    assert missed_share(alarms_s, episodes, grace_s) == pytest.approx(sum(without) / len(episodes))


@given(alarms_s=alarm_times, episodes=episode_lists, grace_s=graces)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(alarms_s, episodes, grace_s):
    assume(alarms_s and episodes)
    right = precision(alarms_s, episodes, grace_s)
    found = recall(alarms_s, episodes, grace_s)

    expected = 2 * right * found / (right + found) if right + found else 0.0

    assert f1(alarms_s, episodes, grace_s) == pytest.approx(expected)


def test_flapping_inside_an_episode_earns_nothing():
    episodes = [Episode(100.0, 200.0), Episode(500.0, 600.0)]

    flapping = [110.0, 120.0, 130.0, 900.0]

    assert precision(flapping, episodes, 0.0) == precision([110.0, 900.0], episodes, 0.0) == 0.5
    assert recall(flapping, episodes, 0.0) == 0.5


def test_where_nothing_happened_nothing_is_missed_and_where_nothing_was_said_nothing_is_right():
    episode = [Episode(100.0, 200.0)]

    assert all(math.isnan(score([150.0], [], 0.0)) for score in (recall, missed_share, f1))
    assert math.isnan(precision([], episode, 0.0))
    assert (recall([], episode, 0.0), f1([], episode, 0.0)) == (0.0, 0.0)


# The time between false alarms


@given(n_false=st.integers(0, 10_000), observed_s=st.floats(1.0, 1e9))
def test_the_limits_lie_on_either_side_of_the_mean(n_false, observed_s):
    least_s, most_s = mtbfa_interval(n_false, observed_s)

    assert 0.0 < least_s < mean_time_between_false_alarms(n_false, observed_s)
    assert most_s == math.inf if n_false == 0 else most_s > observed_s / n_false


@given(n_false=st.integers(0, 100), low=st.floats(0.5, 0.9))
def test_more_confidence_is_a_wider_interval(n_false, low):
    narrow, wide = (mtbfa_interval(n_false, HOUR_S, level) for level in (low, 0.99))

    assert wide[0] < narrow[0]
    assert wide[1] >= narrow[1]


@given(expected=st.floats(0.05, 60.0), confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_the_limits_hold_the_true_interval_as_often_as_they_say(expected, confidence):
    """Exactly: over all counts that alarms of a known mean may come to."""
    counts = range(400)
    true_s = HOUR_S / expected

    limits = [mtbfa_interval(count, HOUR_S, confidence) for count in counts]
    held = [least_s <= true_s <= most_s for least_s, most_s in limits]

    assert sum(poisson.pmf(list(counts), expected)[held]) >= confidence - 1e-9


def test_limits_are_those_of_garwoods_table():
    """95 % limits of a Poisson mean: 0 to 3.69 for no event, 1.09 to 10.24 for four."""
    assert HOUR_S / mtbfa_interval(0, HOUR_S)[0] == pytest.approx(3.69, abs=0.005)
    least_s, most_s = mtbfa_interval(4, HOUR_S)
    assert (HOUR_S / most_s, HOUR_S / least_s) == pytest.approx((1.09, 10.24), abs=0.005)


# The baseline


@given(count=st.integers(1, 2_000), observed_s=st.floats(1.0, 1e7), phase=st.floats(0.01, 1.0))
def test_the_clock_alarms_as_often_as_it_is_told_whatever_its_phase(count, observed_s, phase):
    alarms_s = alarm_every_n_baseline(observed_s, observed_s / count, phase=phase)

    assert len(alarms_s) == count
    assert all(0.0 < alarm_s <= observed_s for alarm_s in alarms_s)
    assert alarms_s == sorted(alarms_s)


def test_a_clock_that_never_strikes_is_silence():
    assert alarm_every_n_baseline(HOUR_S, math.inf) == []


# What is refused


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Episode(10.0, 9.0), "end_s=9.0 is before start_s=10.0"),
        (lambda: Episode(math.nan, 9.0), "must be finite"),
        (lambda: false_alarms([1.0], [], -1.0), "grace_s=-1.0"),
        (lambda: false_alarms([math.inf], [], 0.0), "must be finite"),
        (lambda: mean_time_between_false_alarms(-1, 1.0), "n_false=-1"),
        (lambda: mtbfa_interval(1, math.inf), "observed_s=inf"),
        (lambda: mtbfa_interval(1, 1.0, 1.0), "confidence=1.0"),
        (lambda: alarm_every_n_baseline(1.0, 0.0), "every_s=0.0"),
        (lambda: alarm_every_n_baseline(1.0, 1.0, phase=0.0), "phase=0.0"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_it_was(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@given(of=st.integers(1, 50), share=st.floats(0.0, 1.0))
def test_limits_of_a_share_hold_the_estimate_and_mirror(of, share):
    count = round(share * of)

    least, most = share_interval(count, of)
    mirrored_least, mirrored_most = share_interval(of - count, of)

    assert 0.0 <= least <= count / of <= most <= 1.0
    assert (1.0 - most, 1.0 - least) == pytest.approx((mirrored_least, mirrored_most), abs=1e-9)


def test_limits_of_a_share_are_clopper_and_pearsons():
    assert share_interval(1, 5) == pytest.approx((0.0051, 0.7164), abs=1e-4)
    assert share_interval(0, 1) == pytest.approx((0.0, 0.975))
