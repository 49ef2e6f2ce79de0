"""Silence, stall, and what somebody announced, told as stories of three engines."""

import msgspec
import pytest

from daom.events import Alert, ChangeEvent, GpuSample, Source, Suppression
from tests.daom.stories import (
    LEARNED_MINUTES,
    MODEL,
    Load,
    after_learning,
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
    silence,
    slower,
    source,
    story,
    tick,
    told,
    triggers,
    verdicts,
)

NOW = LEARNED_MINUTES

BUSY_BUT_STUCK = Load(requests=0.0, steps=0)

# Silence and stall


def test_an_engine_that_falls_silent_while_others_go_on_is_reported_until_it_returns():
    said = after_learning(calm(2), chapter(4, e2=None), calm(3))

    assert briefly(alerts(said)) == [
        ("EngineSilent", "e2", "", "firing"),
        ("EngineSilent", "e2", "", "resolved"),
    ]
    firing, resolved = alerts(said)
    assert at(NOW + 3) <= firing.event_time_s <= at(NOW + 3.5)
    assert at(NOW + 6) <= resolved.event_time_s <= at(NOW + 6.7)


def test_an_engine_that_is_silent_for_less_is_not_reported():
    assert alerts(after_learning(calm(2), chapter(0.5, e2=None), calm(3))) == []


def test_an_engine_that_was_heard_a_single_time_is_not_missed():
    """A producer may have invented its name: whoever invents many would page about each."""
    goes_on = from_here(calm(5))
    once = [batch("ghost", at(NOW + 1))]
    twice = [*once, batch("ghost", at(NOW + 1) + 1.0)]

    assert alerts(told(learned_cell(), by_time(goes_on, once))) == []
    assert briefly(alerts(told(learned_cell(), by_time(goes_on, twice)))) == [
        ("EngineSilent", "ghost", "", "firing")
    ]


def test_an_engine_that_was_heard_a_single_time_gives_its_place_back_within_minutes():
    cell = learned_cell()

    told(cell, by_time(from_here(calm(9)), [batch("ghost", at(NOW + 1))]))
    assert "ghost" in cell.state.engines
    told(cell, from_here(calm(9), calm(4))[-3 * 24 :])
    assert "ghost" not in cell.state.engines


def test_an_engine_that_is_silent_is_soon_not_judged_any_more():
    said = verdicts(after_learning(calm(2), chapter(5, e2=None)), "itl_s")

    later = [v for v in said if v.event_time_s > at(NOW + 2 + 1.5)]
    assert {v.drifting for v in later if v.series.engine == "e2"} == {"insufficient"}
    assert {v.drifting for v in later if v.series.engine != "e2"} == {False}


@pytest.mark.parametrize("signal", ["ttft_s", "itl_s", "e2e_s"])
def test_an_engine_that_is_idle_is_soon_not_judged_any_more(signal):
    idle = Load(requests=0.0, steps=0, gauges={"running": 0.0})

    said = verdicts(after_learning(calm(2), chapter(5, e2=idle)), signal)

    later = [v for v in said if v.event_time_s > at(NOW + 2 + 1.5)]
    assert {v.drifting for v in later if v.series.engine == "e2"} == {"insufficient"}
    assert {v.drifting for v in later if v.series.engine in {"e1", "e3"}} == {False}


def test_an_idle_engine_that_sends_its_gauges_is_neither_silent_nor_stalled():
    idle = Load(requests=0.0, steps=0, gauges={"running": 0.0})

    assert alerts(after_learning(calm(2), chapter(8, e2=idle))) == []


def test_an_engine_with_work_in_flight_that_finishes_none_is_stalled_until_it_goes_on():
    said = after_learning(calm(2), chapter(4, e2=BUSY_BUT_STUCK), calm(3))

    assert briefly(alerts(said)) == [
        ("EngineStalled", "e2", "", "firing"),
        ("EngineStalled", "e2", "", "resolved"),
    ]
    firing, resolved = alerts(said)
    assert at(NOW + 3) <= firing.event_time_s <= at(NOW + 3.5)
    assert at(NOW + 6) <= resolved.event_time_s <= at(NOW + 6.7)


def test_a_cell_that_falls_silent_says_nothing_by_itself():
    cell = learned_cell()

    said = told(cell, from_here(calm(2)))

    assert alerts(said) == []


def test_ticks_tell_a_silent_cell_until_it_returns():
    before, after = from_here(calm(2), silence(5))[-1], from_here(calm(2), silence(5), calm(2))
    ticks = [tick(before.end_s + 60.0 * minute) for minute in range(1, 6)]

    said = told(learned_cell(), by_time(after, ticks))

    assert briefly(alerts(said)) == [
        ("CellSilent", "*", "", "firing"),
        ("CellSilent", "*", "", "resolved"),
    ]


def silence_of(cell_name: str) -> list[Alert]:
    """The alerts of a cell that falls silent and returns."""
    records = story(calm(2), silence(5), calm(2))
    ticks = [tick(at(2) + 60.0 * minute) for minute in range(1, 6)]
    return alerts(told(new_cell(name=cell_name), by_time(records, ticks)))


def test_each_cell_of_a_model_is_silent_for_itself():
    first, second, only = (silence_of(name) for name in (f"{MODEL}/0", f"{MODEL}/1", MODEL))

    assert [alert.labels.get("cell") for alert in (*first, *second)] == [
        f"{MODEL}/0",
        f"{MODEL}/0",
        f"{MODEL}/1",
        f"{MODEL}/1",
    ]
    assert {alert.fingerprint for alert in first}.isdisjoint(a.fingerprint for a in second)
    assert "cell" not in only[0].labels


