"""Values of many cells, folded: every cell gets its own, and nothing is lost without a reason."""

from collections import Counter

import pytest

from daom.codec import encode_json, encode_msgpack
from daom.config import Config
from daom.fold import Fold
from daom.presets import cell_settings
from tests.daom.messages import GOOD, changed, written
from tests.daom.stories import MODEL, T0, calm, new_cell, story, told


@pytest.fixture
def fold():
    return Fold(cell_settings(Config()))


def test_a_value_is_folded_into_the_cell_of_its_model(fold):
    folded = fold.take(written(GOOD), key=None)

    assert (folded.record.source.model, folded.faults) == ("m", ())
    assert list(fold.cells) == ["m"]


@pytest.mark.parametrize("key", [MODEL, f"{MODEL}/0", f"{MODEL}/17"])
def test_the_log_says_which_cell_of_its_model_a_value_is_for(fold, key):
    fold.take(encode_json(story(calm(1))[0]), key)

    assert list(fold.cells) == [key]


@pytest.mark.parametrize("key", ["other", f"{MODEL}/x", f"{MODEL}/", f"other/{MODEL}", ""])
def test_a_value_filed_under_a_foreign_key_is_refused(fold, key):
    folded = fold.take(encode_json(story(calm(1))[0]), key)

    [fault] = folded.faults
    assert (folded.record, folded.outputs, fault.kind) == (None, (), "wrong_key")
    assert repr(key) in str(fault)
    assert f"'{MODEL}'" in str(fault)
    assert fold.cells == {}


def test_a_value_beyond_use_makes_no_cell(fold):
    folded = fold.take(b"junk", key=None)

    assert [fault.kind for fault in folded.faults] == ["not_decodable"]
    assert (folded.record, fold.cells) == (None, {})


def test_what_can_be_used_of_a_value_is_folded_and_the_rest_is_named(fold):
    folded = fold.take(written(changed(GOOD, "requests.ttft_s", [-1.0, 0.5])), key=None)

    assert [fault.kind for fault in folded.faults] == ["negative"]
    assert folded.record.requests.rows == 2
    assert list(fold.cells) == ["m"]


@pytest.mark.parametrize("encode", [encode_json, encode_msgpack])
def test_folding_bytes_says_what_stepping_records_says(fold, encode):
    records = story(calm(14), engines=("e1",))

    said = [o for record in records for o in fold.take(encode(record), MODEL).outputs]

    assert said == told(new_cell(), records)


def test_cells_do_not_hear_of_each_other(fold):
    records = story(calm(3), engines=("e1",))

    both = [
        output
        for record in records
        for key in (f"{MODEL}/0", f"{MODEL}/1")
        for output in fold.take(encode_json(record), key).outputs
    ]

    assert len(set(Counter(output.cell for output in both).values())) == 1
    assert fold.counters() == {}


def test_what_cells_count_is_added_up(fold):
    value = encode_json(story(calm(1))[0])
    for key in (f"{MODEL}/0", f"{MODEL}/1"):
        for _ in range(3):
            fold.take(value, key)

    assert fold.counters() == {"duplicate_batches": 4}


def test_a_restored_cell_goes_on_where_it_was(fold):
    records = story(calm(14), engines=("e1",))
    cell = new_cell()
    before = told(cell, records[:50])

    fold.restore(MODEL, MODEL, cell.state)
    after = [o for record in records[50:] for o in fold.take(encode_json(record), None).outputs]

    assert before + after == told(new_cell(), records)


def test_the_logs_time_bounds_the_first_record(fold):
    fold.take(written(GOOD), key=None, logged_s=T0 - 3_600.0)

    assert fold.cells["m"].state.clock.now_s < T0
