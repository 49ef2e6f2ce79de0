"""Real time enters as a record: the owner appends a Tick for a cell that has fallen silent."""

import pytest

from daom.codec import decode
from daom.events import Source, Tick
from tests.daom.stories import BATCH_S, MODEL, T0
from tests.streams.memory_log import TICK_AFTER_S, TOPICS, VALUES, Log, folded, run

QUIET_S = TICK_AFTER_S + 5.0
LAST_S = T0 + BATCH_S * len(VALUES) - 0.1
OTHER = f"{MODEL}/1"


def ticks(log, number=0):
    """The ticks that were appended behind the story, and for which cell."""
    records = log.partition(TOPICS.telemetry, number)
    decoded = [(record.key.decode(), decode(record.value).record) for record in records]
    return [(cell, record) for cell, record in decoded if isinstance(record, Tick)]


@pytest.fixture
def log():
    log = Log()
    log.write(*VALUES)
    return log


async def owner_of(log):
    owner = log.owner()
    await log.deliver(owner)
    return owner


def test_a_silent_cell_is_told_how_late_it_is(log):
    async def story():
        owner = await owner_of(log)
        log.now_s += QUIET_S
        await owner.tick()

    run(story())

    expected = Tick(source=Source(model=MODEL), time_s=LAST_S + QUIET_S)
    assert ticks(log) == [(MODEL, expected)]
    assert log.headers[TOPICS.telemetry][-1] == {"schema": b"Tick/1"}


@pytest.mark.parametrize("quiet_s", [0.0, TICK_AFTER_S - 0.1])
def test_a_live_cell_is_not_ticked(log, quiet_s):
    async def story():
        owner = await owner_of(log)
        log.now_s += quiet_s
        await owner.tick()

    run(story())

    assert ticks(log) == []


def test_only_the_silent_one_of_two_cells_is_ticked(log):
    async def story():
        owner = await owner_of(log)
        log.now_s += QUIET_S
        log.write(*VALUES, cell=OTHER)
        await log.deliver(owner, len(VALUES))
        await owner.tick()

    run(story())

    assert [cell for cell, _ in ticks(log)] == [MODEL]


def test_a_cell_that_has_never_been_heard_of_is_not_ticked(log):
    async def story():
        owner = log.owner()
        await owner.own([0])
        log.now_s += QUIET_S
        await owner.tick()

    run(story())

    assert ticks(log) == []


def test_a_tick_lies_in_the_partition_of_its_cell():
    log = Log(partitions=3)
    log.write(*VALUES, number=2)

    async def story():
        owner = log.owner()
        await log.deliver(owner, number=2)
        log.now_s += QUIET_S
        await owner.tick()

    run(story())

    assert [len(ticks(log, number)) for number in range(3)] == [0, 0, 1]


def test_as_long_as_it_is_silent_it_is_ticked_again_but_not_at_once(log):
    async def story():
        owner = await owner_of(log)
        for _ in range(30):
            log.now_s += 5.0
            await owner.tick()
            await log.deliver(owner, len(VALUES))

    run(story())

    times_s = [tick.time_s for _, tick in ticks(log)]
    assert times_s == [LAST_S + 60.0, LAST_S + 120.0]


def test_a_cell_loaded_from_its_checkpoint_counts_as_heard_then(log):
    async def story():
        await (await owner_of(log)).save()
        log.now_s += QUIET_S
        owner = log.owner()
        await owner.own([0])
        await owner.tick()
        early = ticks(log)
        log.now_s += QUIET_S
        await owner.tick()
        return early

    assert run(story()) == []
    assert len(ticks(log)) == 1


def test_a_partition_given_up_is_not_ticked(log):
    async def story():
        owner = await owner_of(log)
        await owner.own([])
        log.now_s += QUIET_S
        await owner.tick()

    run(story())

    assert ticks(log) == []


def test_ticks_close_the_panes_of_a_silent_cell_and_a_replay_of_the_log_says_the_same(log):
    async def story():
        owner = await owner_of(log)
        before = len(log.said())
        log.now_s += QUIET_S
        await owner.tick()
        await log.deliver(owner, len(VALUES))
        return before

    before = run(story())

    logged = [record.value for record in log.partition(TOPICS.telemetry)]
    assert len(log.said()) > before
    assert log.said() == folded(*logged)