def test_a_pause_of_a_day_is_no_engines_silence():
    said = after_learning(calm(2), silence(24 * 60), calm(5))

    assert alerts(said) == []
    assert len(verdicts(said, "itl_s")) == pytest.approx(4 * 7 * 6, abs=8)


def test_after_a_pause_it_goes_on_with_what_it_has_learned():
    said = after_learning(calm(2), silence(24 * 60), calm(3), chapter(5, slower(1.3)))

    assert [a.labels.get("engine") for a in alerts(said, "firing")] == [None]


def test_an_engine_that_does_not_come_back_after_a_pause_is_silent_from_then_on():
    said = after_learning(calm(2), silence(60), chapter(4, e2=None))

    [firing] = alerts(said)
    assert briefly([firing]) == [("EngineSilent", "e2", "", "firing")]
    assert firing.event_time_s >= at(NOW + 63)


def test_a_stop_ends_what_an_engine_has_begun():
    stop = change("stop", at(NOW + 6), "e2")

    said = told(learned_cell(), by_time(from_here(calm(2), chapter(6, e2=None)), [stop]))

    assert briefly(alerts(said)) == [
        ("EngineSilent", "e2", "", "firing"),
        ("EngineSilent", "e2", "", "resolved"),
    ]


def test_a_stop_ends_a_drift_as_well():
    slow = from_here(calm(3), chapter(5, e2=slower(1.3)), chapter(4, e2=None))

    said = told(learned_cell(), by_time(slow, [change("stop", at(NOW + 8), "e2")]))

    about_e2 = [a for a in alerts(said) if a.labels.get("engine") == "e2" and a.state != "pending"]
    assert [a.state for a in about_e2] == ["firing", "resolved"]
    assert about_e2[-1].annotations["summary"] == "engine e2 was stopped, or is long gone"


# What somebody announced


@pytest.mark.parametrize("engine", ["e2", None], ids=["of the engine", "of all"])
def test_a_maintenance_window_mutes_what_happens_inside_it(engine):
    window = change("maintenance", at(NOW + 2), engine, until_s=at(NOW + 20), detail="new driver")

    slow = from_here(calm(3), chapter(6, e2=slower(1.3)))
    said = told(learned_cell(), by_time([window], slow))

    assert alerts(said, "firing") == []
    muted = [o for o in said if isinstance(o, Suppression) and o.labels.get("engine") == "e2"]
    assert {(o.rule, o.why, o.until_s) for o in muted} == {
        ("maintenance", "maintenance new driver", at(NOW + 20))
    }
    assert len(muted) == len({o.fingerprint for o in muted})


def test_a_drift_that_outlasts_the_maintenance_fires_when_it_ends():
    window = change("maintenance", at(NOW + 2), "e2", until_s=at(NOW + 8))

    slow = from_here(calm(3), chapter(7, e2=slower(1.3)))
    said = told(learned_cell(), by_time([window], slow))

    assert {a.event_time_s for a in alerts(said, "firing")} == {at(NOW + 8)}


def test_a_deploy_shortly_before_is_the_first_cause_to_look_at():
    deploy = change("deploy", at(NOW + 2.5), version="v2")

    slow = from_here(calm(3), chapter(5, slower(1.3)))
    said = told(learned_cell(), by_time(slow, [deploy]))

    [trigger] = triggers(said)
    assert trigger.causes[0].cause == "change_deploy"
    assert "deploy v2" in trigger.causes[0].evidence[0]


def test_another_engines_change_is_not_to_blame():
    lora = change("lora", at(NOW + 2.5), "e1")

    slow = from_here(calm(3), chapter(5, e2=slower(1.3)))
    said = told(learned_cell(), by_time(slow, [lora]))

    assert {cause.cause for trigger in triggers(said) for cause in trigger.causes} == {"unknown"}


def test_a_restart_seen_by_its_new_boot_is_a_change():
    records = from_here(calm(3), chapter(5, e2=slower(1.3)))
    restarted = [
        msgspec.structs.replace(record, source=source("e2", record.source.seq, "boot-2"))
        if record.source.engine == "e2" and record.start_s >= at(NOW + 3)
        else record
        for record in records
    ]

    [trigger] = triggers(told(learned_cell(), restarted))

    assert trigger.causes[0].cause == "change_restart"


def test_a_restart_that_says_what_is_configured_is_told_in_its_own_words():
    records = from_here(calm(3), chapter(5, e2=slower(1.3)))
    restarted = [
        msgspec.structs.replace(record, source=source("e2", record.source.seq, "boot-2"))
        if record.source.engine == "e2" and record.start_s >= at(NOW + 3)
        else record
        for record in records
    ]
    said_so = ChangeEvent(
        source=source("e2", None, "boot-2"),
        time_s=at(NOW + 3),
        kind="restart",
        detail="max_num_seqs=1",
    )

    [trigger] = triggers(told(learned_cell(), by_time(restarted, [said_so])))

    assert "restart max_num_seqs=1" in trigger.causes[0].evidence[0]


def test_a_hosts_gpu_readings_explain_its_engines_slowdown():
    cell = learned_cell()
    hot = from_here(calm(6), chapter(5, e2=slower(1.3)))
    readings = [gpus(minute / 6.0, throttled=minute >= 36) for minute in range(66)]

    [trigger] = triggers(told(cell, by_time(hot, readings)))

    assert trigger.causes[0].cause == "gpu_thermal"


def gpus(minute, *, throttled):
    reading = {"sm_clock_mhz": 1_155.0, "temperature_c": 90.0, "throttle_thermal": 1.0}
    usual = {"sm_clock_mhz": 1_875.0, "temperature_c": 62.0, "throttle_thermal": 0.0}
    return GpuSample(
        source=Source(model=MODEL, engine="e2"),
        time_s=at(NOW + minute),
        gpus=(reading if throttled else usual,),
    )
