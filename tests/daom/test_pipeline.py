"""One cell from record to alert, told as stories of a fleet of three engines."""

from collections import Counter
from itertools import pairwise

import pytest

from daom.config import Config
from daom.events import (
    Alert,
    AuditEntry,
    SloThreshold,
    Suppression,
)
from tests.daom.stories import (
    ENGINES,
    LEARNED_MINUTES,
    MODEL,
    Load,
    after_learning,
    alerts,
    at,
    calm,
    chapter,
    outputs,
    rules,
    slower,
    story,
    triggers,
    verdicts,
)

NOW = LEARNED_MINUTES
"""The minute at which a cell that has learned goes on."""
ALL_SIGNALS = ("ttft_s", "itl_s", "e2e_s")


@pytest.fixture(scope="module")
def one_slow_engine():
    """What a cell says of one slow engine that recovers."""
    return after_learning(calm(3), chapter(8, e2=slower(1.3)), calm(8))


@pytest.fixture(scope="module")
def a_slow_fleet():
    """What a cell says of a fleet that is slow and recovers."""
    return after_learning(calm(3), chapter(8, slower(1.3)), calm(8))


# Nothing happens


def test_a_stationary_fleet_raises_nothing():
    said = after_learning(calm(45))

    assert alerts(said) == []
    assert triggers(said) == []


def test_an_improvement_raises_nothing():
    said = after_learning(calm(3), chapter(12, slower(0.6)))

    assert alerts(said) == []
    assert {v.direction for v in verdicts(said) if v.drifting is True} == {"faster"}


def test_a_cell_says_nothing_of_what_it_has_not_learned():
    said = verdicts(outputs(story(calm(5))))

    assert {v.drifting for v in said} == {"insufficient"}
    assert all(v.why for v in said)


# One slow engine


def test_one_slow_engine_gives_one_alert_that_names_it(one_slow_engine):
    [firing] = alerts(one_slow_engine, "firing")

    assert firing.name == "LatencyDrift"
    assert firing.labels["engine"] == "e2"
    assert firing.attribution == "service"
    assert set(firing.labels) == {"alertname", "model", "engine", "signal", "severity"}


def test_the_fleets_alerts_and_the_engines_further_signals_are_muted():
    # Slow enough for the fleet as a whole to be slow, of which it is a third.
    said = after_learning(calm(3), chapter(8, e2=slower(1.6)))
    [firing] = alerts(said, "firing")
    further = set(ALL_SIGNALS) - {firing.labels["signal"]}

    muted = rules(said)

    assert {("few_engines", "*", signal) for signal in ALL_SIGNALS} <= muted
    assert {("same_incident", "e2", signal) for signal in further} <= muted


def test_it_waits_before_it_fires_and_says_since_when(one_slow_engine):
    [firing] = alerts(one_slow_engine, "firing")
    pending = [a for a in alerts(one_slow_engine, "pending") if a.labels == firing.labels]

    assert [a.event_time_s for a in pending] == [firing.started_s]
    assert at(NOW + 3) < firing.started_s <= at(NOW + 5)
    assert firing.event_time_s - firing.started_s == 60.0


def test_recovery_resolves_it_once_after_a_while(one_slow_engine):
    [firing] = alerts(one_slow_engine, "firing")
    [resolved] = alerts(one_slow_engine, "resolved")

    assert resolved.labels == firing.labels
    assert resolved.started_s == firing.started_s
    assert at(NOW + 11 + 2) <= resolved.event_time_s <= at(NOW + 11 + 6)


def test_all_states_of_an_alert_are_of_one_incident(one_slow_engine):
    [firing] = alerts(one_slow_engine, "firing")
    same = [a for a in alerts(one_slow_engine) if a.fingerprint == firing.fingerprint]

    assert [a.state for a in same] == ["pending", "firing", "resolved"]
    assert len({a.annotations["incident"] for a in same}) == 1


def test_its_root_cause_is_asked_for_once_when_it_fires(one_slow_engine):
    [firing] = alerts(one_slow_engine, "firing")
    [trigger] = triggers(one_slow_engine)

    assert (trigger.labels, trigger.onset_s) == (firing.labels, firing.started_s)
    assert [cause.cause for cause in trigger.causes] == ["unknown"]
    assert trigger.causes[0].evidence == ("only this one of 3 engines drifts: look at its host",)


