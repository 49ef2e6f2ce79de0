"""The faults: each happens while telemetry comes in, and is over when it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from connectors.recordings import Line
from tests.chaos.scene import WORKERS, Scene

LONGER_THAN_A_SESSION_S = 8.0
AWAY_S = 60.0
STOPS_WITHIN_S = 40.0
ALERTMANAGER_FAULT_S = 4.0
_SHUFFLED = 40
"""Records among which one may change places: about what two producers do to each other."""


def worker_killed(scene: Scene, lines: Sequence[Line]) -> None:
    """A worker gets kill -9, and another one starts."""
    with scene.amid(lines):
        scene.some_worker().kill()
        scene.start_worker()


def worker_stopped(scene: Scene, lines: Sequence[Line]) -> None:
    """A worker gets SIGTERM, ends in order, and another one starts."""
    with scene.amid(lines):
        code = scene.some_worker().stop(STOPS_WITHIN_S)
        assert code == 0, f"a worker that was told to stop ended with {code}"
        scene.start_worker()


def worker_added(scene: Scene, lines: Sequence[Line]) -> None:
    """A further worker joins; if there is one already, it leaves."""
    with scene.amid(lines):
        if len(scene.fleet.workers) > WORKERS:
            scene.some_worker().stop(STOPS_WITHIN_S)
        else:
            scene.start_worker()


def worker_paused(scene: Scene, lines: Sequence[Line]) -> None:
    """A worker hangs (SIGSTOP) until its group has given it up, and then goes on."""
    worker = scene.some_worker()
    with scene.amid(lines):
        worker.pause()
    time.sleep(LONGER_THAN_A_SESSION_S)
    worker.resume()


def broker_killed(scene: Scene, lines: Sequence[Line]) -> None:
    """The broker gets kill -9, and starts again."""
    with scene.amid(lines):
        scene.kafka.kill()
        scene.kafka.start()


def broker_hung(scene: Scene, lines: Sequence[Line]) -> None:
    """The broker hangs for longer than a session lasts."""
    with scene.amid(lines):
        scene.kafka.pause()
        time.sleep(LONGER_THAN_A_SESSION_S)
        scene.kafka.resume()


def broker_away(scene: Scene, lines: Sequence[Line]) -> None:
    """There is no broker for a minute, which is longer than the engines' records can wait."""
    scene.play(lines[: len(lines) // 2])
    scene.kafka.kill()
    time.sleep(AWAY_S)
    scene.kafka.start()
    scene.play(lines[len(lines) // 2 :])


def poison(scene: Scene, lines: Sequence[Line]) -> None:
    """Among the records are some that nobody can use: noise, cut ones, ones with bytes changed."""
    rng = scene.rng
    mixed = list(lines)
    for place in sorted(rng.integers(0, len(lines), 30).tolist(), reverse=True):
        value = bytearray(lines[place].value)
        match int(rng.integers(4)):
            case 0:
                value = bytearray(rng.bytes(int(rng.integers(1, 2_000))))
            case 1:
                value = value[: int(rng.integers(len(value)))]
            case 2:
                for at in rng.integers(0, len(value), 5).tolist():
                    value[at] = int(rng.integers(256))
            case _:
                value = value.replace(b"e", b"E")
        mixed.insert(place, Line(lines[place].number, bytes(value)))
    scene.play(mixed)


def duplicated_and_reordered(scene: Scene, lines: Sequence[Line]) -> None:
    """A tenth of the records comes twice, and they do not come in order."""
    chosen = scene.rng.random(len(lines)) < 0.1
    doubled = [line for line, again in zip(lines, chosen, strict=True) for _ in range(1 + again)]
    places = scene.rng.uniform(0.0, _SHUFFLED, len(doubled)) + range(len(doubled))
    scene.play([doubled[number] for number in places.argsort().tolist()])


def alertmanager_restarted(scene: Scene, lines: Sequence[Line]) -> None:
    """Alertmanager ends, and starts with all its alerts forgotten."""
    with scene.amid(lines):
        scene.alertmanager.stop()
    scene.alertmanager.start()


def bridge_killed(scene: Scene, lines: Sequence[Line]) -> None:
    """The bridge gets kill -9, and another one starts."""
    with scene.amid(lines):
        scene.restart_bridge()


def alertmanager_is(fault: str) -> Fault:
    """Return the fault of an Alertmanager that is slow, down, or answers 400 or 500."""

    def happen(scene: Scene, lines: Sequence[Line]) -> None:
        scene.way.breaks(fault)
        scene.play(lines)
        time.sleep(ALERTMANAGER_FAULT_S)
        scene.way.heals()

    return Fault(f"alertmanager {fault}", happen)


class Fault(NamedTuple):
    """A fault and its name. It is given the telemetry that comes in meanwhile."""

    name: str
    happen: Callable[[Scene, Sequence[Line]], None]


def _named(*faults: Callable[[Scene, Sequence[Line]], None]) -> tuple[Fault, ...]:
    return tuple(Fault(happen.__name__.replace("_", " "), happen) for happen in faults)


ON_ANY_BROKER = _named(
    worker_killed,
    worker_stopped,
    worker_added,
    worker_paused,
    poison,
    duplicated_and_reordered,
)
"""Those that leave broker and Alertmanager alone. The others need an Apache Kafka: the embedded
broker keeps everything in memory, so that nothing comes back with it."""
FAULTS = (
    *ON_ANY_BROKER,
    *_named(broker_killed, broker_hung, broker_away, alertmanager_restarted, bridge_killed),
    *(alertmanager_is(fault) for fault in ("down", "slow", "400", "500")),
)
