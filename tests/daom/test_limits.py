"""Whatever producers invent, a cell stays bounded, and who was there before is not silenced."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daom.codec import MAX_GPUS, encode_json, encode_output
from daom.config import Config
from daom.context import _MAX_COUNTERS, ContextState
from daom.events import Alert, GpuSample
from daom.fold import Fold
from daom.limit_conditions import RECENTLY_S, note_hit
from daom.presets import cell_settings
from tests.daom.messages import CHANGE, GOOD, GPUS, changed, written
from tests.daom.stories import (
    MODEL,
    T0,
    at,
    batch,
    briefly,
    calm,
    change,
    moved,
    source,
    story,
    tick,
)

KNOWN = ("e1", "e2")
OWN_QUANTITIES = 32
"""More than a cell makes of requests, steps and GPUs by itself."""

names = st.text(min_size=1, max_size=20).filter(lambda name: name not in KNOWN)


def fold_with(forget_after_s=21_600.0, **limits):
    config = Config.model_validate({"limits": limits, "alerts": {"forget_after_s": forget_after_s}})
    return Fold(cell_settings(config))


def taken(fold, *records):
    """What the bytes of ``records`` made due, and the faults in them."""
    folded = [fold.take(encode_json(record), MODEL) for record in records]
    return [o for f in folded for o in f.outputs], [x for f in folded for x in f.faults]


def without_limit_alerts(outputs):
    return [encode_output(o) for o in outputs if getattr(o, "name", "") != "LimitReached"]


def engines(fold):
    return list(fold.cells[MODEL].state.engines)


# Engines


@given(st.lists(names, max_size=30), st.integers(1, 5))
def test_no_more_engines_are_held_than_allowed(invented, allowed):
    fold = fold_with(engines=allowed)

    _, faults = taken(fold, *(batch(name, T0) for name in invented))

    distinct = list(dict.fromkeys(invented))
    assert engines(fold) == sorted(distinct[:allowed]) if invented else fold.cells == {}
    assert {fault.limit for fault in faults} == ({"engines"} if len(distinct) > allowed else set())


CALM = story(calm(3), engines=KNOWN)
TOLD = taken(fold_with(), *CALM)[0]
noise = st.lists(
    st.tuples(st.integers(2, len(CALM)), names, st.floats(-7_200.0, 86_400.0)), max_size=20
)


@settings(deadline=None, max_examples=30)
@given(noise)
def test_what_is_said_of_known_engines_is_the_same_to_the_byte_under_noise(invented):
    """Whenever it comes, whatever its clock says, and whatever it claims to have measured."""
    records = list(CALM)
    for place, name, off_s in sorted(invented, key=lambda each: each[0], reverse=True):
        slow = msgspec.structs.replace(CALM[0], source=source(name), end_s=T0 + 9.9 + off_s)
        records.insert(place, msgspec.structs.replace(slow, start_s=slow.end_s, gauges={"x": 1.0}))
    fold = fold_with(engines=len(KNOWN))

    said, _ = taken(fold, *records)

    assert without_limit_alerts(said) == [encode_output(o) for o in TOLD]
    assert engines(fold) == list(KNOWN)


def test_a_hundred_thousand_invented_names_leave_the_state_as_large_as_a_thousand():
    fold, sizes = fold_with(engines=20), []
    template = encode_json(batch("NAME", T0, gauges={"running": 1.0}))
    for number in range(100_000):
        fold.take(template.replace(b"NAME", f"pod-{number:06}".encode()), MODEL)
        if number + 1 in {1_000, 100_000}:
            sizes.append(len(msgspec.msgpack.encode(fold.cells[MODEL].state, enc_hook=plain)))

    state = fold.cells[MODEL].state
    assert (len(state.engines), len(state.clock.own_s), len(state.clock.leaps)) == (20, 20, 0)
    assert state.limits["engines"].count == 100_000 - 20
    assert sizes[1] <= sizes[0] + 16, "but for the digits of the count"


def plain(value):
    return value.tolist() if isinstance(value, np.ndarray) else value.snapshot()


def test_an_engine_that_is_gone_for_good_frees_its_place():
    fold = fold_with(engines=2, forget_after_s=300.0)
    goes_on = story(calm(8), engines=("e1",))

    taken(fold, goes_on[0], batch("ghost", T0))
    _, refused = taken(fold, batch("new", T0 + 10.0), *goes_on[1:])
    _, admitted = taken(fold, batch("new", at(8)))

    assert ([fault.limit for fault in refused], admitted) == (["engines"], [])
    assert engines(fold) == ["e1", "new"]


def test_a_cell_full_of_the_dead_comes_free_once_real_time_has_passed():
    """Those that are refused show that the cell goes on, though nobody in it does.

    The clock doubts the first who comes after so long a silence, and takes some minutes to believe.
    """
    fold = fold_with(engines=1, forget_after_s=300.0)
    taken(fold, batch("ghost", T0))

    for minute in range(1, 12):
        taken(fold, tick(at(minute)), batch("new", at(minute)))

    assert engines(fold) == ["new"]


def test_who_is_refused_does_not_hide_that_all_others_are_silent():
    fold = fold_with(engines=1)
    taken(fold, *story(calm(1), engines=("e1",)))

    said, _ = taken(
        fold,
        *(r for minute in range(2, 6) for r in (batch("new", at(minute)), tick(at(minute)))),
    )

    assert ("CellSilent", "*", "", "firing") in briefly(moved(said))


@pytest.mark.parametrize("stops", [5_000])
def test_engines_that_come_and_are_stopped_leave_nothing_behind(stops):
    fold = fold_with(engines=5)
    taken(fold, *story(calm(1), engines=KNOWN))
    for number in range(stops):
        name, ahead_s = f"pod-{number}", at(500) + 200.0 * number
        taken(fold, batch(name, ahead_s), change("stop", at(1), name), batch(name, at(1)))

    assert len(fold.cells[MODEL].state.clock.own_s) <= 5


def test_clocks_that_are_far_ahead_leave_a_bounded_number_of_claims_behind():
    fold = fold_with(engines=5)
    taken(fold, *story(calm(1), engines=KNOWN))
    for number in range(200):
        name = f"pod-{number}"
        taken(fold, batch(name, at(500) + 200.0 * number), change("stop", at(1), name))

    assert len(fold.cells[MODEL].state.clock.leaps) == 64


# The alert


def test_an_alert_fires_while_a_limit_is_being_hit_and_resolves_afterwards():
    fold = fold_with(engines=1)
    goes_on = story(calm(12), engines=("e1",))

    said, _ = taken(fold, goes_on[0], batch("new", T0), batch("newer", T0), *goes_on[1:])

    fired, resolved = [a for a in moved(said) if a.name == "LimitReached"]
    assert (fired.state, resolved.state) == ("firing", "resolved")
    assert fired.labels == {
        "alertname": "LimitReached",
        "model": MODEL,
        "severity": "warning",
        "limit": "engines",
    }
    assert (
        "more than the 1 engines of a cell that are allowed: 2 records"
        in (fired.annotations["summary"])
    )
    assert "'newer'" in fired.annotations["latest"]
    assert resolved.event_time_s - fired.event_time_s == pytest.approx(RECENTLY_S, abs=30.0)


def test_each_limit_has_an_alert_of_its_own():
    fold = fold_with(engines=1, rows=1)
    goes_on = story(calm(1), engines=("e1",))
    first, *rest = [msgspec.structs.replace(r, requests=r.requests, steps=r.steps) for r in goes_on]
    small = [batch("e1", r.start_s, r.end_s) for r in (first, *rest)]
    many = encode_json(goes_on[0])

    taken(fold, small[0], batch("new", T0))
    folded = fold.take(many, MODEL)
    said, _ = taken(fold, *small[1:])

    assert [fault.limit for fault in folded.faults] == ["rows"]
    alerts = [o for o in said if isinstance(o, Alert) and o.name == "LimitReached"]
    assert {(a.labels["limit"], a.state) for a in alerts} == {
        ("engines", "firing"),
        ("rows", "firing"),
    }
    assert len({a.fingerprint for a in alerts}) == 2


def test_a_limit_is_not_muted_by_the_end_of_another_and_does_not_keep_it_from_ending():
    fold = fold_with(engines=1, rows=1)
    many = encode_json(story(calm(1), engines=("e1",))[0])
    said = taken(fold, batch("e1", T0), batch("new", T0))[0]
    for number in range(1, 60):
        if number >= 40:
            fold.take(many, MODEL)
        said += taken(fold, batch("e1", T0 + 10.0 * number))[0]

    limits = [(a.labels["limit"], a.state) for a in moved(said) if a.name == "LimitReached"]
    assert limits == [("engines", "firing"), ("engines", "resolved"), ("rows", "firing")]


def test_two_limits_hit_at_once_end_each_at_its_own_time():
    fold = fold_with(engines=1, rows=1)
    many = encode_json(story(calm(1), engines=("e1",))[0])
    said = taken(fold, batch("e1", T0), batch("new", T0))[0]
    for number in range(1, 40):
        fold.take(many, MODEL)
        said += taken(fold, batch("e1", T0 + 10.0 * number))[0]

    ended = [a.labels["limit"] for a in moved(said) if a.state == "resolved"]
    assert [limit for limit in ended if limit] == ["engines"]


def test_hits_are_counted_anew_after_a_pause():
    hits = {}
    for now_s in (0.0, 1.0, 1.0 + RECENTLY_S):
        note_hit(hits, "engines", 5, "x", now_s)
    without_a_pause = hits["engines"].count
    note_hit(hits, "engines", 5, "x", 2.0 + 2.0 * RECENTLY_S)

    assert (without_a_pause, hits["engines"].count) == (3, 1)


def test_a_cell_that_never_meets_a_limit_never_speaks_of_one():
    assert [o for o in TOLD if getattr(o, "name", "") == "LimitReached"] == []


# What one engine may invent


@given(st.lists(st.lists(names, max_size=8, unique=True), max_size=12))
@settings(deadline=None)
def test_gauges_beyond_the_limit_are_left_out_and_the_rest_of_the_batch_is_used(invented):
    fold = fold_with(quantities=5)
    for number, gauges in enumerate(invented):
        told = dict.fromkeys(gauges, 1.0) | {"running": float(number)}
        taken(fold, batch("e1", T0 + 10.0 * number, gauges=told))

    for cell in fold.cells.values():
        context = cell.state.engines["e1"].context
        assert context.size() <= 5 + OWN_QUANTITIES
        assert len(context.levels.keys() & {n for names in invented for n in names}) <= 5
        assert cell.state.engines["e1"].in_flight in {0.0, float(len(invented) - 1)}


def test_the_gauges_that_an_engine_is_known_by_go_on():
    fold = fold_with(quantities=2)
    taken(fold, batch("e1", T0, gauges={"running": 1.0, "kv_usage": 0.5}))

    _, [fault] = taken(fold, batch("e1", T0 + 1.0, gauges={"a": 1.0, "running": 3.0, "b": 1.0}))

    context = fold.cells[MODEL].state.engines["e1"].context
    assert context.sums["running"] == 4.0
    assert (fault.kind, fault.limit, fault.field) == ("limit", "quantities", "gauges")
    assert "got 'a', 'b', beyond the 2 gauges" in str(fault)


def test_readings_of_a_gpu_beyond_the_limit_are_left_out():
    fold = fold_with(quantities=1)
    taken(fold, batch("e1", T0))
    gpus = ({"power_w": 300.0, "a": 1.0, "b_total": 2.0},)

    _, faults = taken(fold, GpuSample(source=source("e1"), time_s=T0, gpus=gpus))

    assert [fault.limit for fault in faults] == ["quantities"]
    assert list(fold.cells[MODEL].state.engines["e1"].context.sums) == ["gpu_power_w"]


def test_a_quantity_that_nobody_reports_any_more_frees_its_place():
    context = ContextState()
    context.add("old", 1.0)
    for _ in range(8):
        context.add("new", 1.0)
        context.close_pane(10.0, calm=True, forget_after_s=60.0)

    assert list(context.levels) == ["new"]


def test_a_gauge_that_has_not_come_for_long_makes_room_for_another():
    fold = fold_with(quantities=1, forget_after_s=120.0)
    taken(fold, batch("e1", T0, gauges={"old": 1.0}))
    faults = [taken(fold, batch("e1", T0 + 10.0 * n, gauges={"new": 1.0}))[1] for n in range(1, 30)]

    assert [len(found) for found in (faults[0], faults[-1])] == [1, 0]
    assert list(fold.cells[MODEL].state.engines["e1"].context.levels) == ["new"]


def test_counters_of_frontends_that_are_gone_are_forgotten_the_oldest_first():
    fold = fold_with()
    for number in range(_MAX_COUNTERS + 500):
        for frontend in ("stays", f"pod-{number}"):
            who = msgspec.structs.replace(source("e1", boot=None), frontend=frontend)
            taken(fold, batch("e1", T0, source=who, gauges={"finished_total": float(number)}))

    counters = fold.cells[MODEL].state.engines["e1"].context.counters
    assert len(counters) == _MAX_COUNTERS
    assert "pod-0|finished_total" not in counters
    increases = fold.cells[MODEL].state.engines["e1"].context.sums["finished_total"]
    assert increases == _MAX_COUNTERS + 499, "of the one that stays, none was missed"


@pytest.mark.parametrize("kind", ["maintenance", "deploy"])
def test_changes_that_are_still_to_come_are_bounded(kind):
    fold = fold_with(changes=3)
    planned = [change(kind, at(60 + n), until_s=at(90 + n)) for n in range(10)]

    _, faults = taken(fold, batch("e1", T0), *planned)

    state = fold.cells[MODEL].state
    assert len(state.desk.maintenance) + len(state.renewals) == 3
    assert [fault.limit for fault in faults] == ["changes"] * 7


# Cells, and one record


def test_cells_beyond_the_limit_are_refused_and_the_others_go_on():
    fold = fold_with(cells=2)
    values = [
        encode_json(batch("e", T0, source=msgspec.structs.replace(source("e"), model=f"m{n}")))
        for n in range(5)
    ]

    faults = [fault for n in range(5) for fault in fold.take(values[n], f"m{n}").faults]

    assert list(fold.cells) == ["m0", "m1"]
    assert [(f.kind, f.limit) for f in faults] == [("limit", "cells")] * 3
    assert fold.take(values[0], "m0").record is not None


LONG = "x" * 201
TOO_MUCH = [
    (GOOD, "source.engine", LONG, "name_chars"),
    (GOOD, "gauges", {LONG: 1.0}, "name_chars"),
    (GOOD, "requests", {LONG: [1.0]}, "name_chars"),
    (GOOD, "requests", {"ttft_s": [0.1] * 100_001}, "rows"),
    (GOOD, "gauges", {f"g{n}": 1.0 for n in range(65)}, "columns"),
    (GOOD, "histograms", {"e2e_s": {"le_s": [1.0] * 513, "counts": [1] * 513}}, "buckets"),
    (GPUS, "gpus", [{}] * (MAX_GPUS + 1), "gpus"),
    (GPUS, "gpus", [{"uuid": LONG}], "name_chars"),
    (CHANGE, "source.model", LONG, "name_chars"),
    (CHANGE, "detail", "x" * 4_001, "detail_chars"),
    (CHANGE, "kind", "x" * 4_001, "detail_chars"),
    (CHANGE, "version", "x" * 4_001, "detail_chars"),
]


@pytest.mark.parametrize(("fields", "path", "value", "limit"), TOO_MUCH)
def test_a_record_with_too_much_in_it_is_refused_and_says_of_what(fields, path, value, limit):
    folded = fold_with().take(written(changed(fields, path, value)), None)

    [fault] = folded.faults
    assert (folded.record, fault.kind, fault.limit) == (None, "too_large", limit)
    assert f"at most {fault.allowed} are allowed" in str(fault)


@pytest.mark.parametrize("key", [None, "m"])
def test_a_refused_record_tells_the_cell_it_was_meant_for_and_only_that(key):
    fold = fold_with(columns=4)
    fold.take(written(GOOD), key)
    too_many = changed(GOOD, "gauges", {f"g{n}": 1.0 for n in range(5)})

    noted = fold.take(written(too_many), key).noted
    elsewhere = fold.take(written(changed(too_many, "source.model", "other")), "m").noted

    assert (noted, elsewhere) == (True, False)
    assert fold.cells["m"].state.limits["columns"].count == 1
