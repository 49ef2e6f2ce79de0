"""One engine: what a batch says beside its samples, whatever order the batches come in."""

import math

import pytest

from daom.codec import decode
from daom.engine import EngineState
from tests.daom.messages import GOOD, changed, written
from tests.daom.stories import T0, batch, calm, from_here, learned_cell, new_cell, table, told

PANE_S = 10.0


def engine(*batches):
    """An engine that has sent ``batches``, in the order in which they came."""
    state = EngineState(last_s=batches[0].end_s, progress_s=batches[0].end_s)
    for each in batches:
        state.take_circumstances(each, each.end_s)
    return state


def requests(*e2e_s):
    return table([T0] * len(e2e_s), e2e_s=e2e_s)


LONGEST = {
    "none measured": ([math.nan, math.nan], 0.0),
    "none at all": ([], 0.0),
    "some measured": ([math.nan, 3.0, 2.0], 3.0),
}


@pytest.mark.parametrize(("e2e_s", "expected"), LONGEST.values(), ids=LONGEST)
def test_the_longest_request_is_one_that_was_measured(e2e_s, expected):
    assert engine(batch("e1", T0, requests=requests(*e2e_s))).longest_request_s == expected


def test_the_longest_request_stays_the_longest_when_none_is_measured_any_more():
    measured = batch("e1", T0, requests=requests(3.0))
    unmeasured = batch("e1", T0 + 10.0, requests=requests(math.nan))

    assert engine(measured, unmeasured).longest_request_s == 3.0


# Progress


def steps(*tokens, preempted=None):
    """A batch of steps that yielded ``tokens``; the counter of preemptions then stood so."""
    rows = table([T0 + 20.0] * len(tokens), itl_s=[0.02] * len(tokens), tokens=tokens)
    gauges = {} if preempted is None else {"preemptions_total": preempted}
    return batch("e1", T0 + 20.0, steps=rows, gauges=gauges)


PROGRESS = {
    "tokens": (steps(0.0, 8.0, preempted=9.0), True),
    "tokens that were not counted": (steps(math.nan), True),
    "none, and requests preempted": (steps(0.0, 0.0, preempted=9.0), False),
    "none, and nobody counts preemptions": (steps(0.0, 0.0), False),
    "none, but nothing preempted: a long prompt": (steps(0.0, 0.0, preempted=5.0), True),
    "nothing at all": (batch("e1", T0 + 20.0), False),
}


@pytest.mark.parametrize(("newest", "gets_on"), PROGRESS.values(), ids=PROGRESS)
def test_steps_are_progress_if_they_get_on_with_their_work(newest, gets_on):
    before = batch("e1", T0, requests=requests(3.0), gauges={"preemptions_total": 5.0})

    assert engine(before, newest).progress_s == (newest.end_s if gets_on else T0)


def test_who_reports_only_a_queue_has_that_in_flight():
    assert engine(batch("e1", T0, gauges={"waiting": 8.0})).in_flight == 8.0


def test_a_column_of_nulls_is_taken_like_any_other():
    nulls = changed(GOOD, "requests.e2e_s", [None, None])
    cell = new_cell()

    cell.step(decode(written(nulls)).record)

    assert cell.state.engines["e"].longest_request_s == 0.0


# Batches that overtake one another


def test_a_batch_that_was_overtaken_says_nothing_of_what_is_in_flight():
    newer = batch("e1", T0 + 10.0, gauges={"running": 8.0, "waiting": 2.0})
    older = batch("e1", T0, gauges={"running": 0.0, "waiting": 0.0})

    assert engine(newer, older).in_flight == 10.0
    assert engine(newer, older).last_s == T0 + 10.0


def test_a_batch_that_was_overtaken_still_brings_its_requests():
    newer = batch("e1", T0 + 10.0)
    older = batch("e1", T0, requests=requests(3.0))

    state = engine(newer, older)

    assert state.longest_request_s == 3.0
    assert state.context.sums["finished"] == 1.0


def test_a_batch_that_was_overtaken_is_no_restart_of_its_counters():
    readings = [(0.0, 1_000.0), (20.0, 1_040.0), (10.0, 1_015.0), (30.0, 1_060.0)]

    state = engine(
        *(batch("e1", T0 + s, gauges={"preemptions_total": total}) for s, total in readings)
    )

    assert state.context.sums["preemptions_total"] == 60.0


def test_batches_that_come_in_pairs_the_wrong_way_round_restart_no_counter():
    records = from_here(calm(5), engines=("e1",))
    swapped = [each for pair in zip(records[1::2], records[::2], strict=True) for each in pair]
    cell = learned_cell(("e1",))

    told(cell, swapped)

    levels = cell.state.engines["e1"].context.levels
    # A pair's rise is seen in one of its panes, some 40 a second from each.
    assert max(levels["prefix_queries_per_s"].recent) < 100.0
    assert all(0.6 < ratio < 0.95 for ratio in levels["prefix_hit_ratio"].recent)
