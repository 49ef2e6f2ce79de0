"""What a worker publishes of a record that it has folded: the messages, to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from daom.codec import encode_output
from daom.errors import MalformedRecord
from daom.fold import Folded
from daom.replay import LogRecord
from daom.topics import Topics, dead_letter_key

Headers = tuple[tuple[str, bytes], ...]

DEAD_LETTER_SCHEMA: Final = b"DeadLetter/1"

_MAX_DEAD_LETTER_BYTES: Final = 512 * 2**10
"""Of a longer record that could not be used only the beginning is kept."""

_WHOLE_LETTERS: Final = 8
"""A record with more faults than this is not kept once more with each further one: one message
could become thousands of times its size."""


class Message(NamedTuple):
    """One message of an output topic."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers


def published(
    topics: Topics, telemetry: str, partition: int, record: LogRecord, folded: Folded
) -> Iterator[Message]:
    """Yield what ``record`` makes a worker publish: dead letters, then outputs, in this order.

    Args:
        topics: Where it goes.
        telemetry: The topic that the record comes from, and which of its partitions.
        partition: See there.
        record: As the log has it.
        folded: What the fold made of it.
    """
    for count, fault in enumerate(folded.faults):
        kept = (record.value or b"")[:_MAX_DEAD_LETTER_BYTES] if count < _WHOLE_LETTERS else b""
        key = dead_letter_key(telemetry, partition, record.offset)
        headers = _headers(telemetry, partition, record, fault)
        yield Message(topics.dead_letters, key, kept, headers)
    for output in folded.outputs:
        topic, key = topics.topic_of(output)
        schema = f"{type(output).__name__}/1".encode()
        yield Message(topic, key, encode_output(output), (("schema", schema),))


def _headers(telemetry: str, partition: int, record: LogRecord, fault: MalformedRecord) -> Headers:
    headers = (
        ("schema", DEAD_LETTER_SCHEMA),
        ("kind", fault.kind.encode()),
        ("reason", str(fault).encode()),
        ("source_topic", telemetry.encode()),
        ("source_partition", str(partition).encode()),
        ("source_offset", str(record.offset).encode()),
        ("source_bytes", str(len(record.value or b"")).encode()),
    )
    return headers if record.key is None else (*headers, ("source_key", record.key))