# A slow fleet


def test_a_slow_fleet_gives_one_alert_of_the_fleet(a_slow_fleet):
    [firing] = alerts(a_slow_fleet, "firing")

    assert firing.name == "LatencyDrift"
    assert "engine" not in firing.labels


def test_the_alerts_of_its_engines_are_muted(a_slow_fleet):
    muted = rules(a_slow_fleet)

    assert {("fleet_wide", engine, "itl_s") for engine in ENGINES} <= muted


def test_a_fleet_resolves_once(a_slow_fleet):
    [firing] = alerts(a_slow_fleet, "firing")
    [resolved] = alerts(a_slow_fleet, "resolved")

    assert resolved.labels == firing.labels
    assert resolved.event_time_s > at(NOW + 11 + 2)


def test_a_model_with_one_engine_has_one_alert():
    said = after_learning(calm(3), chapter(8, slower(1.3)), calm(8), engines=("e1",))

    assert [a.state for a in alerts(said) if a.state != "pending"] == ["firing", "resolved"]


# Was it the traffic?


@pytest.fixture(scope="module")
def longer_prompts():
    """What a cell says of a fleet that gets more long prompts, served as fast as ever."""
    return after_learning(calm(3), chapter(15, Load(long_share=0.6)))


def test_more_long_prompts_raise_nothing_but_information(longer_prompts):
    assert {a.labels["severity"] for a in alerts(longer_prompts)} <= {"info"}


def test_more_long_prompts_are_the_traffics_doing(longer_prompts):
    drifting = [v for v in verdicts(longer_prompts, "ttft_s") if v.drifting is True]

    assert Counter(v.attribution for v in drifting).most_common(1)[0][0] == "workload"
    assert "service" not in {v.attribution for v in drifting}
    assert all(v.workload_nats > v.service_nats for v in drifting)


def test_more_long_prompts_move_the_threshold_and_the_change_is_audited(longer_prompts):
    of_fleet = f"{MODEL}|*|ttft_s"
    moves = [o for o in longer_prompts if isinstance(o, SloThreshold) and o.series.key == of_fleet]

    assert {move.why for move in moves} == {"the workload shifted"}
    assert moves[-1].threshold_s > moves[0].previous_s
    assert [move.id for move in moves] == [
        move.id for move in moves if audited(move, longer_prompts)
    ]


def audited(move, said):
    return any(
        (entry.series, entry.event_time_s, entry.before, entry.after)
        == (move.series, move.event_time_s, move.previous_s, move.threshold_s)
        for entry in said
        if isinstance(entry, AuditEntry)
    )


def test_a_slow_service_never_loosens_its_own_threshold(a_slow_fleet):
    slow = [
        o
        for o in a_slow_fleet
        if isinstance(o, SloThreshold) and at(NOW + 4) < o.event_time_s <= at(NOW + 11)
    ]

    assert [move for move in slow if move.threshold_s > move.previous_s] == []


def test_the_audit_of_a_series_is_a_chain():
    said = outputs(story(calm(14), chapter(8, Load(long_share=0.6)), engines=("e1",)))

    chain = [o for o in said if isinstance(o, AuditEntry) and o.series.key.endswith("|e1|ttft_s")]

    assert len(chain) > 2
    assert chain[0].previous_hash == ""
    assert all(one.hash == following.previous_hash for one, following in pairwise(chain))
    assert all(one.after == following.before for one, following in pairwise(chain))


# Hysteresis and cooldown


def test_a_slowdown_of_a_moment_does_not_fire():
    said = after_learning(calm(3), chapter(1 / 6, slower(3.0)), calm(8))

    assert alerts(said, "firing") == []
    assert {rule for rule, _, _ in rules(said)} == {"not_sustained"}


def test_a_drift_that_comes_and_goes_is_one_incident():
    waves = [chapter(2, slower(1.3)), calm(1)] * 4

    said = after_learning(calm(3), *waves, chapter(2, slower(1.3)), engines=("e1",))

    assert [a.state for a in alerts(said) if a.state != "pending"] == ["firing"]


