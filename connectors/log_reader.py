"""A consumer that only reads: from where to where, and that it says so when it cannot."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final

from aiokafka import ConsumerRecord, TopicPartition

from daom.errors import SourceError

SILENT_S: Final = 30.0
"""How long a broker may deliver nothing while there is more to read."""

_POLL_MS: Final = 200

READING: Final[Mapping[str, object]] = {
    "group_id": None,
    "enable_auto_commit": False,
    # A gap in the log must be an error, not a jump to its other side.
    "auto_offset_reset": "none",
    "fetch_max_wait_ms": 100,
}
"""What a consumer is told that only reads: no group, no commit."""


async def seek(
    consumer: Any, partitions: Collection[TopicPartition], start: Mapping[int, int]
) -> None:
    """Let ``consumer`` read ``partitions``, each from its first offset, else from its beginning.

    Raises:
        SourceError: If the log no longer holds a first offset.
    """
    consumer.assign(partitions)
    beginnings = await consumer.beginning_offsets(partitions)
    for where, beginning in beginnings.items():
        offset = start.get(where.partition, beginning)
        if offset < beginning:
            raise SourceError(
                f"{where.topic}/{where.partition} begins at offset {beginning}; "
                f"{offset} is no longer there"
            )
        consumer.seek(where, offset)


async def until_the_end(
    consumer: Any, partitions: Collection[TopicPartition], at_most: Mapping[int, int]
) -> AsyncIterator[list[ConsumerRecord]]:
    """Yield what ``partitions`` hold now, each to the end that its first fetch tells.

    Args:
        consumer: One that ``seek`` has prepared.
        partitions: Which to read.
        at_most: The offset to end before, by partition, where the log goes on.

    Raises:
        SourceError: If the broker delivers nothing for 30 s although there is more.
    """
    # The end comes from the fetches: a broker's answer to "latest" may be too low (the embedded
    # broker's is, when a batch holds several records), and a topic in use has no quiet moment.
    ends: dict[TopicPartition, int] = {}
    unread = set(partitions)
    heard_s = time.monotonic()
    while unread:
        fetched = await consumer.getmany(*unread, timeout_ms=_POLL_MS)
        for where in unread - ends.keys():
            if (end := consumer.highwater(where)) is not None:
                ends[where] = min(end, at_most.get(where.partition, end))
        for where, records in fetched.items():
            if kept := [record for record in records if record.offset < ends[where]]:
                yield kept
        finished = {w for w in unread & ends.keys() if await consumer.position(w) >= ends[w]}
        unread -= finished
        consumer.pause(*finished)
        now_s = time.monotonic()
        if fetched or finished:
            heard_s = now_s
        elif now_s - heard_s > SILENT_S:
            raise SourceError(
                f"the broker delivers nothing more of {sorted(unread)} for {SILENT_S:g} s"
            )
