"""What an owner does when sending fails, or a save comes at a bad moment: nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from streams.checkpoint import MARKER_KEY
from tests.streams.memory_log import TOPICS, VALUES, Log, a_moment, folded, run


@pytest.fixture
def log():
    memory = Log()
    memory.write(*VALUES)
    return memory


def test_a_save_waits_for_the_outputs_of_a_record_that_is_being_folded(log):
    """A crash right after the save loses none of them."""
    log.slow = {TOPICS.verdicts}

    async def story():
        owner = log.owner()
        taking = asyncio.create_task(log.deliver(owner))
        await a_moment()
        saving = asyncio.create_task(owner.save())
        await a_moment()
        unsaved = list(log.acknowledged)
        log.slow = set()
        log.arrive()
        await asyncio.gather(taking, saving)
        return unsaved

    assert run(story()) == []
    assert log.said() == folded(*VALUES)


def test_after_a_failed_send_an_owner_saves_nothing_and_the_next_one_says_it_all(log):
    async def story():
        owner = log.owner()
        log.broken = {TOPICS.verdicts}
        await log.deliver(owner, 0, 6)
        with pytest.raises(ConnectionError):
            await owner.save()
        log.broken = set()
        with pytest.raises(ConnectionError):
            await owner.save()
        await log.deliver(log.owner(), 0)

    run(story())

    assert log.acknowledged == []
    assert log.said() == folded(*VALUES)


def test_a_marker_that_names_a_cell_without_a_checkpoint_sends_the_partition_back(log):
    async def story():
        owner = log.owner()
        await log.deliver(owner, 0, 12)
        await owner.save()
        kept = log.partition(TOPICS.checkpoints)
        kept[:] = [record for record in kept if record.key == MARKER_KEY]
        await log.deliver(log.owner(), 12)

    run(story())

    assert log.said() == folded(*VALUES)


def test_a_silence_that_is_only_a_lag_is_no_tick(log):
    """What is in the log but not yet folded speaks for the cell."""

    async def story():
        owner = log.owner()
        await log.deliver(owner, 0, 6)
        log.now_s += 600.0
        await owner.tick()

    before = len(log.partition(TOPICS.telemetry))
    run(story())

    assert len(log.partition(TOPICS.telemetry)) == before