def test_a_drift_right_after_its_recovery_is_muted_until_the_cooldown_ends():
    late_first_tokens = Load(ttft=1.4)
    relapse = [chapter(5, late_first_tokens), calm(5), chapter(4, late_first_tokens)]

    said = after_learning(calm(3), *relapse, engines=("e1",))

    first_resolve_s = min(a.event_time_s for a in alerts(said, "resolved"))
    cooled = [o for o in said if isinstance(o, Suppression) and o.rule == "cooldown"]
    assert {o.until_s for o in cooled} == {first_resolve_s + 300.0}
    assert [a.event_time_s for a in alerts(said, "firing") if a.event_time_s > first_resolve_s] == [
        first_resolve_s + 300.0
    ]


def test_a_worsening_drift_ends_as_a_warning_and_goes_on_as_critical():
    worse = [chapter(4, slower(1.3)), chapter(4, slower(4.0))]

    said = after_learning(calm(3), *worse, engines=("e1",))

    moved = [a for a in alerts(said) if a.state != "pending"]
    assert [(a.labels["severity"], a.state) for a in moved] == [
        ("warning", "firing"),
        ("warning", "resolved"),
        ("critical", "firing"),
    ]
    assert {a.labels["signal"] for a in moved} == {"ttft_s"}
    assert len({a.annotations["incident"] for a in moved}) == 1


# How fast it learns

ONE_SIGNAL = Config.model_validate({"signals": {"ttft_s": {"workload": "prompt_tokens"}}})


@pytest.mark.parametrize(
    ("requests_per_s", "minutes"), [(2.0, 30), (0.05, 240)], ids=["2 a second", "1 in 20 s"]
)
def test_a_stream_is_judged_soon_enough(requests_per_s, minutes):
    load = Load(requests=10.0 * requests_per_s, steps=0)

    said = outputs(story(chapter(minutes, load), engines=("e1",)), ONE_SIGNAL)

    assert any(v.drifting is False for v in verdicts(said))


def test_a_slow_stream_of_requests_drifts_too():
    rare = Load(requests=0.5, steps=0)
    slow = Load(requests=0.5, steps=0, ttft=1.4)

    said = outputs(story(chapter(250, rare), chapter(60, slow), engines=("e1",)), ONE_SIGNAL)

    [firing] = alerts(said, "firing")
    assert firing.event_time_s > at(250)
    assert isinstance(firing, Alert)


# The source document's preset

LETTER = Config.model_validate({"preset": "sits2026", "signals": {"ttft_s": {"slo_s": 0.3}}})
RARE = Load(requests=10.0, steps=0)
"""Slow enough for three windows of 300 samples to last longer than five minutes."""


@pytest.fixture(scope="module")
def to_the_letter():
    """What the document's rules say of an engine that becomes three times as slow."""
    slow = Load(requests=10.0, steps=0, ttft=3.0)
    return outputs(story(chapter(60, RARE), chapter(40, slow), engines=("e1",)), LETTER)


def test_the_documents_threshold_follows_kl_up_to_its_cap(to_the_letter):
    moves = [o.threshold_s for o in to_the_letter if isinstance(o, SloThreshold)]
    by_kl = {v.threshold_s: v.kl_nats for v in verdicts(to_the_letter) if v.kl_nats is not None}

    assert max(moves) == pytest.approx(0.3 * 1.375)
    for threshold_s, kl_nats in by_kl.items():
        assert threshold_s == pytest.approx(0.3 * (1.0 + 2.5 * min(kl_nats, 0.15)), rel=1e-4)


def test_the_document_asks_for_the_cause_of_a_drift_of_more_than_five_minutes_once(to_the_letter):
    of_engine = [t for t in triggers(to_the_letter) if t.labels.get("engine") == "e1"]

    assert len(of_engine) == 1
    assert of_engine[0].event_time_s - of_engine[0].onset_s > 300.0


def test_the_documents_alert_is_raised_by_the_threshold_alone(to_the_letter):
    above = [
        v
        for v in verdicts(to_the_letter)
        if v.series.engine is None and v.drifting != "insufficient" and v.p99_s > v.threshold_s
    ]
    first = next(a for a in alerts(to_the_letter) if "engine" not in a.labels)

    assert 0.0 <= first.event_time_s - above[0].event_time_s < 10.0
