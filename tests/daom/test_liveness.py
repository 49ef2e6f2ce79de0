"""Stuck is who has more to do and does not get on with it, while the broker answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.liveness import Liveness, Seen

AFTER_S = 300.0
EVERY_S = 10.0


def seen(position=100, saved=100, committed=100, end=100):
    return Seen(position=position, saved=saved, committed=committed, end=end)


def watched(*moments, joins=None, partition=7, every_s=EVERY_S):
    """Liveness after ``moments`` of one partition, ``every_s`` apart; None: no broker answers."""
    liveness = Liveness(stuck_after_s=AFTER_S)
    for number, moment in enumerate(moments):
        if moment is None:
            liveness.no_answer(number * every_s)
        else:
            liveness.observe({partition: moment}, joins, number * every_s)
    return liveness


def standing(moment, for_s=AFTER_S):
    return [moment] * (int(for_s / EVERY_S) + 1)


def tasks(liveness):
    return [(s.partition, s.task) for s in liveness.stuck()]


@pytest.mark.parametrize(
    ("moment", "task", "why"),
    [
        (seen(end=104), "read", "its position stands at 100, and the log ends at 104"),
        (seen(position=103, end=103), "save", "its checkpoints stand at 100, and its position"),
        (seen(position=None), "load", "its checkpoints are not loaded"),
    ],
)
def test_what_is_due_and_stands_still_is_stuck_by_name_and_says_why(moment, task, why):
    liveness = watched(*standing(moment))

    [stuck] = liveness.stuck()
    assert (stuck.partition, stuck.task, stuck.for_s) == (7, task, AFTER_S)
    assert stuck.why.startswith(why)


@pytest.mark.parametrize("moment", [seen(end=104), seen(position=103, end=103)])
def test_it_is_not_stuck_a_moment_earlier(moment):
    assert watched(*standing(moment, AFTER_S - EVERY_S)).stuck() == []


def test_an_idle_partition_is_never_stuck():
    liveness = watched(*standing(seen(), 100 * AFTER_S))

    assert (liveness.stuck(), liveness.waits_s(7)) == ([], 0.0)


def test_an_end_that_a_broker_tells_too_low_is_no_lag():
    assert watched(*standing(seen(end=90))).stuck() == []


def test_one_record_folded_is_progress():
    moments = [*standing(seen(end=200), AFTER_S - EVERY_S), seen(101, 101, 101, 200)]

    assert (
        watched(*moments, *standing(seen(101, 101, 101, 200), AFTER_S - 2 * EVERY_S)).stuck() == []
    )


def test_a_log_that_grows_is_no_progress():
    moments = [seen(end=101 + number) for number in range(31)]

    assert tasks(watched(*moments)) == [(7, "read")]


def test_commits_that_stand_still_behind_new_checkpoints_are_stuck():
    """Faust stops committing for good where an acknowledgement is missing."""
    saves = [seen(100 + n, 100 + n, 100, 100 + n) for n in range(33)]

    assert tasks(watched(*saves)) == [(7, "commit")]


@pytest.mark.parametrize("committed", [None, 5])
def test_what_was_saved_before_this_owner_came_may_be_uncommitted(committed):
    """A group's offsets expire; where the log is empty nothing is ever committed again."""
    assert watched(*standing(seen(committed=committed), 10 * AFTER_S)).stuck() == []


def test_while_no_broker_answers_nothing_is_stuck_and_afterwards_the_wait_begins_anew():
    away = [*standing(seen(end=104), AFTER_S - EVERY_S), *[None] * 100]

    assert watched(*away).stuck() == []
    assert watched(*away, *standing(seen(end=104), AFTER_S - EVERY_S)).stuck() == []
    assert tasks(watched(*away, *standing(seen(end=104)))) == [(7, "read")]


def test_a_partition_that_was_given_up_is_forgotten():
    liveness = watched(*standing(seen(end=104)))
    liveness.observe({}, None, AFTER_S + EVERY_S)
    liveness.observe({7: seen(end=104)}, None, AFTER_S + 2 * EVERY_S)

    assert (liveness.stuck(), liveness.waits_s(7)) == ([], 0.0)


def test_a_worker_that_does_not_come_back_into_its_group_is_stuck():
    liveness = Liveness(stuck_after_s=AFTER_S)
    for number in range(31):
        liveness.observe({}, 4, number * EVERY_S)

    assert tasks(liveness) == [(None, "join")]


def test_a_worker_whose_group_rebalances_again_and_again_gets_on():
    liveness = Liveness(stuck_after_s=AFTER_S)
    for number in range(100):
        liveness.observe({}, number // 20, number * EVERY_S)

    assert liveness.stuck() == []


moments = st.one_of(
    st.none(),
    st.builds(
        Seen,
        position=st.none() | st.integers(0, 3),
        saved=st.integers(0, 3),
        committed=st.none() | st.integers(0, 3),
        end=st.integers(0, 3),
    ),
)


@given(story=st.lists(moments, max_size=80))
def test_who_is_stuck_has_stood_still_with_more_to_do_for_all_of_the_time(story):
    """Whatever is seen: a position that moved within the time was never blamed."""
    length = int(AFTER_S / EVERY_S) + 1
    liveness = watched(*story)

    recent = story[-length:]
    for stuck in liveness.stuck():
        assert len(recent) == length
        assert None not in recent
        at = {"read": "position", "save": "saved", "commit": "committed", "load": "position"}
        assert len({getattr(moment, at[stuck.task]) for moment in recent}) == 1
        if stuck.task == "read":
            assert all(moment.end > moment.position for moment in recent)


@given(story=st.lists(moments, max_size=20), lag=st.integers(1, 9))
def test_whatever_came_before_a_partition_that_stands_still_is_found(story, lag):
    moments = [*story, *standing(seen(end=100 + lag))]

    assert (7, "read") in tasks(watched(*moments))


@given(story=st.lists(moments, max_size=60))
def test_how_long_it_waits_is_what_decides(story):
    liveness = watched(*story)

    assert (liveness.waits_s(7) >= AFTER_S) == bool(liveness.stuck())
