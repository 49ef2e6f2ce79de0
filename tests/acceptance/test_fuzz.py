"""Whatever a broken producer sends: nothing raises, nothing vanishes, and the good goes on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

from connectors.recordings import record_time_s
from daom.codec import decode, decode_output
from daom.config import Config
from daom.errors import MalformedRecord
from daom.presets import cell_settings
from tests.fleet import Fleet
from tests.fuzz.mutations import mutated, originals
from tests.fuzz.survivor import Survivor
from tests.servers import eventually

CELL = b"llama-3.2-1b"
LIVE = 10_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_broken_messages_raise_nothing_and_each_is_used_or_refused_with_a_reason(seed):
    survivor = Survivor(cell_settings(Config()))

    for value in mutated(random.Random(seed), originals()):
        survivor.take(value)

    assert survivor.counts["used"] > 1_000
    assert survivor.counts["outputs"] > 1_000
    assert len(survivor.counts) > 8, "many kinds of faults"


def stamped(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield each second message, with the cell and the newest time so far of the first ones, ms."""
    time_s = 0.0
    for original, value in pairs:
        with suppress(MalformedRecord):
            time_s = max(time_s, record_time_s(decode(original).record))
        yield CELL, value, round(1_000.0 * time_s)


@pytest.mark.slow
def test_ten_thousand_through_a_live_worker_are_said_or_dead_lettered_as_a_replay_would(
    kafka, topic_prefix, tmp_path
):
    pool = (2 * originals())[:LIVE]
    broken = mutated(random.Random(5), pool)
    with Fleet(kafka.bootstrap_servers, topic_prefix, partitions=1) as fleet:
        fleet.send(stamped(zip(pool, broken, strict=True)))
        worker = fleet.start_worker(tmp_path / "worker.log")
        said, refused = fleet.replayed()
        expected = {decode_output(line).id: line for line in said}

        assert fleet.says(expected) == expected
        told = [line.split(": ") for line in refused if not line.startswith("could not be used: ")]
        kinds = Counter(kind for _, kind, *_ in told if not kind.startswith("no record for "))
        eventually(lambda: len(fleet.records(fleet.topics.dead_letters)) >= kinds.total())
        letters = fleet.records(fleet.topics.dead_letters)
        assert Counter(headers["kind"].decode() for _, _, headers in letters) == kinds
        assert worker.stop() == 0
