"""Where a topic's partitions end, and how far a consumer group has committed them.

Asked of the broker over a connection of its own: so it says what is there even where the consumer
that ought to read it has died silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from connectors.kafka import ATTEMPT_S, Client
from daom.errors import SinkUnavailable


class Offsets(NamedTuple):
    """Of one partition: where its log ends, and the group's next offset (None: none yet)."""

    end: int
    committed: int | None


class OffsetReader:
    """Asks a broker for offsets; joins no group and commits nothing.

    Some brokers answer with too low an end where the last batch holds several records; Apache Kafka
    does not.

    Args:
        client: The aiokafka settings.
        group: Whose commits are asked for.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._consumer: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def read(self, topic: str, partitions: Collection[int]) -> dict[int, Offsets]:
        """Return the offsets of ``partitions``; of none, only whether a broker answers.

        Raises:
            SinkUnavailable: If no broker answers within seconds, or it refuses; the next call
                connects anew.
        """
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await self._read([TopicPartition(topic, n) for n in sorted(partitions)])
        except (KafkaError, OSError, TimeoutError) as error:
            await self._close()
            why = str(error) or type(error).__name__
            raise SinkUnavailable(f"no Kafka broker answers: {why}") from error

    async def _read(self, wanted: Collection[TopicPartition]) -> dict[int, Offsets]:
        if self._consumer is None:
            # Subscribed to nothing, it asks for the group's commits and never joins it.
            self._consumer = AIOKafkaConsumer(
                **self._client, group_id=self._group, enable_auto_commit=False
            )
            await self._consumer.start()
        await self._consumer.topics()
        ends = await self._consumer.end_offsets(wanted) if wanted else {}
        return {
            where.partition: Offsets(ends[where], await self._consumer.committed(where))
            for where in wanted
        }

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()
