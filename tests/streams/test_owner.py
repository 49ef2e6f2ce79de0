"""The owner of partitions keeps its promises whatever Kafka does: nothing lost, nothing changed."""

import asyncio
import logging

import pytest

from daom.errors import CheckpointError
from streams.checkpoint import MARKER_KEY, decode_marker
from tests.daom.stories import MODEL
from tests.streams.memory_log import TOPICS, VALUES, Log, a_moment, folded, run


@pytest.fixture
def log():
    log = Log()
    log.write(*VALUES)
    return log


# Saving and acknowledging


def test_records_are_acknowledged_only_after_a_save(log):
    async def story():
        owner = log.owner()
        await log.deliver(owner)
        before = list(log.acknowledged)
        await owner.save()
        return before

    assert run(story()) == []
    assert log.acknowledged == list(range(len(VALUES)))
    assert log.said() == folded(*VALUES)


@pytest.mark.parametrize("slow", [TOPICS.verdicts, TOPICS.dead_letters])
def test_a_save_waits_until_every_output_has_arrived(log, slow):
    log.write(b"junk")
    log.slow = {slow}

    async def story():
        owner = log.owner()
        await log.deliver(owner)
        saving = asyncio.create_task(owner.save())
        await a_moment()
        early = (log.saved(), list(log.acknowledged), saving.done())
        log.arrive()
        await saving
        return early

    assert run(story()) == ([], [], False)
    assert log.saved() == [MODEL.encode(), MARKER_KEY]
    assert len(log.acknowledged) == len(VALUES) + 1


def test_the_marker_is_written_after_the_checkpoints_have_arrived(log):
    log.slow = {TOPICS.checkpoints}

    async def story():
        owner = log.owner()
        await log.deliver(owner)
        saving = asyncio.create_task(owner.save())
        await a_moment()
        log.arrive()
        await a_moment()
        first = (log.saved(), list(log.acknowledged))
        log.arrive()
        await saving
        return first

    assert run(story()) == ([MODEL.encode()], [])
    assert log.saved() == [MODEL.encode(), MARKER_KEY]
    assert log.acknowledged


def test_what_is_taken_while_a_save_waits_is_left_to_the_next(log):
    log.slow = {TOPICS.verdicts}

    async def story():
        owner = log.owner()
        await log.deliver(owner, 0, 5)
        saving = asyncio.create_task(owner.save())
        await a_moment()
        delivering = asyncio.create_task(log.deliver(owner, 5, 8))
        await a_moment()
        log.arrive()
        log.slow = set()
        await saving
        acknowledged = list(log.acknowledged)
        await delivering
        return acknowledged

    assert run(story()) == [0, 1, 2, 3, 4]
    marker = decode_marker(log.partition(TOPICS.checkpoints)[-1].value)
    assert (marker.offset, marker.cells) == (5, {MODEL: 5})


@pytest.mark.parametrize("broken", [TOPICS.verdicts, TOPICS.checkpoints])
def test_a_failed_send_is_raised_and_nothing_is_acknowledged(log, broken):
    log.broken = {broken}

    async def story():
        owner = log.owner()
        await log.deliver(owner)
        with pytest.raises(ConnectionError, match="away"):
            await owner.save()

    run(story())

    assert log.acknowledged == []
    assert MARKER_KEY not in log.saved()


def test_nothing_is_saved_where_nothing_has_come(log):
    async def story():
        owner = log.owner()
        await owner.own([0])
        await owner.save()
        await log.deliver(owner)
        await owner.save()
        await owner.save()

    run(story())

    assert log.saved() == [MODEL.encode(), MARKER_KEY]


# Delivery


@pytest.mark.parametrize("times", [2, 3])
def test_a_record_delivered_more_than_once_changes_nothing(log, times):
    async def story():
        owner = log.owner()
        for start in range(len(VALUES)):
            for _ in range(times):
                await log.deliver(owner, start, start + 1)
        await owner.save()

    run(story())

    assert sorted(log.published()) == folded(*VALUES)
    assert len(log.acknowledged) == times * len(VALUES)


@pytest.mark.parametrize(("before", "after"), [(0, 7), (5, 6), (5, 13), (1, len(VALUES) - 1)])
def test_a_gap_before_a_record_is_read_from_the_log(log, before, after):
    async def story():
        owner = log.owner()
        await log.deliver(owner, 0, before)
        await log.deliver(owner, after)

    run(story())

    assert log.said() == folded(*VALUES)
    assert (TOPICS.telemetry, 0, before) in log.reads


def test_a_gap_that_the_log_no_longer_holds_is_told_and_the_rest_is_folded(log, caplog):
    del log.partition(TOPICS.telemetry)[:9]

    async def story():
        with caplog.at_level(logging.WARNING):
            await log.deliver(log.owner(), 12)

    run(story())

    assert log.said() == folded(*VALUES[9:])
    assert "partition 0: from offset 0: t.telemetry/0 begins at offset 9" in caplog.text


