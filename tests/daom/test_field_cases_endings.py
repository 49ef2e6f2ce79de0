"""What operators were paged for at the wrong time: at the end of a drift, or again and again."""

import pytest

from tests.daom.stories import (
    LEARNED_MINUTES,
    Load,
    after_learning,
    ahead,
    alerts,
    at,
    briefly,
    by_time,
    calm,
    change,
    chapter,
    from_here,
    learned_cell,
    moved,
    slower,
    told,
    triggers,
)

NOW = LEARNED_MINUTES
FIVE = tuple(f"e{number}" for number in range(1, 6))


# Answers become twice as long: the P99 of the whole is above its threshold off and on.


@pytest.fixture(scope="module")
def longer_answers():
    return after_learning(calm(3), chapter(15, Load(output_tokens=300.0)), calm(5))


def test_longer_answers_page_nobody_where_the_drift_flickers_either(longer_answers):
    fired = alerts(longer_answers, "firing")

    assert {(a.labels.get("engine"), a.labels["severity"]) for a in fired} == {(None, "info")}
    assert {a.attribution for a in fired} == {"workload"}


def test_the_trigger_of_an_alert_has_its_fingerprint_and_its_cause(longer_answers):
    [fired] = alerts(longer_answers, "firing")
    [trigger] = triggers(longer_answers)

    assert trigger.fingerprint == fired.fingerprint
    assert trigger.causes[0].cause == "longer_requests"


# The whole fleet recovers, one engine after the other.


@pytest.mark.parametrize("last", ["e1", "e2", "e3"])
def test_the_last_engine_to_recover_is_not_in_trouble_of_its_own(last):
    slow = slower(1.5)

    said = after_learning(calm(3), chapter(5, slow), chapter(1 / 3, **{last: slow}), calm(5))

    assert {a.labels.get("engine") for a in moved(said)} == {None}
    assert [a.state for a in moved(said)] == ["firing", "resolved"]


def test_an_engine_that_stays_slow_when_the_others_recover_is_named():
    said = after_learning(calm(3), chapter(5, slower(1.5)), chapter(6, e2=slower(1.5)))

    named = [a for a in alerts(said, "firing") if a.labels.get("engine") == "e2"]
    assert [a.name for a in named] == ["LatencyDrift"]
    assert named[0].event_time_s <= at(NOW + 3 + 5 + 3)


# A canary is rolled back; among the peers' panes its slow ones remain.


def test_a_canary_that_is_rolled_back_is_not_slower_than_its_peers_afterwards():
    records = from_here(calm(3), chapter(15, e3=slower(1.4)), calm(6), engines=FIVE)
    deploys = [change("deploy", at(NOW + 3), "e3"), change("deploy", at(NOW + 18), "e3")]

    said = told(learned_cell(FIVE), by_time(records, deploys))

    assert {a.name for a in moved(said)} == {"LatencyDrift"}
    assert [(a.labels["engine"], a.state) for a in moved(said)] == [
        ("e3", "firing"),
        ("e3", "resolved"),
    ]


# An engine crashes again and again: a minute of work, two and a half of none.


def test_an_engine_that_crashes_again_and_again_is_two_incidents_at_most():
    crashes = [chapter(1, e2=Load()), chapter(2.5, e2=None)] * 6

    said = after_learning(calm(3), *crashes, calm(5))

    silences = [a for a in alerts(said) if a.name == "EngineSilent"]
    assert [a.state for a in silences] == ["firing", "resolved"] * 2
    assert silences[-1].event_time_s > at(NOW + 3 + 21 + 1)
    assert silences[-1].annotations["summary"] == "engine e2 sends again"


# A clock falls two minutes behind: the engine sends, and all of it is too late.


def test_an_engine_whose_clock_is_behind_is_not_said_to_send_nothing():
    records = [
        ahead(r, -120.0) if r.source.engine == "e2" and r.start_s >= at(NOW + 3) else r
        for r in from_here(calm(8))
    ]

    said = told(learned_cell(), records)

    assert briefly(moved(said)) == [("EngineSilent", "e2", "", "firing")]
    summary = moved(said)[0].annotations["summary"]
    assert "behind those of others" in summary
    assert "clock" in summary
