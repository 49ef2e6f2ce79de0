"""What should have been said, and what has been: both read from Kafka as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from aiokafka import ConsumerRecord

from connectors.kafka import Client, read_topic
from daom.codec import decode_output, encode_output
from daom.config import Config
from daom.events import Alert, Output
from daom.fold import Fold
from daom.presets import cell_settings
from daom.topics import Topics, dead_letter_key
from tests.fleet import output_topics


@dataclass
class Tail:
    """Reads a topic on from where it was last."""

    client: Client
    topic: str
    _next: dict[int, int] = field(default_factory=dict)

    def new(self) -> list[ConsumerRecord]:
        """Return what has been added since the last call, in order within a partition."""

        async def collect() -> list[ConsumerRecord]:
            return [r async for r in read_topic(self.client, self.topic, start=self._next)]

        records = asyncio.run(collect())
        self._next.update({record.partition: record.offset + 1 for record in records})
        return records


class Expected:
    """What a replay of the telemetry topic says: the same fold, with nothing between.

    Attributes:
        outputs: Each as bytes, by id.
        dead_letters: Keys of those records that cannot be used.
        firing: Labels of the alerts that fire now, by fingerprint.
    """

    def __init__(self, client: Client, topics: Topics, config: Config) -> None:
        self._tail = Tail(client, topics.telemetry)
        self._topics = topics
        settings, max_bytes = cell_settings(config), config.worker.max_message_bytes
        self._new_fold = partial(Fold, settings, max_bytes)
        self._folds: dict[int, Fold] = {}
        self.outputs: dict[str, bytes] = {}
        self.dead_letters: set[bytes] = set()
        self.firing: dict[str, dict[str, str]] = {}

    def update(self) -> None:
        """Take what has been added to the topic."""
        for record in self._tail.new():
            key = "" if record.key is None else record.key.decode(errors="replace")
            number = record.partition
            fold = self._folds.setdefault(number, self._new_fold(number))
            folded = fold.take(record.value, key, record.timestamp / 1_000.0)
            if folded.faults:
                where = (self._topics.telemetry, record.partition, record.offset)
                self.dead_letters.add(dead_letter_key(*where))
            for output in folded.outputs:
                self._note(output)

    def _note(self, output: Output) -> None:
        assert output.id not in self.outputs, f"{output.id} is said twice by one fold"
        self.outputs[output.id] = encode_output(output)
        if isinstance(output, Alert):
            if output.state == "firing":
                self.firing[output.fingerprint] = dict(output.labels)
            elif output.state == "resolved":
                self.firing.pop(output.fingerprint, None)


class Said:
    """What the workers have put on the output topics.

    Attributes:
        outputs: Each as bytes, by id; a repeat must be the same to the byte.
        dead_letters: Keys of the dead letters.
        repeats: How often something was said again.
    """

    def __init__(self, client: Client, topics: Topics) -> None:
        self._tails = [Tail(client, name) for name in output_topics(topics)]
        self._dead = Tail(client, topics.dead_letters)
        self.outputs: dict[str, bytes] = {}
        self.dead_letters: set[bytes] = set()
        self.repeats = 0

    def update(self) -> None:
        """Take what has been added to the topics."""
        for tail in self._tails:
            for record in tail.new():
                self._note(record.value)
        self.dead_letters |= {record.key for record in self._dead.new()}

    def _note(self, value: bytes) -> None:
        name = decode_output(value).id
        known = self.outputs.setdefault(name, value)
        self.repeats += known is not value
        assert known == value, f"a repeat differs: {known!r}, then {value!r}"


def differences(expected: Expected, said: Said) -> Iterator[str]:
    """Yield in words what is missing, what was said beyond it, and what differs."""
    missing = expected.outputs.keys() - said.outputs.keys()
    beyond = said.outputs.keys() - expected.outputs.keys()
    both = expected.outputs.keys() & said.outputs.keys()
    different = {name for name in both if expected.outputs[name] != said.outputs[name]}
    for what, names in (("missing", missing), ("beyond", beyond), ("different", different)):
        if names:
            values = said.outputs if what == "beyond" else expected.outputs
            first = min(values[name] for name in names)
            yield f"{len(names)} outputs {what}, such as {first.decode()[:400]}"
    lost = expected.dead_letters - said.dead_letters
    if lost:
        yield f"{len(lost)} dead letters missing, such as {min(lost).decode()}"
    if invented := said.dead_letters - expected.dead_letters:
        yield f"{len(invented)} dead letters beyond, such as {min(invented).decode()}"
