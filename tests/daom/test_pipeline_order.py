"""What a cell says does not depend on how its records travelled."""

from collections import Counter

import msgspec
import numpy as np
import pytest

from daom.codec import decode, decode_output, encode_json, encode_output
from daom.config import Config
from daom.events import TelemetryBatch
from daom.pipeline import Cell
from daom.presets import cell_settings
from tests.daom.stories import (
    ENGINES,
    LEARNED_MINUTES,
    MODEL,
    T0,
    ahead,
    alerts,
    at,
    batch,
    by_time,
    calm,
    change,
    chapter,
    from_here,
    learned_cell,
    new_cell,
    outputs,
    plain_floats,
    slower,
    story,
    table,
    told,
    verdicts,
)

NOW = LEARNED_MINUTES

# What goes wrong on the way


def test_samples_that_come_too_late_are_counted_and_change_nothing():
    late = batch("e1", at(NOW + 1), requests=story(calm(1), engines=("e1",))[0].requests)
    rows = late.requests.end_s - late.requests.end_s.max() + late.end_s
    late = msgspec.structs.replace(
        late,
        start_s=float(rows.min()),
        requests=msgspec.structs.replace(late.requests, end_s=rows),
    )
    with_late, without = learned_cell(), learned_cell()

    said = told(with_late, [*from_here(calm(3)), late])

    assert said == told(without, from_here(calm(3)))
    assert with_late.state.counters == {"late_samples": 2 * late.requests.rows}
    assert open_panes(with_late) == open_panes(without)


def open_panes(cell):
    engines = cell.state.engines.values()
    return [sorted(series.panes) for engine in engines for series in engine.series.values()]


def test_batches_sent_twice_change_nothing():
    records = from_here(calm(3), chapter(3, slower(1.3)))
    twice = [each for record in records for each in (record, record)]
    cell = learned_cell()

    assert told(cell, twice) == told(learned_cell(), records)
    assert cell.state.counters == {"duplicate_batches": len(records)}


def test_an_engine_with_a_clock_a_day_ahead_does_not_drag_the_cell():
    records = [
        ahead(record, 86_400.0) if record.source.engine == "e2" else record
        for record in from_here(calm(5))
    ]
    cell = learned_cell()

    said = told(cell, records)

    assert cell.state.clock.now_s < at(NOW + 6)
    assert cell.state.counters == {"restamped_batches": 30}
    assert alerts(said) == []
    newest = {v.series.engine: v for v in verdicts(said, "ttft_s")}
    assert {v.drifting for v in newest.values()} == {False}
    assert all(200 < newest[engine].samples < 300 for engine in ENGINES)


def test_rows_of_a_restamped_batch_keep_their_distances():
    cell = new_cell()
    told(cell, [batch("e1", T0), batch("e2", T0), batch("e1", T0 + 13.0)])
    tomorrow_s = T0 + 86_400.0
    rows = table([tomorrow_s - 8.0, tomorrow_s], ttft_s=[0.1, 0.2])

    told(cell, [batch("e2", tomorrow_s - 8.0, tomorrow_s, requests=rows)])

    first = T0 // 10.0
    assert open_panes(cell) == [[first, first + 1]]


# The same wherever and whenever it is computed


@pytest.fixture(scope="module")
def eventful():
    """The records of a story in which much happens."""
    return by_time(
        story(calm(13), chapter(4, e2=slower(1.3)), chapter(2, slower(3.0), e3=None), calm(4)),
        [change("deploy", at(12.5)), change("maintenance", at(18), "e3", until_s=at(19))],
    )


@pytest.fixture(scope="module")
def said_of_it(eventful):
    """What a cell says of them."""
    return outputs(eventful)


def test_the_same_records_give_the_same_bytes(eventful, said_of_it):
    again = [encode_output(output) for output in outputs(eventful)]

    assert again == [encode_output(output) for output in said_of_it]


def test_every_output_has_an_id_of_its_own(said_of_it):
    ids = Counter(output.id for output in said_of_it)

    assert [one for one, times in ids.items() if times > 1] == []


def test_every_output_names_its_cell_and_its_time(said_of_it):
    assert {output.cell for output in said_of_it} == {MODEL}
    assert all(at(0) <= output.event_time_s <= at(24) for output in said_of_it)


def test_no_output_holds_a_number_that_is_none(said_of_it):
    numbers = [number for output in said_of_it for number in plain_floats(output)]

    assert len(numbers) > 1_000
    assert np.isfinite(numbers).all()


def test_every_output_survives_the_topic(said_of_it):
    assert [decode_output(encode_output(output)) for output in said_of_it] == said_of_it


def test_the_order_of_different_engines_batches_within_a_pane_changes_nothing(eventful, said_of_it):
    panes = {}
    for record in eventful:
        panes.setdefault(seconds(record) // 10.0, []).append(record)
    mixed = [record for pane in panes.values() for record in sorted(pane, key=last_engine_first)]

    assert mixed != eventful
    assert verdicts(outputs(mixed)) == verdicts(said_of_it)


def seconds(record):
    return record.end_s if isinstance(record, TelemetryBatch) else record.time_s


def last_engine_first(record):
    return ENGINES[::-1].index(record.source.engine) if record.source.engine in ENGINES else -1


def test_cells_of_one_model_never_share_an_id():
    records = story(calm(2), engines=("e1",))
    settings = cell_settings(Config())

    first, second = (
        {o.id for o in told(Cell(f"{MODEL}/{n}", MODEL, settings), records)} for n in (0, 1)
    )

    assert first
    assert first.isdisjoint(second)


def test_json_and_objects_give_the_same_verdicts():
    records = story(calm(14), engines=("e1",))
    travelled = [decode(encode_json(record)).record for record in records]

    assert outputs(travelled) == outputs(records)
