"""What a partition says for itself is the same after a crash, whenever that comes."""

import asyncio

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from daom.codec import encode_json, encode_output
from daom.config import Config
from daom.fold import Fold
from daom.presets import cell_settings
from streams.checkpoint import decode_checkpoint, decode_marker, encode_marker
from streams.partition import LogRecord, PartitionFold
from tests.daom.stories import T0, batch, source
from tests.streams.memory_log import TOPICS, Log

SMALL = cell_settings(Config.model_validate({"limits": {"cells": 2}}))
MAX_BYTES = 2_000
TOO_LARGE = b'{"' + b"x" * MAX_BYTES


def log():
    """Two cells of which the second comes late, refused ones, and what nobody can read."""
    values = []
    for number in range(60):
        time_s = T0 + 10.0 * number
        said = ["a"] + ["b"] * (number >= 4)
        said += [f"new-{number}"] * (5 <= number < 12)
        for model in said:
            who = msgspec.structs.replace(source("e1", number), model=model)
            values.append((model, encode_json(batch("e1", time_s, source=who)), time_s))
        if number in {1, 3, 20}:
            values.append(("b", TOO_LARGE, time_s))
    return [
        LogRecord(offset, key.encode(), value, logged_s)
        for offset, (key, value, logged_s) in enumerate(values)
    ]


LOG = log()


def partition():
    return PartitionFold(3, Fold(SMALL, MAX_BYTES, 3), 0, partitions=4)


def said(fold, records):
    folded = [fold.take(record, 0.0) for record in records]
    return [encode_output(o) for f in folded if f is not None for o in f.outputs]


STEADY = said(partition(), LOG)


def saved(fold):
    return [decode_checkpoint(value, SMALL) for _, value in fold.unsaved(SMALL)]


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_crash_anywhere_even_between_the_checkpoints_and_their_marker_changes_nothing(data):
    marked = data.draw(st.integers(0, len(LOG) - 1), "offset of the marker")
    crashed = data.draw(st.integers(marked, len(LOG)), "offset of the crash")
    owner = partition()
    before = said(owner, LOG[:marked])
    older, marker = saved(owner), encode_marker(owner.marker())
    before += said(owner, LOG[marked:crashed])
    newer = {each.cell: each for each in saved(owner)}
    arrived = data.draw(st.sets(st.sampled_from(sorted(newer))), "newer ones") if newer else set()

    heir = partition()
    checkpoints = {each.cell: each for each in older} | {cell: newer[cell] for cell in arrived}
    heir.restore(decode_marker(marker), checkpoints.values(), 0.0)
    after = said(heir, LOG[heir.position :])

    assert set(before) | set(after) == set(STEADY)
    assert heir.fold.door.state == steady_door()


def steady_door():
    fold = partition()
    said(fold, LOG)
    return fold.fold.door.state


def test_it_has_something_to_say():
    alerts = [a for a in map(msgspec.json.decode, STEADY) if a["type"] == "alert"]

    of_the_partition = {
        (a["labels"]["limit"], a["state"]) for a in alerts if "partition" in a["labels"]
    }
    assert of_the_partition == {
        (limit, state) for limit in ("cells", "message_bytes") for state in ("firing", "resolved")
    }


def test_a_marker_of_before_partitions_spoke_is_read():
    marker = decode_marker(b'{"offset":4,"partitions":1,"cells":{"m":4}}')

    assert marker.door == partition().fold.door.state


def test_what_it_says_is_published_under_its_own_number():
    async def deliver():
        kafka = Log(partitions=4)
        owner = kafka.owner()
        big = b'{"' + b"x" * 2 * 2**20
        for number in range(4):
            kafka.now_s = T0 + 10.0 * number
            kafka.write(big, cell="m", number=2)
            record = kafka.partition(TOPICS.telemetry, 2)[-1]._replace(timestamp_s=kafka.now_s)
            await owner.take(2, record, lambda: None)
        await owner.save()
        return [msgspec.json.decode(r.value) for r in kafka.partition(TOPICS.alerts)]

    [alert] = asyncio.run(deliver())

    assert (alert["labels"]["limit"], alert["labels"]["partition"]) == ("message_bytes", "2")
