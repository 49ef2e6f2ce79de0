"""The course of a stream: bounded however long it is, and no peak is lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.report.timeline import LETTERS, STATES, Timeline, state_of
from tests.report_outputs import T0, verdict

PANE_S = 10.0
MONTH_PANES = 260_000

numbers = st.one_of(st.none(), st.floats(0.001, 1_000.0))
drifting = st.sampled_from(["insufficient", False, True])
said = st.fixed_dictionaries(
    {
        "p99_s": numbers,
        "threshold_s": numbers,
        "kl_nats": numbers,
        "drifting": drifting,
        "direction": st.sampled_from(["slower", "faster", "none"]),
        "attribution": st.sampled_from(["service", "workload", "mixed", "none"]),
        "samples": st.integers(0, 10_000),
    }
)
courses = st.lists(st.tuples(st.integers(1, 5_000), said), min_size=1, max_size=60)


def verdicts(course):
    """Return verdicts at the ends of panes, in order."""
    ordered = sorted(course, key=lambda item: item[0])
    return [verdict(T0 + pane * PANE_S, **words) for pane, words in ordered]


def timeline(given_verdicts, most=2_048):
    line = Timeline(PANE_S, most)
    for one in given_verdicts:
        line.note(one)
    return line


def known(column):
    return [value for value in column if value is not None]


@given(course=courses, most=st.integers(1, 40))
def test_however_few_buckets_there_are_no_extreme_is_lost(course, most):
    told = verdicts(course)

    line = timeline(told, most).course(most).line()

    p99s = [v.p99_s for v in told if v.p99_s is not None]
    kls = [v.kl_nats for v in told if v.kl_nats is not None]
    assert len(line["time_s"]) <= most
    assert sum(line["verdicts"]) == len(told)
    assert sum(line["drifting"]) == sum(v.drifting is True for v in told)
    assert known(line["p99_least_s"])[:1] == [] or np.isclose(
        min(known(line["p99_least_s"])), min(p99s), rtol=1e-3
    )
    assert np.allclose(max(known(line["p99_most_s"]), default=0.0), max(p99s, default=0.0), 1e-3)
    assert np.allclose(max(known(line["kl_nats"]), default=0.0), max(kls, default=0.0), 1e-2)


@given(course=courses, most=st.integers(1, 40))
def test_every_verdict_lies_in_the_bucket_of_its_time(course, most):
    told = verdicts(course)

    line = timeline(told, most).course(most).line()

    starts, width_s = np.array(line["time_s"]), line["width_s"]
    for one in told:
        middle_s = one.event_time_s - PANE_S / 2.0
        assert np.any((starts <= middle_s) & (middle_s < starts + width_s))


@given(course=courses, cut=st.integers(0, 60), most=st.integers(1, 40))
def test_two_parts_make_the_same_course_as_the_whole(course, cut, most):
    told = verdicts(course)
    whole, first, second = timeline(told, most), timeline(told[:cut], most), timeline(told[cut:])

    first.absorb(second)

    mine, expected = first.course(most), whole.course(most)
    # A part that was joined further than the whole can be no finer than that.
    while expected.width_s < mine.width_s:
        expected = whole.course(expected.numbers.size - 1)
    assert first.states == whole.states
    assert sum(mine.line()["verdicts"]) == len(told)
    assert mine.numbers.size <= most
    if mine.width_s == expected.width_s:
        assert mine.line()["p99_most_s"] == expected.line()["p99_most_s"]
        assert mine.line()["threshold_s"] == expected.line()["threshold_s"]
        assert mine.strip() == expected.strip()


def test_a_month_of_panes_takes_no_more_memory_than_an_afternoon():
    line = Timeline(PANE_S)
    for pane in range(MONTH_PANES):
        line.note(verdict(T0 + (pane + 1) * PANE_S))

    course = line.course(2_048)

    assert course.numbers.size <= 2_048
    assert int(course.line()["verdicts"][0]) == round(course.width_s / PANE_S)
    assert sum(course.line()["verdicts"]) == MONTH_PANES


def test_of_the_parts_of_kl_those_of_the_largest_are_kept():
    told = [
        verdict(T0 + 10.0, kl_nats=0.9, workload_nats=0.2, service_nats=0.7),
        verdict(T0 + 20.0, kl_nats=0.3, workload_nats=0.3, service_nats=0.0),
    ]

    line = timeline(told).course(1).line()

    assert (line["kl_nats"], line["workload_nats"], line["service_nats"]) == ([0.9], [0.2], [0.7])


def test_of_a_bucket_the_last_threshold_is_the_one_in_force():
    told = [verdict(T0 + 10.0, threshold_s=0.5), verdict(T0 + 20.0, threshold_s=0.4)]

    assert timeline(told).course(1).line()["threshold_s"] == [0.4]


def test_a_late_verdict_is_put_where_it_belongs():
    times = (10.0, 20.0, 40.0, 30.0)

    line = timeline(verdict(T0 + time_s) for time_s in times).course(9).line()

    assert line["time_s"] == [T0, T0 + 10.0, T0 + 20.0, T0 + 30.0]


def test_where_nothing_was_said_there_is_a_gap_and_no_bucket():
    told = [verdict(T0 + time_s) for time_s in (10.0, 20.0, 3_600.0)]

    strip = timeline(told).course(100).strip()

    assert strip == [[T0, "cc"], [T0 + 3_590.0, "c"]]


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ({"drifting": "insufficient"}, "insufficient"),
        ({"drifting": False}, "calm"),
        ({"drifting": True, "direction": "faster"}, "faster"),
        ({"drifting": True, "direction": "slower", "attribution": "service"}, "slower"),
        ({"drifting": True, "direction": "slower", "attribution": "mixed"}, "slower"),
        ({"drifting": True, "direction": "slower", "attribution": "workload"}, "workload"),
        ({"drifting": True, "direction": "none"}, "slower"),
    ],
)
def test_a_verdict_is_in_one_state(words, state):
    assert STATES[state_of(verdict(T0, **words))] == state


def test_of_several_states_a_bucket_shows_the_one_that_matters_most():
    told = [
        verdict(T0 + 10.0, drifting=True, direction="slower", attribution="service"),
        verdict(T0 + 20.0),
    ]

    assert timeline(told).course(1).strip()[0][1] == LETTERS[STATES.index("slower")]


def test_p99_over_its_threshold_is_told_at_its_worst():
    told = [verdict(T0 + 10.0, p99_s=1.0), verdict(T0 + 20.0, p99_s=0.1)]

    assert timeline(told).course(10).worst_over_threshold == pytest.approx(2.0)
    assert timeline([verdict(T0, threshold_s=None)]).course(10).worst_over_threshold is None
