"""Wrong clocks, and real time far ahead: a cell waits for the slow and is dragged by nobody."""

import msgspec
import pytest

from daom.codec import MAX_UNIX_S, decode
from daom.config import Config
from daom.events import Source, Tick
from daom.presets import cell_settings
from tests.daom.messages import GOOD, changed, written
from tests.daom.stories import (
    LEARNED_MINUTES,
    MODEL,
    T0,
    ahead,
    alerts,
    at,
    batch,
    briefly,
    calm,
    chapter,
    from_here,
    learned_cell,
    new_cell,
    slower,
    tick,
    told,
    verdicts,
)

NOW = LEARNED_MINUTES
SETTINGS = cell_settings(Config())
ONE = ("e1",)
DAY_S = 86_400.0
MOST_PANES = 400
"""More than a cell closes at once, and much fewer than a day has."""


def of_engine(said, *engines):
    """The verdicts on ``engines``, as far as they depend on these engines alone."""
    return [
        msgspec.structs.replace(
            v, evidence={k: n for k, n in v.evidence.items() if not k.startswith("peers_")}
        )
        for v in verdicts(said)
        if v.series.engine in engines
    ]


def panes_behind_s(cell):
    """How long ago the oldest pane that is still open began."""
    return cell.state.clock.now_s - cell.state.next_pane * SETTINGS.pane_s


# One engine's clock is a little ahead, or runs fast


@pytest.fixture(scope="module")
def e1_is_slow():
    return from_here(calm(2), chapter(5, e1=slower(1.3)))


@pytest.fixture(scope="module")
def said_of_e1(e1_is_slow):
    return told(learned_cell(), e1_is_slow)


@pytest.mark.parametrize("ahead_s", [6.0, 20.0, 50.0])
def test_a_clock_a_little_ahead_makes_no_sample_of_the_others_late(ahead_s, e1_is_slow, said_of_e1):
    cell = learned_cell()

    said = told(cell, [ahead(r, ahead_s) if r.source.engine == "e2" else r for r in e1_is_slow])

    assert cell.state.counters == {}
    others = of_engine(said, "e1", "e3")
    assert others == of_engine(said_of_e1, "e1", "e3")[: len(others)]
    assert panes_behind_s(cell) <= ahead_s + 2.0 * SETTINGS.pane_s
    assert {a.labels.get("engine") for a in alerts(said, "firing")} == {"e1"}


@pytest.mark.parametrize("behind_s", [6.0, 20.0, 50.0])
def test_a_clock_a_little_behind_makes_none_of_its_own_samples_late(behind_s, e1_is_slow):
    behind = [ahead(r, -behind_s) if r.source.engine == "e2" else r for r in e1_is_slow]
    # What it stamps with times from before it was behind belongs to panes that are closed.
    records = [record for record in behind if record.start_s >= at(NOW)]
    cell = learned_cell()

    said = told(cell, records)

    assert cell.state.counters == {}
    assert {a.labels.get("engine") for a in alerts(said, "firing")} == {"e1"}


def test_a_clock_that_runs_at_twice_the_speed_drags_nobody_along():
    records = from_here(calm(8))
    fast = [ahead(r, r.end_s - at(NOW)) if r.source.engine == "e2" else r for r in records]
    cell = learned_cell()

    said = told(cell, fast)

    assert set(cell.state.counters) == {"restamped_batches"}
    assert cell.state.clock.now_s <= records[-1].end_s + SETTINGS.clock.max_ahead_s
    assert alerts(said) == []
    assert max(v.event_time_s for v in verdicts(said)) <= records[-1].end_s
    assert {v.drifting for v in of_engine(said, "e1", "e3")} == {False}


# An engine that sends nothing any more


def test_an_engine_that_died_delays_panes_for_as_long_as_they_wait_and_no_longer():
    cell = learned_cell()
    delays_s = []

    for record in from_here(calm(2), chapter(4, e2=None)):
        cell.step(record)
        delays_s.append(panes_behind_s(cell))

    assert SETTINGS.wait_s <= max(delays_s) <= SETTINGS.wait_s + SETTINGS.pane_s
    assert delays_s[-1] <= SETTINGS.lateness_s + SETTINGS.pane_s
    assert cell.state.counters == {}


def test_panes_that_waited_are_closed_one_by_one_and_none_is_left_out():
    said = told(learned_cell(), from_here(calm(2), chapter(4, e2=None)))

    times = [v.event_time_s for v in of_engine(said, "e1") if v.series.signal == "itl_s"]
    assert times == [times[0] + SETTINGS.pane_s * number for number in range(len(times))]
    assert len(times) >= 6 * 6 - 2


# Real time that runs far ahead


@pytest.mark.parametrize("time_s", [at(NOW) + DAY_S, MAX_UNIX_S], ids=["a day", "the year 3000"])
def test_real_time_far_ahead_closes_few_panes_and_later_records_go_on(time_s):
    cell = learned_cell(ONE)

    silent = cell.step(tick(time_s))
    resumed = [ahead(record, time_s - at(NOW)) for record in from_here(calm(4), engines=ONE)]
    said = told(cell, resumed)

    assert 0 < len([v for v in verdicts(silent, "itl_s") if v.series.engine]) <= MOST_PANES
    assert briefly(alerts(silent)) == [("CellSilent", "*", "", "firing")]
    assert briefly(alerts(said)) == [("CellSilent", "*", "", "resolved")]
    assert len([v for v in of_engine(said, "e1") if v.series.signal == "itl_s"]) >= 4 * 6 - 3
    assert [v.drifting for v in verdicts(said, "itl_s")][-1] is False


def test_a_tick_from_the_year_3000_that_the_log_knows_better_leaves_the_cell_where_it_is():
    cell = learned_cell(ONE)
    records = from_here(calm(4), engines=ONE)

    cell.step(Tick(source=Source(model=MODEL), time_s=MAX_UNIX_S, logged_s=at(NOW)))
    said = told(cell, records)

    assert cell.state.clock.now_s <= max(r.end_s for r in records) + SETTINGS.clock.max_ahead_s
    assert {v.drifting for v in verdicts(said, "itl_s")} == {False}
    assert alerts(said) == []


# A batch that claims to have begun in 1970


def test_a_batch_that_began_long_ago_opens_no_panes_of_long_ago():
    long_ago = decode(written(changed(GOOD, "start_s", 0.0))).record
    cell = new_cell()

    said = told(cell, [long_ago, batch("e", T0 + 20.0), batch("e", T0 + 40.0)])

    assert cell.state.next_pane * SETTINGS.pane_s == T0 + 30.0
    assert len(said) < MOST_PANES
