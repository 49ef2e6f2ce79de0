"""Round after round: a fault while telemetry comes in, and then the books must agree."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from connectors.embedded_broker import EmbeddedBroker
from tests.chaos.faults import FAULTS, ON_ANY_BROKER, Fault
from tests.chaos.scene import Scene
from tests.chaos.stream import MODELS, slices
from tests.kafka_servers import RealKafka

SLICE_S = 60.0


class Round(NamedTuple):
    """What came of one.

    Attributes:
        wrong: What does not agree, in words; empty where all does.
        outputs: So many messages agree by now,
        firing: and so many alerts fire.
        repeats: Said again, the same to the byte, since the beginning.
        restarts: Workers that ended by themselves, since the beginning.
        took_s: From the fault to the agreement.
    """

    number: int
    fault: str
    wrong: str
    outputs: int
    firing: int
    repeats: int
    restarts: int
    took_s: float


def shuffled(
    rng: np.random.Generator, rounds: int, faults: Sequence[Fault] = FAULTS
) -> Iterator[Fault]:
    """Yield ``rounds`` faults: all of them in some order, and again in another one."""
    while rounds > 0:
        for number in rng.permutation(len(faults))[:rounds].tolist():
            yield faults[number]
        rounds -= len(faults)


def rounds(
    folder: Path, seed: int, number_of_rounds: int, *, embedded: bool = False
) -> Iterator[Round]:
    """Yield what came of each round; the first that went wrong is the last.

    Before the faults begin, references are learned, so that there are verdicts to lose.

    Args:
        folder: Where the servers' data and all logs go.
        seed: Of the faults, their moments and what they leave open.
        number_of_rounds: How many, at most.
        embedded: On the embedded broker, with those faults that leave the broker alone.
    """
    rng = np.random.default_rng(seed)
    faults = shuffled(rng, number_of_rounds, ON_ANY_BROKER if embedded else FAULTS)
    broker = EmbeddedBroker() if embedded else RealKafka(folder / "kafka")
    with Scene(folder, rng, broker) as scene:
        telemetry = slices(SLICE_S, MODELS[:3] if embedded else MODELS)
        scene.play([line for _ in range(12) for line in next(telemetry)])
        for number, (fault, lines) in enumerate(zip(faults, telemetry, strict=False), start=1):
            began_s = time.monotonic()
            if embedded:
                scene.settle()
            fault.happen(scene, lines)
            wrong = scene.disagreement()
            if not wrong and number == number_of_rounds:
                wrong = _replay_differs(scene)
            took_s = time.monotonic() - began_s
            yield Round(
                number=number,
                fault=fault.name,
                wrong=wrong,
                outputs=scene.books.found.same,
                firing=len(scene.books.firing),
                repeats=scene.books.found.repeats,
                restarts=scene.restarts,
                took_s=took_s,
            )
            if wrong:
                return


def _replay_differs(scene: Scene) -> str:
    """Return in words what ``daom replay --verify`` finds; "": it agrees."""
    code, told = scene.fleet.verified()
    return "" if code == 0 else f"daom replay --verify exits with {code}: {told}"
