"""The watch says whether a worker gets on and whether it works, and shows what is its own only."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from connectors.offsets import Offsets
from daom.errors import SinkUnavailable
from streams.metrics import PartitionGauges, WorkerMetrics
from streams.watch import Membership, Standing, Watch
from tests.streams.memory_log import VALUES, Log, run

AFTER_S = 300.0
EVERY_S = 5.0


class Scene:
    """A worker and a broker, watched; time passes only between looks."""

    def __init__(self):
        self.now_s = 1_000.0
        self.membership = Membership()
        self.watch = Watch(self.membership, lambda: self.now_s, AFTER_S)
        self.standings = {}
        self.offsets = {}
        self.is_away = False
        self.watch.standing = self.standings.get

    def works_on(self, *partitions):
        self.membership.given(partitions)
        self.membership.enter("working", "")

    def stands_at(self, partition, position, end, saved=None):
        self.standings[partition] = Standing(
            position, position if saved is None else saved, 1_766_000_000.0, 1, 2
        )
        self.offsets[partition] = Offsets(end, position)

    async def _answer(self, partitions):
        if self.is_away:
            raise SinkUnavailable("no Kafka broker answers: refused")
        return {number: self.offsets[number] for number in partitions}

    def look(self, for_s=0.0):
        """Look until ``for_s`` have passed."""

        async def looks():
            await self.watch.look(self._answer)
            for _ in range(int(for_s / EVERY_S)):
                self.now_s += EVERY_S
                await self.watch.look(self._answer)

        run(looks())


@pytest.fixture
def scene():
    return Scene()


def test_a_partition_that_stands_still_fails_health_with_its_name_and_the_reason(scene):
    scene.works_on(3, 4)
    scene.stands_at(3, position=100, end=140)
    scene.stands_at(4, position=50, end=50)

    scene.look(AFTER_S)

    assert scene.watch.health() == {
        "healthy": False,
        "stuck": [
            {
                "partition": 3,
                "task": "read",
                "for_s": AFTER_S,
                "why": "its position stands at 100, and the log ends at 140",
            }
        ],
    }


def test_a_partition_that_is_not_loaded_for_too_long_fails_health(scene):
    scene.membership.given([3])
    scene.offsets[3] = Offsets(140, None)

    scene.look(AFTER_S)

    assert [(s["partition"], s["task"]) for s in scene.watch.health()["stuck"]] == [(3, "load")]


@pytest.mark.parametrize("phase", ["starting", "rebalancing"])
def test_a_worker_that_stays_outside_its_group_fails_health_unless_no_broker_answers(scene, phase):
    scene.membership.enter(phase, "")
    scene.is_away = True
    scene.look(10 * AFTER_S)
    away = scene.watch.health()
    scene.is_away = False
    scene.look(AFTER_S)

    assert away == {"healthy": True, "stuck": []}
    assert [(s["partition"], s["task"]) for s in scene.watch.health()["stuck"]] == [(None, "join")]


def test_a_broker_that_is_away_makes_a_worker_unready_and_not_unhealthy(scene):
    scene.works_on(3)
    scene.stands_at(3, position=100, end=140)
    scene.look(AFTER_S - EVERY_S)
    scene.is_away = True
    scene.look(AFTER_S)

    assert scene.watch.health() == {"healthy": True, "stuck": []}
    assert scene.watch.readiness() == {
        "ready": False,
        "phase": "working",
        "why": "no Kafka broker answers: refused",
    }


def test_a_watch_that_has_stopped_looking_does_not_say_that_all_is_well(scene):
    scene.works_on()
    scene.look()
    scene.now_s += AFTER_S

    health = scene.watch.health()

    assert (health["healthy"], health["why"]) == (False, f"nobody has looked for {AFTER_S:.0f} s")


def test_a_worker_is_ready_once_its_partitions_are_loaded_and_until_it_is_told_to_stop(scene):
    said = [scene.watch.readiness()]
    scene.membership.given([4, 3])
    said.append(scene.watch.readiness())
    scene.membership.enter("working", "")
    said.append(scene.watch.readiness())
    scene.membership.enter("stopping", "it was told to stop")
    scene.membership.enter("rebalancing", "its group shares the partitions anew")
    said.append(scene.watch.readiness())

    assert said == [
        {"ready": False, "phase": "starting", "why": "it waits for a broker and its topics"},
        {"ready": False, "phase": "loading", "why": "it loads partitions [3, 4]"},
        {"ready": True, "phase": "working", "partitions": [3, 4]},
        {"ready": False, "phase": "stopping", "why": "it was told to stop"},
    ]


def test_a_worker_without_a_partition_is_ready(scene):
    scene.works_on()
    scene.look(10 * AFTER_S)

    assert scene.watch.readiness() == {"ready": True, "phase": "working", "partitions": []}
    assert scene.watch.health() == {"healthy": True, "stuck": []}


# Metrics


def exposed(scene, counted=None):
    registry = CollectorRegistry()
    registry.register(PartitionGauges(scene.watch.owned, counted or {}))
    lines = generate_latest(registry).decode().splitlines()
    values = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in values}


def test_each_partition_tells_how_far_it_is_and_how_far_it_should_be(scene):
    scene.works_on(3)
    scene.stands_at(3, position=100, end=140, saved=90)
    scene.look(20.0)

    said = exposed(scene, {3: {"late_samples": 5}, 8: {"late_samples": 1}})

    assert said == {
        'daom_end_offset{partition="3"}': 140.0,
        'daom_position{partition="3"}': 100.0,
        'daom_saved_position{partition="3"}': 90.0,
        'daom_committed_offset{partition="3"}': 100.0,
        'daom_lag{partition="3"}': 40.0,
        'daom_event_time_seconds{partition="3"}': 1_766_000_000.0,
        'daom_waiting_seconds{partition="3"}': 20.0,
        'daom_cells{partition="3"}': 1.0,
        'daom_engines{partition="3"}': 2.0,
        'daom_counted{partition="3",what="late_samples"}': 5.0,
    }


def test_the_gauges_of_a_partition_vanish_when_it_is_given_up(scene):
    scene.works_on(3, 4)
    scene.stands_at(3, position=100, end=140)
    scene.stands_at(4, position=50, end=50)
    scene.look()
    scene.works_on(4)

    assert {name for name in exposed(scene) if 'partition="3"' in name} == set()
    assert exposed(scene)['daom_position{partition="4"}'] == 50.0


def test_of_a_partition_that_is_being_loaded_only_the_log_is_told(scene):
    scene.membership.given([3])
    scene.offsets[3] = Offsets(140, None)
    scene.look()

    assert exposed(scene) == {
        'daom_end_offset{partition="3"}': 140.0,
        'daom_lag{partition="3"}': 140.0,
        'daom_waiting_seconds{partition="3"}': 0.0,
    }


# What an owner tells its watch


def test_an_owner_tells_how_far_it_has_come_and_how_much_of_that_is_saved():
    log = Log()
    log.write(*VALUES)

    async def story():
        owner = log.owner()
        before = owner.standing(0)
        await log.deliver(owner, 0, 6)
        await owner.save()
        await log.deliver(owner, 6, 9)
        after = owner.standing(0)
        await owner.own([])
        return before, after, owner.standing(0)

    before, after, given_up = run(story())

    assert (before, given_up) == (None, None)
    assert (after.position, after.saved, after.cells, after.engines) == (9, 6, 1, 1)


def test_an_owner_tells_where_a_partition_goes_on_that_it_has_loaded():
    log = Log()
    log.write(*VALUES)

    async def story():
        owner = log.owner()
        await log.deliver(owner, 0, 6)
        await owner.save()
        again = log.owner()
        await again.own([0])
        return again.standing(0)

    assert run(story())[:2] == (6, 6)


def test_what_cells_count_is_kept_when_they_are_saved():
    log, metrics = Log(), WorkerMetrics(CollectorRegistry())
    log.write(*VALUES, *VALUES[:4])

    async def story():
        owner = log.owner(metrics)
        await log.deliver(owner)
        await owner.save()

    run(story())

    assert metrics.counted == {0: {"duplicate_batches": 4}}
