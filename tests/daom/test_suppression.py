"""Every rule mutes what it says, and says why."""

import pytest

from daom.lifecycle import AlertLife, Condition
from daom.suppression import (
    Cooldown,
    FewEngines,
    FleetWide,
    Muted,
    Surroundings,
    Window,
    maintenance,
    not_drifting,
    objection,
    same_incident,
)

NOW_S = 1_766_000_000.0
FLEET = None


def alert(engine="e1", signal="ttft_s", phase="pending", *, drifting=True, **fields):
    return AlertLife(
        name="LatencyDrift", engine=engine, signal=signal, phase=phase, drifting=drifting, **fields
    )


def about(life, severity="warning"):
    return Condition(
        name=life.name,
        engine=life.engine,
        signal=life.signal,
        active=True,
        clear=False,
        severity=severity,
    )


def surroundings(*lives, judged=3, windows=()):
    by_key = {about(life).key: life for life in lives}
    engines = {f"e{number}" for number in range(judged)}
    return Surroundings(NOW_S, by_key, windows, {"ttft_s": engines, "itl_s": engines})


def asked(rule, life, *others, severity="warning", **around):
    """What ``rule`` says of ``life``, the others standing beside it."""
    return rule(about(life, severity), life, surroundings(life, *others, **around))


# Maintenance


@pytest.mark.parametrize(
    ("engine", "starts_s", "ends_s", "mutes"),
    [
        ("e1", -10.0, 10.0, True),
        (FLEET, -10.0, 10.0, True),
        ("e2", -10.0, 10.0, False),
        ("e1", 0.0, 10.0, True),
        ("e1", -10.0, 0.0, False),
        ("e1", 1.0, 10.0, False),
    ],
)
def test_maintenance_mutes_its_engine_from_its_start_until_its_end(engine, starts_s, ends_s, mutes):
    window = Window(engine, NOW_S + starts_s, NOW_S + ends_s, "new driver")

    muted = asked(maintenance, alert("e1"), windows=[window])

    expected = Muted("maintenance", "maintenance new driver", NOW_S + ends_s)
    assert muted == (expected if mutes else None)


def test_an_engines_maintenance_does_not_mute_the_fleet():
    window = Window("e1", NOW_S - 10.0, NOW_S + 10.0)

    assert asked(maintenance, alert(FLEET), windows=[window]) is None


# Bursts


def test_a_p99_above_its_threshold_alone_is_muted():
    assert asked(not_drifting, alert(drifting=False)).rule == "not_drifting"
    assert asked(not_drifting, alert(drifting=True)) is None


# Fleet and engines: which share drifts decides whose alert speaks.

SHARES = [
    # drifting engines of judged engines, who is muted
    (1, 3, "fleet"),
    (1, 2, "fleet"),
    (2, 4, "fleet"),
    (2, 3, "engine"),
    (3, 3, "engine"),
    (1, 1, "engine"),
    (5, 3, "engine"),
]


@pytest.mark.parametrize(("drifting", "judged", "muted"), SHARES)
def test_either_the_fleet_speaks_or_its_engines(drifting, judged, muted):
    engines = [alert(f"e{i}") for i in range(drifting)]
    fleet = alert(FLEET)

    says_engine = asked(FleetWide(0.5), engines[0], *engines[1:], fleet, judged=judged)
    says_fleet = asked(FewEngines(0.5), fleet, *engines, judged=judged)

    rules = {found.rule for found in (says_engine, says_fleet) if found}
    assert rules == {"fleet_wide" if muted == "engine" else "few_engines"}


def test_the_fleet_speaks_where_no_single_engine_could_be_judged():
    assert asked(FewEngines(0.5), alert(FLEET), judged=0) is None


def test_what_a_few_engines_caused_stays_muted_once_they_have_gone():
    muted = asked(FewEngines(0.5), alert(FLEET, objection="few_engines"), judged=2)

    assert muted.rule == "few_engines"


@pytest.mark.parametrize("muted_by", [None, "maintenance", "cooldown", "same_incident"])
def test_what_another_rule_muted_is_not_held_to_come_from_a_few_engines(muted_by):
    assert asked(FewEngines(0.5), alert(FLEET, objection=muted_by), judged=2) is None


def test_engines_that_only_exceed_their_threshold_do_not_count_as_drifting():
    bursts = [alert(f"e{i}", drifting=False) for i in range(2, 5)]

    assert asked(FleetWide(0.5), alert("e1"), *bursts, judged=4) is None


def test_drift_of_another_signal_does_not_count():
    others = [alert(f"e{i}", signal="itl_s") for i in range(2, 5)]

    assert asked(FleetWide(0.5), alert("e1"), *others, judged=4) is None


