"""How bad an incident is called, how often, and for how long it then stays quiet."""

import pytest

from daom.events import Suppression
from tests.daom.stories import (
    LEARNED_MINUTES,
    Load,
    after_learning,
    alerts,
    at,
    calm,
    chapter,
    outputs,
    slower,
    story,
)

NOW = LEARNED_MINUTES


def fired(said):
    """Of each alert that fired its engine and severity."""
    return [(a.labels.get("engine"), a.labels["severity"]) for a in alerts(said, "firing")]


# The seeds with which one engine's single long requests once made its P99 look twice as slow.


@pytest.mark.parametrize("times", [1.3, 1.5])
@pytest.mark.parametrize("seed", [1, 4, 5])
def test_an_engine_that_is_somewhat_slow_is_one_warning(times, seed):
    told = [calm(LEARNED_MINUTES + 3), chapter(5, e2=slower(times))]

    said = outputs(story(*told, seed=seed))

    assert fired(said) == [("e2", "warning")]


def test_an_engine_three_times_as_slow_is_one_critical_alert():
    said = after_learning(calm(3), chapter(6, e2=slower(3.0)), calm(8))

    assert fired(said) == [("e2", "critical")]
    [resolved] = alerts(said, "resolved")
    assert resolved.fingerprint == alerts(said, "firing")[0].fingerprint


@pytest.mark.parametrize("times", [3.0, 4.0, 10.0])
def test_one_pane_that_is_worse_does_not_make_a_warning_critical(times):
    worse = [chapter(4, e2=slower(1.3)), chapter(1 / 6, e2=slower(times))]

    said = after_learning(calm(3), *worse, chapter(4, e2=slower(1.3)))

    assert set(fired(said)) == {("e2", "warning")}
    assert alerts(said, "resolved") == []


# Cooldown


@pytest.fixture(scope="module")
def a_relapse():
    """Late first tokens of one engine, and soon after their end slow tokens of the same."""
    relapse = [chapter(5, e2=Load(ttft=1.5)), calm(4), chapter(8, e2=Load(itl=1.5))]
    return after_learning(calm(3), *relapse)


def test_a_relapse_that_another_signal_shows_is_muted_until_the_cooldown_ends(a_relapse):
    [resolved] = alerts(a_relapse, "resolved")
    cooled = [o for o in a_relapse if isinstance(o, Suppression) and o.rule == "cooldown"]

    assert resolved.labels["signal"] == "ttft_s"
    assert {(o.labels["engine"], o.labels["signal"]) for o in cooled} == {("e2", "itl_s")}
    assert {o.until_s for o in cooled} == {resolved.event_time_s + 300.0}


def test_a_relapse_that_outlasts_the_cooldown_fires_once_it_ends(a_relapse):
    [resolved] = alerts(a_relapse, "resolved")
    first, second = alerts(a_relapse, "firing")

    assert (first.labels["signal"], second.labels["signal"]) == ("ttft_s", "itl_s")
    assert second.started_s < second.event_time_s == resolved.event_time_s + 300.0


def test_another_engine_is_not_held_by_the_cooldown_of_the_first():
    other = [chapter(5, e2=Load(ttft=1.5)), calm(4), chapter(4, e3=Load(itl=1.5))]

    said = after_learning(calm(3), *other)

    first, second = alerts(said, "firing")
    assert (first.labels["engine"], second.labels["engine"]) == ("e2", "e3")
    assert second.event_time_s <= at(NOW + 3 + 5 + 4 + 2)
