"""The cell's clock: no single producer's wrong clock drags it, and it never goes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.event_time import CellClock, ClockState

T0 = 1_766_000_000.0
DAY_S = 86_400.0
CLOCK = CellClock(max_ahead_s=60.0)


def running(*engines):
    """A clock that has heard ``engines`` up to T0."""
    state = ClockState()
    for engine in engines:
        CLOCK.admit(state, engine, T0, None)
    return state


def test_the_first_record_starts_the_clock():
    state = ClockState()

    assert CLOCK.admit(state, "a", T0, None) == T0
    assert state.now_s == T0


def test_records_in_order_move_the_clock():
    state = running("a", "b")

    assert CLOCK.admit(state, "a", T0 + 10.0, None) == T0 + 10.0
    assert state.now_s == T0 + 10.0


def test_a_record_from_behind_keeps_its_time_and_leaves_the_clock():
    state = running("a", "b")

    assert CLOCK.admit(state, "a", T0 - 3_600.0, None) == T0 - 3_600.0
    assert state.now_s == T0


# A wrong clock


def test_what_is_far_ahead_of_the_log_happened_when_the_log_took_it():
    state = running("a")

    assert CLOCK.admit(state, "a", T0 + DAY_S, T0 + 5.0) == T0 + 65.0
    assert state.now_s == T0 + 65.0


def test_the_very_first_record_is_bounded_by_the_log_as_well():
    state = ClockState()

    assert CLOCK.admit(state, "a", T0 + DAY_S, T0) == T0 + 60.0


def test_an_old_log_time_does_not_hold_the_clock_back():
    state = running("a", "b")

    assert CLOCK.admit(state, "a", T0 + 10.0, T0 - DAY_S) == T0
    assert state.now_s == T0


@pytest.mark.parametrize("ahead_s", [61.0, 3_600.0, DAY_S, 1e9])
def test_an_engine_far_ahead_of_the_others_is_restamped_for_as_long_as_it_is(ahead_s):
    state = running("a", "b", "c")

    for s in range(1, 300):
        assert CLOCK.admit(state, "b", T0 + s, None) == T0 + s
        assert CLOCK.admit(state, "c", T0 + s, None) == T0 + s
        assert CLOCK.admit(state, "a", T0 + s + ahead_s, None) == T0 + s

    assert state.now_s == T0 + 299.0


@pytest.mark.parametrize("rate", [1.01, 1.5, 2.0, 10.0])
@pytest.mark.parametrize("every_s", [1.0, 10.0])
def test_a_clock_that_runs_fast_is_followed_no_further_than_it_may_be_ahead(rate, every_s):
    state = running("a", "b", "c")

    for s in (every_s * number for number in range(1, 400)):
        for engine in "bc":
            assert CLOCK.admit(state, engine, T0 + s, None) == T0 + s
        assert CLOCK.admit(state, "a", T0 + rate * s, None) <= T0 + s + 60.0
        assert T0 + s <= state.now_s <= T0 + s + 60.0


def test_an_engine_a_little_ahead_is_believed():
    state = running("a", "b")

    assert CLOCK.admit(state, "a", T0 + 60.0, None) == T0 + 60.0


def test_an_engine_whose_clock_was_set_right_is_believed_again():
    state = running("a", "b")
    CLOCK.admit(state, "a", T0 + DAY_S, None)
    CLOCK.admit(state, "b", T0 + 1.0, None)

    assert CLOCK.admit(state, "a", T0 + 2.0, None) == T0 + 2.0
    assert state.leaps == {}


# A cell that goes on after a pause


def test_an_engine_that_is_alone_is_believed_whatever_it_says():
    state = running("a")

    assert CLOCK.admit(state, "a", T0 + DAY_S, None) == T0 + DAY_S


def test_a_second_engine_confirms_a_leap():
    state = running("a", "b")

    assert CLOCK.admit(state, "a", T0 + DAY_S, None) == T0
    assert CLOCK.admit(state, "b", T0 + DAY_S + 1.0, None) == T0 + DAY_S + 1.0
    assert CLOCK.admit(state, "a", T0 + DAY_S + 2.0, None) == T0 + DAY_S + 2.0
    assert state.leaps == {}


def test_two_engines_that_leap_to_different_times_confirm_nothing():
    state = running("a", "b", "c")

    CLOCK.admit(state, "a", T0 + DAY_S, None)
    CLOCK.admit(state, "b", T0 + 2.0 * DAY_S, None)

    assert state.now_s == T0


def test_an_engine_that_goes_on_by_itself_is_believed_once_it_has_gone_far_enough():
    state = running("a", "b")
    resumed_s = T0 + DAY_S

    admitted = [CLOCK.admit(state, "a", resumed_s + s, None) for s in (0.0, 30.0, 59.0, 60.0)]

    assert admitted == [T0, T0, T0, resumed_s + 60.0]


def test_an_engine_is_not_believed_for_going_on_while_another_is_heard():
    state = running("a", "b")

    for s in range(200):
        CLOCK.admit(state, "a", T0 + DAY_S + s, None)
        CLOCK.admit(state, "b", T0 + s / 10.0, None)

    assert state.now_s == T0 + 19.9


def test_a_tick_moves_the_clock_and_never_back():
    state = running("a")

    CLOCK.tick(state, T0 + 600.0)
    assert state.now_s == T0 + 600.0
    CLOCK.tick(state, T0 + 300.0)
    assert state.now_s == T0 + 600.0


@pytest.mark.parametrize(
    ("time_s", "now_s"), [(T0 + 30.0, T0 + 30.0), (T0 + DAY_S, T0 + 65.0), (T0 - 30.0, T0)]
)
def test_a_tick_is_not_believed_to_be_much_later_than_the_log_took_it(time_s, now_s):
    state = running("a")

    CLOCK.tick(state, time_s, T0 + 5.0)

    assert state.now_s == now_s


def test_a_tick_can_be_the_first_thing_heard():
    state = ClockState()

    CLOCK.tick(state, T0)

    assert state.now_s == T0


# Whatever comes

times = st.floats(0.0, 1e6) | st.sampled_from([0.0, 1e9, 3e10])
records = st.lists(st.tuples(st.sampled_from("abc"), times, st.none() | times), max_size=40)


@given(records=records)
def test_the_clock_never_goes_back(records):
    state = ClockState()
    before_s = 0.0

    for engine, end_s, logged_s in records:
        admitted_s = CLOCK.admit(state, engine, end_s, logged_s)

        assert state.now_s >= max(before_s, admitted_s)
        before_s = state.now_s


@given(records=records)
def test_no_record_is_believed_to_come_from_later_than_it_says_or_than_now(records):
    state = ClockState()

    for engine, end_s, logged_s in records:
        now_s = state.now_s or 0.0
        assert CLOCK.admit(state, engine, end_s, logged_s) <= max(end_s, now_s)


@given(times=st.lists(times, max_size=30), logged_s=st.floats(0.0, 1e6))
def test_a_log_that_stands_still_holds_the_clock(times, logged_s):
    state = ClockState()

    for end_s in times:
        CLOCK.admit(state, "a", end_s, logged_s)

    assert state.now_s is None or state.now_s <= logged_s + 60.0


@given(wrong=st.lists(times, min_size=1, max_size=30))
def test_one_engine_among_three_cannot_drag_the_clock(wrong):
    state = running("a", "b", "c")

    for s, end_s in enumerate(wrong):
        CLOCK.admit(state, "a", end_s, None)
        for engine in "bc":
            CLOCK.admit(state, engine, T0 + s, None)

    assert state.now_s <= T0 + len(wrong) + 60.0


def admitted(timed, max_ahead_s=60.0):
    """What is believed of each of (engine, claimed time), and the clock."""
    clock, state = CellClock(max_ahead_s), ClockState()
    return [clock.admit(state, engine, time_s, None) for engine, time_s in timed], state


def test_the_last_engine_alive_goes_on_and_is_believed():
    """The others' last word must not hold it back."""
    together = [(engine, 10.0 * step) for step in range(1, 7) for engine in ("e1", "e2")]
    alone = [("e1", 10.0 * step) for step in range(7, 200)]

    believed, state = admitted(together + alone)

    assert believed == [time_s for _, time_s in together + alone]
    assert state.now_s == 1_990.0


def test_a_clock_that_runs_fast_neither_drags_the_other_engine_along_nor_stops_it():
    story = [
        claim for step in range(1, 400) for claim in (("fast", 20.0 * step), ("right", 10.0 * step))
    ]

    believed, state = admitted(story)

    assert believed[1::2] == [time_s for engine, time_s in story if engine == "right"]
    assert state.now_s <= 10.0 * 399 + 60.0


def test_an_engine_whose_clock_is_far_behind_does_not_stop_the_cell():
    story = [
        claim
        for step in range(20, 400)
        for claim in (("right", 10.0 * step), ("behind", 10.0 * step - 90.0))
    ]

    _, state = admitted(story)

    assert state.now_s >= 10.0 * 399 - 100.0
