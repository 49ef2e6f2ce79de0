"""Engines that are stopped, come back, or are replaced by others of another name."""

import pytest

from daom.config import Config
from tests.daom.stories import (
    LEARNED_MINUTES,
    T0,
    alerts,
    at,
    batch,
    briefly,
    by_time,
    calm,
    change,
    chapter,
    from_here,
    learned_cell,
    new_cell,
    rules,
    slower,
    source,
    story,
    table,
    told,
    verdicts,
)

NOW = LEARNED_MINUTES
STOPPED = NOW + 3
"""The minute in which e2 is stopped."""
FORGETFUL = Config.model_validate({"alerts": {"forget_after_s": 300}})


def with_stop(*chapters, minute=STOPPED):
    return by_time(from_here(calm(3), *chapters), [change("stop", at(minute), "e2")])


# Stopping the slow one


@pytest.mark.parametrize("times", [1.5, 3.0])
@pytest.mark.parametrize("minutes", [3, 5])
def test_stopping_the_slow_engine_does_not_make_the_fleet_fire(minutes, times):
    slow = [chapter(minutes, e2=slower(times)), chapter(6, e2=None)]

    said = told(learned_cell(), with_stop(*slow, minute=STOPPED + minutes))

    fired = alerts(said, "firing")
    assert [a.labels.get("engine") for a in fired] == ["e2"]
    assert ("few_engines", "*", fired[0].labels["signal"]) in rules(said)
    assert [a.fingerprint for a in alerts(said, "resolved")] == [fired[0].fingerprint]


# Batches of an engine that has been stopped


@pytest.mark.parametrize("after_s", [0.0, 10.0, 59.0])
def test_a_batch_that_was_still_on_its_way_does_not_bring_a_stopped_engine_back(after_s):
    end_s = at(STOPPED) + after_s
    late = batch("e2", end_s - 9.0, end_s, requests=table([end_s - 5.0], ttft_s=[0.1]))
    cell = learned_cell()

    said = told(cell, by_time(with_stop(chapter(5, e2=None)), [late]))

    assert "e2" not in cell.state.engines
    assert cell.state.counters == {"batches_after_stop": 1}
    assert alerts(said) == []


def test_a_batch_well_after_the_stop_brings_the_engine_back():
    cell = learned_cell()

    said = told(cell, with_stop(chapter(3, e2=None), calm(14)))

    assert list(cell.state.engines) == ["e1", "e2", "e3"]
    assert cell.state.counters == {}
    assert alerts(said) == []
    newest = {v.series.engine: v.drifting for v in verdicts(said, "itl_s")}
    assert newest["e2"] is False


def test_an_engine_that_has_come_back_is_watched_like_any_other():
    said = told(learned_cell(), with_stop(chapter(3, e2=None), calm(3), chapter(3, e2=None)))

    assert briefly(alerts(said)) == [("EngineSilent", "e2", "", "firing")]


# Engines that are gone for good


@pytest.fixture(scope="module")
def long_silent():
    cell = new_cell(FORGETFUL)
    return cell, told(cell, story(calm(3), chapter(8, e2=None)))


def test_an_engine_that_is_long_silent_is_forgotten(long_silent):
    cell, _ = long_silent

    assert list(cell.state.engines) == ["e1", "e3"]


def test_the_alert_of_an_engine_that_is_forgotten_resolves(long_silent):
    _, said = long_silent

    firing, resolved = alerts(said)
    assert briefly([firing, resolved]) == [
        ("EngineSilent", "e2", "", "firing"),
        ("EngineSilent", "e2", "", "resolved"),
    ]
    assert at(3 + 5) <= resolved.event_time_s <= at(3 + 6)
    assert resolved.annotations["summary"] == "engine e2 was stopped, or is long gone"


def test_a_whole_cell_that_is_silent_for_long_forgets_none_of_its_engines():
    cell = new_cell(FORGETFUL)

    told(cell, [*story(calm(3)), *story(calm(3), from_minutes=60.0)])

    assert list(cell.state.engines) == ["e1", "e2", "e3"]


def pods(generations, minutes):
    """Two pods at a time, each replaced by one of another name after ``minutes``."""
    for number in range(round(generations * minutes * 6)):
        start_s = T0 + 10.0 * number
        generation = int(number / (6 * minutes))
        for slot in "ab":
            name = f"pod-{slot}-{generation}"
            rows = table([start_s + 5.0], ttft_s=[0.1])
            numbered = source(name, number, f"boot-{name}")
            yield batch(name, start_s, start_s + 9.9, source=numbered, requests=rows)


def test_many_pods_that_come_and_go_do_not_pile_up():
    cell = new_cell(FORGETFUL)

    said = told(cell, pods(generations=80, minutes=1))

    assert len(cell.state.engines) <= 2 * 7
    assert len(cell.state.stopped) <= 64
    assert len(alerts(said, "firing")) - len(alerts(said, "resolved")) <= 2 * 7
    assert len(cell.state.changes) <= 64
