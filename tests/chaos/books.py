"""What should have been said, and what has been: both read from Kafka as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from aiokafka import ConsumerRecord

from connectors.kafka import Client, read_topic
from connectors.ranges import log_record
from connectors.sources import TopicPart, open_source
from connectors.verifying import Written, explain
from daom.cli.verified import told
from daom.config import Config
from daom.events import Alert
from daom.fold import Fold
from daom.ledger import Rows, Scope, compare
from daom.presets import cell_settings
from daom.published import published
from daom.replay import LogRecord
from daom.topics import Topics

_NO_END = 2**62


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


class Books:
    """What a replay of the telemetry topic says, and what the workers have said.

    Attributes:
        firing: Labels of the alerts that fire now, by fingerprint, as a replay says.
        found: What came of the last comparison.
    """

    def __init__(self, client: Client, topics: Topics, config: Config) -> None:
        self._tail = Tail(client, topics.telemetry)
        self._topics, self._config = topics, config
        settings, max_bytes = cell_settings(config), config.worker.max_message_bytes
        self._new_fold = partial(Fold, settings, max_bytes)
        self._folds: dict[int, Fold] = {}
        self._right = Rows(topics.said)
        self._written = Written(client, topics)
        self.firing: dict[str, dict[str, str]] = {}
        self.found = compare(self._right, self._written.rows, _all_of({}))

    def differences(self) -> Iterator[str]:
        """Take what has been added to the topics; yield in words what does not agree.

        Raises:
            SourceError: If a topic cannot be read; trying again is safe.
            SinkUnavailable: If no broker answers.
        """
        # What has been said is read first: whatever it follows from is in the log by then.
        self._written.update()
        for record in self._tail.new():
            self._take(record.partition, log_record(record))
        self.found = compare(self._right, self._written.rows, _all_of(self._folds))
        yield from (f"{count} messages {kind}" for kind, count in self.found.counts.items())

    def told(self) -> str:
        """Return the first difference of the last comparison in full; "" if there is none."""
        if self.found.first is None:
            return ""
        name = self._topics.telemetry
        opened = open_source(f"topic:{name}", self._config.kafka.client(), name)
        parts = {part.partition: part for part in opened.parts if isinstance(part, TopicPart)}
        rows = self._right, self._written.rows
        return "\n".join(told(explain(self._config, parts, *rows, self.found.first)))

    def _take(self, partition: int, record: LogRecord) -> None:
        fold = self._folds.setdefault(partition, self._new_fold(partition))
        folded = fold.take(record.value, record.cell, record.timestamp_s)
        telemetry = self._topics.telemetry
        for message in published(self._topics, telemetry, partition, record, folded):
            self._right.add(message, partition, record.offset, record.timestamp_s or 0.0)
        for output in folded.outputs:
            if isinstance(output, Alert):
                if output.state == "firing":
                    self.firing[output.fingerprint] = dict(output.labels)
                elif output.state == "resolved":
                    self.firing.pop(output.fingerprint, None)


def _all_of(partitions: Iterable[int]) -> Scope:
    """Return the scope of all that there is: what is not said yet is missing."""
    whole = dict.fromkeys(partitions, (0, _NO_END))
    return Scope(ranges=whole, said_before=dict.fromkeys(whole, _NO_END))
