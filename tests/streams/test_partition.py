"""A partition knows how far it has come: what comes twice is skipped, what is older is healed."""

import pytest

from daom.codec import encode_json
from daom.config import Config
from daom.fold import Fold
from daom.presets import cell_settings
from daom.replay import LogRecord
from streams.checkpoint import Checkpoint, decode_checkpoint
from streams.partition import PartitionFold
from tests.daom.stories import MODEL, calm, story

SETTINGS = cell_settings(Config())
VALUES = [encode_json(record) for record in story(calm(3), engines=("e1",))]
NOW_S = 1_000.0


def partition(position=0):
    return PartitionFold(3, Fold(SETTINGS), position, partitions=8)


def record(offset, value=None, cell=MODEL):
    key = None if cell is None else cell.encode()
    return LogRecord(offset, key, VALUES[offset] if value is None else value, None)


def taken(fold, offsets, cell=MODEL):
    """What the records at ``offsets`` made due."""
    found = [fold.take(record(offset, cell=cell), NOW_S) for offset in offsets]
    return [output for folded in found if folded is not None for output in folded.outputs]


def checkpoints(fold):
    """The unsaved cells, saved and read back."""
    saved = {cell: decode_checkpoint(v, SETTINGS) for cell, v in fold.unsaved(SETTINGS)}
    fold.saved()
    return saved


def resumed(marker, saved):
    fold = partition()
    fold.restore(marker, saved.values(), NOW_S)
    return fold


def test_it_goes_on_behind_each_record():
    fold = partition()
    taken(fold, range(4))

    assert fold.position == 4


def test_offsets_may_have_holes():
    """A log that is compacted, or written in transactions, has them."""
    fold = partition()
    taken(fold, [0, 1, 7])

    assert fold.position == 8


@pytest.mark.parametrize("again", [[4], [0], [0, 1, 2, 3, 4]])
def test_a_record_that_comes_again_is_skipped(again):
    fold = partition()
    expected = taken(partition(), range(len(VALUES)))

    before = taken(fold, range(5))
    repeated = taken(fold, again)
    after = taken(fold, range(5, len(VALUES)))

    assert repeated == []
    assert before + after == expected


def test_a_record_before_its_first_position_is_skipped():
    assert partition(position=5).take(record(4), NOW_S) is None


def test_what_cannot_be_used_is_passed_and_makes_no_cell():
    fold = partition()
    folded = fold.take(record(0, b"junk"), NOW_S)

    assert [fault.kind for fault in folded.faults] == ["not_decodable"]
    assert (fold.position, fold.progress, fold.unsaved(SETTINGS)) == (1, {}, [])


@pytest.mark.parametrize("key", [None, b"", b"other", b"\xff\xfe"])
def test_a_record_without_its_cells_key_is_refused(key):
    fold = partition()
    folded = fold.take(LogRecord(0, key, VALUES[0], None), NOW_S)

    assert [fault.kind for fault in folded.faults] == ["wrong_key"]
    assert (folded.record, fold.progress) == (None, {})


def test_only_cells_that_moved_are_saved_again():
    fold = partition()
    taken(fold, [0, 1])
    taken(fold, [2, 3], f"{MODEL}/1")
    first = checkpoints(fold)
    nothing = fold.unsaved(SETTINGS)
    taken(fold, [4], f"{MODEL}/1")

    assert {cell: c.offset for cell, c in first.items()} == {MODEL: 2, f"{MODEL}/1": 4}
    assert nothing == []
    assert {cell: c.offset for cell, c in checkpoints(fold).items()} == {f"{MODEL}/1": 5}


def test_its_marker_says_how_far_it_and_each_cell_has_come():
    fold = partition()
    taken(fold, [0, 1])
    taken(fold, [2], f"{MODEL}/1")
    fold.take(record(3, b"junk"), NOW_S)

    marker = fold.marker()
    assert (marker.offset, marker.partitions) == (4, 8)
    assert marker.cells == {MODEL: 2, f"{MODEL}/1": 3}


@pytest.mark.parametrize("cut", [1, 6, 7, len(VALUES) - 1])
def test_a_restored_partition_goes_on_where_it_was(cut):
    fold = partition()
    before = taken(fold, range(cut))
    again = resumed(fold.marker(), checkpoints(fold))
    after = taken(again, range(len(VALUES)))

    assert again.position == len(VALUES)
    assert before + after == taken(partition(), range(len(VALUES)))


def both_cells(fold, numbers):
    """Records of two cells in turn: offsets 2n and 2n + 1."""
    outputs = []
    for number in numbers:
        for which, cell in enumerate((MODEL, f"{MODEL}/1")):
            folded = fold.take(record(2 * number + which, VALUES[number], cell), NOW_S)
            outputs.extend(folded.outputs if folded is not None else ())
    return outputs


def test_an_older_checkpoint_of_one_cell_sends_the_partition_back_for_it_alone():
    """An owner that had been declared dead wrote it over the newer one."""
    zombie, owner = partition(), partition()
    both_cells(zombie, range(4))
    old = checkpoints(zombie)
    both_cells(owner, range(10))
    new, marker = checkpoints(owner), owner.marker()

    healed = resumed(marker, {**new, MODEL: old[MODEL]})
    began_at = healed.position
    repeats = both_cells(healed, range(10))
    rest = both_cells(healed, range(10, len(VALUES)))

    assert (marker.offset, began_at) == (20, 7)
    assert {output.cell for output in repeats} == {MODEL}
    assert [o for o in rest if o.cell == MODEL]
    assert rest == both_cells(owner, range(10, len(VALUES)))


def test_newer_checkpoints_than_the_marker_are_not_folded_twice():
    """A crash came between the checkpoints and the marker."""
    owner = partition()
    both_cells(owner, range(4))
    marker = owner.marker()
    both_cells(owner, range(4, 10))
    new = checkpoints(owner)

    again = resumed(marker, new)

    assert again.position == 8
    assert both_cells(again, range(10)) == []
    assert both_cells(again, range(10, len(VALUES))) == both_cells(owner, range(10, len(VALUES)))


def test_a_checkpoint_covers_its_cell_up_to_its_own_last_record():
    fold = partition()
    taken(fold, [0, 1, 2])
    fold.take(record(3, b"junk"), NOW_S)

    [saved] = checkpoints(fold).values()

    assert isinstance(saved, Checkpoint)
    assert (saved.cell, saved.model, saved.offset) == (MODEL, MODEL, 3)


def test_a_cell_is_heard_of_when_its_records_come_and_when_it_is_restored():
    fold = partition()
    fold.take(record(0), 5.0)
    fold.take(record(1), 9.0)
    heard_s = fold.progress[MODEL].heard_s
    again = resumed(fold.marker(), checkpoints(fold))

    assert (heard_s, again.progress[MODEL].heard_s) == (9.0, NOW_S)