# One incident, one alert


INCIDENTS = [
    # what fires: engine, signal, severity; what wants to: severity; muted?
    ("e1", "itl_s", "warning", "warning", True),
    ("e1", "itl_s", "critical", "warning", True),
    ("e1", "itl_s", "warning", "critical", False),
    ("e1", "itl_s", "info", "warning", False),
    (FLEET, "itl_s", "warning", "warning", True),
    ("e2", "itl_s", "critical", "warning", False),
]


@pytest.mark.parametrize(("engine", "signal", "firing", "wants", "mutes"), INCIDENTS)
def test_a_further_signal_of_an_incident_is_muted_unless_it_is_worse(
    engine, signal, firing, wants, mutes
):
    other = alert(engine, signal, phase="firing", severity=firing)

    muted = asked(same_incident, alert("e1", severity=wants), other)

    assert (muted is not None) == mutes


def test_an_alert_that_is_about_to_escalate_speaks_for_the_others_already():
    other = alert("e1", "itl_s", phase="firing", severity="warning", worse_since_s=NOW_S - 10.0)

    muted = asked(same_incident, alert("e1", severity="critical"), other)

    assert muted == Muted("same_incident", "itl_s of engine e1 is already firing")


@pytest.mark.parametrize("phase", ["pending", "inactive"])
def test_an_alert_that_does_not_fire_mutes_no_other(phase):
    other = alert("e1", "itl_s", phase=phase)

    assert asked(same_incident, alert("e1"), other) is None


def test_the_reason_names_the_alert_that_speaks():
    other = alert(FLEET, "itl_s", phase="firing")

    assert asked(same_incident, alert("e1"), other).why == "itl_s of the fleet is already firing"


# Cooldown


@pytest.mark.parametrize(
    ("resolved_s", "mutes"), [(None, False), (-1.0, True), (-299.0, True), (-300.0, False)]
)
def test_an_alert_that_comes_back_inside_the_cooldown_is_muted_until_it_ends(resolved_s, mutes):
    resolved_at_s = None if resolved_s is None else NOW_S + resolved_s

    muted = asked(Cooldown(300.0), alert(resolved_s=resolved_at_s))

    assert (muted is not None) == mutes
    assert muted is None or muted.until_s == resolved_at_s + 300.0


RELAPSES = [
    # what resolved: name, engine, signal; muted?
    ("LatencyDrift", "e1", "itl_s", True),
    ("LatencyDrift", "e1", "ttft_s", True),
    ("LatencyDrift", "e2", "itl_s", False),
    ("LatencyDrift", FLEET, "itl_s", False),
    ("EngineSilent", "e1", None, False),
]


@pytest.mark.parametrize(("name", "engine", "signal", "mutes"), RELAPSES)
def test_the_cooldown_of_an_engine_holds_for_all_of_its_signals(name, engine, signal, mutes):
    resolved = AlertLife(name=name, engine=engine, signal=signal, resolved_s=NOW_S - 100.0)

    muted = asked(Cooldown(300.0), alert("e1", "ttft_s"), resolved)

    why = "an alert of engine e1 resolved 100 s ago"
    assert muted == (Muted("cooldown", why, NOW_S + 200.0) if mutes else None)


def test_the_cooldown_of_the_fleet_holds_for_all_of_its_signals():
    resolved = alert(FLEET, "itl_s", phase="inactive", resolved_s=NOW_S - 100.0)

    assert asked(Cooldown(300.0), alert(FLEET, "ttft_s"), resolved).until_s == NOW_S + 200.0
    assert asked(Cooldown(300.0), alert("e1", "ttft_s"), resolved) is None


def test_the_newest_resolve_begins_the_cooldown():
    ends = [alert("e1", signal, resolved_s=NOW_S - s) for signal, s in (("a", 400.0), ("b", 50.0))]

    assert asked(Cooldown(300.0), alert("e1", "ttft_s"), *ends).until_s == NOW_S + 250.0


# The order


def test_the_first_rule_that_objects_is_heard():
    window = Window(FLEET, NOW_S - 10.0, NOW_S + 10.0)
    life = alert(drifting=False)
    around = surroundings(life, windows=[window])

    heard = objection(about(life), life, around, (maintenance, not_drifting))
    heard_reversed = objection(about(life), life, around, (not_drifting, maintenance))

    assert (heard.rule, heard_reversed.rule) == ("maintenance", "not_drifting")


def test_where_no_rule_objects_the_alert_may_fire():
    life = alert()

    assert objection(about(life), life, surroundings(life), (maintenance, not_drifting)) is None