# Restarts


async def crash_after(log, saved, lost):
    """An owner takes ``saved`` records and saves, takes the next until ``lost``, and is gone."""
    owner = log.owner()
    await log.deliver(owner, 0, saved)
    await owner.save()
    await log.deliver(owner, saved, lost)


@pytest.mark.parametrize("saved", [1, 8, 17])
def test_a_restarted_owner_goes_on_from_the_checkpoint_and_says_the_same_again(log, saved):
    async def story():
        await crash_after(log, saved, saved + 4)
        log.reads.clear()
        await log.deliver(log.owner(), log.acknowledged[-1] + 1)

    run(story())

    assert log.said() == folded(*VALUES)
    assert len(log.published()) > len(log.said())
    assert log.reads == [(TOPICS.checkpoints, 0, None)]


def test_a_group_that_forgot_its_place_repeats_nothing_that_is_saved(log):
    async def story():
        await crash_after(log, 12, 12)
        await log.deliver(log.owner(), 0)

    run(story())

    assert sorted(log.published()) == folded(*VALUES)


def test_a_checkpoint_topic_that_was_emptied_is_refolded_from_the_log(log):
    async def story():
        await crash_after(log, 12, 12)
        log.partition(TOPICS.checkpoints).clear()
        await log.deliver(log.owner(), 12)

    run(story())

    assert log.said() == folded(*VALUES)


@pytest.mark.parametrize("marker_too", [False, True])
def test_an_older_checkpoint_written_over_a_newer_one_is_healed_from_the_log(log, marker_too):
    """By an owner that lost its partition, but does not know it yet."""

    async def story():
        zombie, owner = log.owner(), log.owner()
        await log.deliver(zombie, 0, 5)
        await log.deliver(owner, 0, 14)
        await owner.save()
        await zombie.save()
        if not marker_too:
            log.partition(TOPICS.checkpoints).pop()
        await log.deliver(log.owner(), 14)

    run(story())

    assert log.said() == folded(*VALUES)
    assert log.reads[-1] == (TOPICS.telemetry, 0, 5)


def test_two_owners_of_one_partition_say_the_same(log):
    async def story():
        first, second = log.owner(), log.owner()
        for start in range(0, len(VALUES), 3):
            await log.deliver(first, start, start + 3)
            await log.deliver(second, start, start + 3)
            await (first if start % 2 else second).save()

    run(story())

    assert log.said() == folded(*VALUES)


def test_another_number_of_partitions_is_refused_with_the_way_out(log):
    async def story():
        await crash_after(log, 5, 5)
        log.partitions = 3
        with pytest.raises(CheckpointError) as refused:
            await log.owner().own([0])
        return str(refused.value)

    message = run(story())

    assert "t.telemetry has 3 partitions, but partition 0 was saved when it had 1" in message
    assert "another kafka.topic_prefix" in message


def test_a_checkpoint_that_cannot_be_read_stops_the_partition_naming_the_cell(log):
    async def story():
        await crash_after(log, 5, 5)
        await log.send(TOPICS.checkpoints, MODEL.encode(), b"rotten", 0, [])
        with pytest.raises(CheckpointError, match=f"cell {MODEL}: not a checkpoint"):
            await log.owner().own([0])

    run(story())


# Partitions come and go


def test_partitions_given_up_are_forgotten_and_loaded_again_when_they_come_back():
    log = Log(partitions=2)
    log.write(*VALUES)
    log.write(*VALUES, cell=f"{MODEL}/1", number=1)

    async def story():
        owner, other = log.owner(), log.owner()
        await owner.own([0, 1])
        await log.deliver(owner, 0, 6)
        await log.deliver(owner, 0, 6, number=1)
        await owner.save()
        await owner.own([1])
        await log.deliver(other, 6, 12)
        await other.save()
        await log.deliver(owner, 6, number=1)
        await owner.save()
        await owner.own([0, 1])
        await log.deliver(owner, 12)

    run(story())

    expected = folded(*VALUES) + folded(*VALUES, cell=f"{MODEL}/1")
    assert sorted(log.published()) == sorted(expected)
    assert len(log.saved(number=0)) == 2 * 2


def test_what_was_not_saved_of_a_partition_given_up_is_not_saved_later(log):
    async def story():
        owner = log.owner()
        await log.deliver(owner, 0, 6)
        await owner.own([])
        await owner.save()

    run(story())

    assert (log.saved(), log.acknowledged) == ([], [])


def test_only_the_partitions_named_are_saved():
    log = Log(partitions=2)
    log.write(*VALUES)
    log.write(*VALUES, cell=f"{MODEL}/1", number=1)

    async def story():
        owner = log.owner()
        await log.deliver(owner)
        await log.deliver(owner, number=1)
        await owner.save([1])

    run(story())

    assert (log.saved(0), log.saved(1)) == ([], [f"{MODEL}/1".encode(), MARKER_KEY])
