"""A partition speaks for itself where no cell can: of cells refused, of what nobody could read."""

import msgspec
import pytest

from daom.codec import encode_json, encode_output
from daom.config import Config
from daom.fold import Fold
from daom.limit_conditions import RECENTLY_S
from daom.presets import cell_settings
from tests.daom.stories import MODEL, T0, at, batch, briefly, calm, moved, source, story, tick

GOES_ON = story(calm(14), engines=("e1",))
TOO_LARGE = b'{"' + b"x" * 4_000


def fold_of(partition=3, max_message_bytes=3_000, **limits):
    settings = cell_settings(Config.model_validate({"limits": limits}))
    return Fold(settings, max_message_bytes, partition)


def of_model(model, time_s, seq=None):
    return batch("e1", time_s, source=msgspec.structs.replace(source("e1", seq), model=model))


def taken(fold, *records, key=...):
    """What records, filed under their models, or values filed under ``key`` made due."""
    said = []
    for record in records:
        value = record if isinstance(record, bytes) else encode_json(record)
        name = record.source.model if key is ... else key
        said += fold.take(value, name, logged_s=None).outputs
    return said


def small(records):
    """The same beats, but without rows: shorter than the limit on messages."""
    return [batch("e1", record.start_s, record.end_s) for record in records]


BEATS = small(GOES_ON)


def of_limits(outputs):
    return [a for a in moved(outputs) if a.name == "LimitReached"]


def test_refused_cells_raise_one_alert_of_their_partition_which_resolves_afterwards():
    fold = fold_of(cells=1)

    said = taken(fold, BEATS[0], of_model("m1", T0), of_model("m2", T0), *BEATS[1:])

    fired, resolved = of_limits(said)
    assert (fired.state, resolved.state) == ("firing", "resolved")
    assert fired.labels == {
        "alertname": "LimitReached",
        "partition": "3",
        "severity": "warning",
        "limit": "cells",
    }
    assert (
        fired.annotations["summary"]
        == "more than the 1 cells of a partition that are allowed: 2 records were refused, or in "
        "part; they are dead letters"
    )
    assert "'m2'" in fired.annotations["latest"]
    assert resolved.event_time_s - fired.event_time_s == pytest.approx(RECENTLY_S, abs=30.0)


def test_each_partition_has_an_alert_of_its_own():
    alerts = []
    for number in (0, 1, None):
        said = taken(fold_of(number, cells=1), BEATS[0], of_model("m1", T0), *BEATS[1:])
        alerts.append(of_limits(said)[0])

    assert len({alert.fingerprint for alert in alerts}) == 3
    assert len({alert.id for alert in alerts}) == 3
    assert "partition" not in alerts[2].labels, "a recording has none"


def test_a_message_that_nobody_could_read_is_told_by_the_cell_of_its_key_or_else_by_the_partition():
    of_the_cell, of_the_partition = fold_of(), fold_of()

    told = taken(of_the_cell, BEATS[0])
    told += taken(of_the_cell, TOO_LARGE, key=MODEL) + taken(of_the_cell, *BEATS[1:])
    said = taken(of_the_partition, BEATS[0])
    said += taken(of_the_partition, TOO_LARGE, key="other") + taken(of_the_partition, *BEATS[1:])

    assert [(a.labels["model"], a.state) for a in of_limits(told)] == [
        (MODEL, "firing"),
        (MODEL, "resolved"),
    ]
    assert [(a.labels["partition"], a.labels["limit"], a.state) for a in of_limits(said)] == [
        ("3", "message_bytes", "firing"),
        ("3", "message_bytes", "resolved"),
    ]


def test_a_log_of_nothing_but_messages_that_are_too_large_says_so_by_the_logs_time():
    fold = fold_of()

    said = [o for n in range(6) for o in fold.take(TOO_LARGE, "m", T0 + 10.0 * n).outputs]

    assert [(a.labels["limit"], a.state) for a in said] == [("message_bytes", "firing")]
    assert fold.cells == {}


def test_where_only_refused_ones_send_it_fires_while_they_do():
    fold = fold_of(cells=1)
    taken(fold, BEATS[0])

    said = taken(fold, *(of_model(f"m{n}", T0 + 10.0 * n) for n in range(1, 60)))

    assert [a.state for a in of_limits(said)] == ["firing"]


def test_a_gap_resolves_nothing_and_a_tick_does():
    fold = fold_of(cells=1)
    taken(fold, BEATS[0], of_model("m1", T0))
    fired = taken(fold, *BEATS[1:6])

    in_the_gap = taken(fold, tick(at(3)))
    after = taken(fold, tick(at(8)), tick(at(9)))

    assert [a.state for a in of_limits(fired)] == ["firing"]
    assert of_limits(in_the_gap) == []
    assert ("LimitReached", "*", "", "resolved") in briefly(of_limits(after))


@pytest.mark.parametrize("off_s", [-86_400.0, 86_400.0 * 365])
def test_a_strangers_wrong_clock_moves_nothing(off_s):
    fold = fold_of(cells=1)
    strangers = [of_model(f"m{n}", T0 + off_s + n) for n in range(5)]

    said = taken(fold, *BEATS[:3], *strangers, *BEATS[3:])

    fired, resolved = of_limits(said)
    assert T0 < fired.event_time_s < at(1)
    assert fired.event_time_s < resolved.event_time_s < at(8)


def test_a_producer_that_invents_models_gets_one_alert_and_leaves_nothing_behind():
    fold = fold_of(cells=1)

    said = taken(fold, BEATS[0])
    for beat in BEATS[1:]:
        said += taken(fold, *(of_model(f"m{beat.start_s}-{n}", beat.start_s) for n in range(50)))
        said += taken(fold, beat)

    assert [a.state for a in of_limits(said)] == ["firing"]
    assert len(fold.door.state.clock.own_s) == 2
    assert len(fold.door.state.desk.lives) == 1


def test_what_the_known_cells_say_is_the_same_to_the_byte():
    noisy = [r for beat in GOES_ON for r in (beat, of_model("m", beat.start_s))]

    alone = taken(fold_of(max_message_bytes=10**6, cells=1), *GOES_ON)
    among = taken(fold_of(max_message_bytes=10**6, cells=1), *noisy)

    of_cells = [encode_output(o) for o in among if o.cell == MODEL]
    assert of_cells == [encode_output(o) for o in alone]
    assert len(among) > len(of_cells)


def test_a_partition_that_refuses_nothing_says_nothing():
    assert all(o.cell == MODEL for o in taken(fold_of(), *BEATS))
