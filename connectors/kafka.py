"""Kafka for the commands: wait for it, make the topics, describe them, read one to its end.

Every function takes ``client``: the keyword arguments that all aiokafka clients share, as
``daom.kafka_access`` makes them; and raises SinkRejected, at once, where a password is refused or a
certificate is not to be trusted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from connectors.bootstrap import address_of, bootstrap_reasons
from connectors.log_reader import READING, seek, until_the_end
from connectors.rights import Needs, require_rights
from daom.errors import ConfigError, SinkRejected, SinkUnavailable, SourceError
from daom.topics import TopicSpec

Client = Mapping[str, object]

ATTEMPT_S: Final = 5.0
"""How long one attempt to reach a broker may take: a hung broker accepts and says nothing."""
ANSWER_WITHIN_S: Final = 20.0
NOTICE_EVERY_S: Final = 5.0

# Less, and a slow handshake would look like a hung broker.
_SHORTEST_ATTEMPT_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_LEADERS_WITHIN_S: Final = 10.0

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as it is. ``config`` is empty where the broker does not tell."""

    name: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicsReport:
    """What ``create_topics`` did.

    Attributes:
        created: Names of the topics that were made.
        kept: Names of those that were there already, and were left as they are.
        differences: One sentence for each kept topic that is not as asked.
    """

    created: tuple[str, ...]
    kept: tuple[str, ...]
    differences: tuple[str, ...]


async def wait_for_broker(
    client: Client, within_s: float, on_wait: Callable[[str], None] = _LOGGER.warning
) -> None:
    """Return once a broker answers; try again with growing pauses until then.

    Args:
        client: The aiokafka settings.
        within_s: How long to wait in all; an attempt under way may add a second.
        on_wait: Told at the first failure, and then every 5 s, who does not answer and why.

    Raises:
        ConfigError: If aiokafka refuses the settings themselves.
        SinkRejected: If a broker refuses the password, or its certificate is not to be trusted.
        SinkUnavailable: If no broker answered in time: says why.
    """
    began_s = time.monotonic()
    notice_s, pause_s = began_s, _FIRST_PAUSE_S
    while True:
        left_s = began_s + within_s - time.monotonic()
        try:
            async with _admin(
                client, answer_within_s=max(_SHORTEST_ATTEMPT_S, min(ATTEMPT_S, left_s))
            ):
                return
        except SinkUnavailable as error:
            now_s = time.monotonic()
            left_s = began_s + within_s - now_s
            if left_s <= 0.0:
                raise SinkUnavailable(f"{error} (waited {within_s:g} s)") from error
            if now_s >= notice_s:
                on_wait(f"{error}; waiting up to {left_s:.0f} s more")
                notice_s = now_s + NOTICE_EVERY_S
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(2.0 * pause_s, _LONGEST_PAUSE_S)


async def check_access(client: Client, needs: Needs) -> None:
    """Return at once, unless Kafka refuses this client; one that is away may come back.

    Raises:
        ConfigError: If aiokafka refuses the settings themselves.
        SinkRejected: If a broker refuses the password, its certificate is not to be trusted, or a
            right is missing.
    """
    with suppress(SinkUnavailable):
        await wait_for_broker(client, within_s=0.0)
        await check_rights(client, needs)


async def check_rights(client: Client, needs: Needs) -> None:
    """Return, or raise SinkRejected naming each right that this user ``needs`` and lacks."""
    async with _admin(client) as admin:
        await require_rights(admin, needs)


async def check_group(client: Client, group: str) -> None:
    """Return unless this user may not join the consumer group; Faust would wait without a word.

    Raises:
        SinkRejected: If it may not.
        SinkUnavailable: If no broker answers.
    """
    async with _admin(client) as admin:
        # Any other error passes: the coordinator of a first group is only being made.
        with suppress(KafkaError):
            try:
                await admin.find_coordinator(group)
            except GroupAuthorizationFailedError as error:
                raise SinkRejected(
                    f"Kafka does not let this user join the group {group}: it needs Read on it"
                ) from error


async def create_topics(client: Client, specs: Collection[TopicSpec]) -> TopicsReport:
    """Make the topics that are missing, and wait until they can be written to.

    A topic that exists is never changed. Calling it again, or from several processes at once, is
    harmless.

    Raises:
        SinkRejected: If the broker refuses a topic: more copies than brokers, no permission.
        SinkUnavailable: If no broker answers; calling again is safe.
    """
    names = [spec.name for spec in specs]
    async with _admin(client) as admin:
        before = {topic.name for topic in await _describe(admin, names)}
        missing = [spec for spec in specs if spec.name not in before]
        created = await _create(admin, missing) if missing else set()
        await _wait_for_leaders(admin, created)
        kept = {topic.name: topic for topic in await _describe(admin, names)}
    differences = [
        difference
        for spec in specs
        if spec.name in kept and spec.name not in created
        for difference in _differences(spec, kept[spec.name])
    ]
    return TopicsReport(
        created=tuple(name for name in names if name in created),
        kept=tuple(name for name in names if name not in created),
        differences=tuple(differences),
    )


async def describe_topics(client: Client, names: Collection[str]) -> list[TopicDescription]:
    """Return those of ``names`` that exist, as they are, by name.

    Raises:
        SinkUnavailable: If no broker answers; calling again is safe.
    """
    async with _admin(client) as admin:
        return await _describe(admin, names)


async def read_topic(
    client: Client,
    topic: str,
    *,
    start: Mapping[int, int] | None = None,
    partitions: Collection[int] | None = None,
) -> AsyncGenerator[ConsumerRecord, None]:
    """Yield every record that ``topic`` holds now, one by one, as ``read_batches`` does."""
    batches = read_batches(client, topic, start=start, partitions=partitions)
    async with aclosing(batches):
        async for batch in batches:
            for record in batch:
                yield record


async def read_batches(
    client: Client,
    topic: str,
    *,
    start: Mapping[int, int] | None = None,
    end: Mapping[int, int] | None = None,
    partitions: Collection[int] | None = None,
) -> AsyncGenerator[list[ConsumerRecord], None]:
    """Yield the records that ``topic`` holds now as they come; in log order within a partition.

    It ends by itself, also while others go on writing: each partition's end is what its first
    fetch told. No consumer group is joined and nothing is committed, so reading again reads the
    same. Read it to its end, or close it (``contextlib.aclosing``).

    Args:
        client: The aiokafka settings.
        topic: Its name.
        start: First offset to read, by partition; the beginning of the log for the others.
        end: The offset to end before, by partition; the present end of the log for the others.
        partitions: Which partitions to read; all by default.

    Raises:
        SourceError: If there is no such topic or partition, the log no longer holds the first
            offset, or the broker delivers nothing for 30 s although there is more.
        SinkUnavailable: If no broker answers.
    """
    numbers = await partitions_of(client, topic, partitions)
    wanted = [TopicPartition(topic, number) for number in numbers]
    if not wanted:
        return
    consumer = AIOKafkaConsumer(**client, **READING)
    try:
        async with bootstrap_reasons(client):
            await consumer.start()
        await seek(consumer, wanted, start or {})
        async for batch in until_the_end(consumer, wanted, end or {}):
            yield batch
    except KafkaError as error:
        raise SourceError(f"topic {topic} cannot be read: {error}") from error
    finally:
        await consumer.stop()


@asynccontextmanager
async def _admin(client: Client, *, answer_within_s: float = ANSWER_WITHIN_S) -> AsyncIterator[Any]:
    settings = {**client, "request_timeout_ms": max(1, round(1_000 * answer_within_s))}
    try:
        admin = AIOKafkaAdminClient(**settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"settings of the Kafka client: {error}") from error
    try:
        async with bootstrap_reasons(client):
            await admin.start()
        yield admin
    except (KafkaError, OSError, TimeoutError) as error:
        why = str(error) or type(error).__name__
        raise SinkUnavailable(f"Kafka at {address_of(client)}: {why}") from error
    finally:
        await admin.close()


async def _describe(admin: Any, names: Collection[str]) -> list[TopicDescription]:
    counts = {name: count for name, (count, _) in (await _layout(admin)).items() if name in names}
    configs = await _configs(admin, sorted(counts))
    return [
        TopicDescription(name, count, configs.get(name, {}))
        for name, count in sorted(counts.items())
    ]


async def _layout(admin: Any) -> dict[str, tuple[int, bool]]:
    """Return, for every topic, its partition count and whether all of them have a leader."""
    # Asking for all, since a broker may make a topic that is asked for by name.
    return {
        topic["topic"]: (
            len(topic["partitions"]),
            all(partition["leader"] >= 0 for partition in topic["partitions"]),
        )
        for topic in await admin.describe_topics()
        if topic["partitions"]
    }


async def _configs(admin: Any, names: Collection[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    try:
        answers = await admin.describe_configs(resources)
    except KafkaError as error:
        _LOGGER.info("the broker does not tell the settings of topics: %s", error)
        return {}
    # By position, as the protocol has it: aiokafka's names of these fields differ by version.
    return {
        name: {entry[0]: entry[1] for entry in entries if entry[1] is not None}
        for answer in answers
        for code, _, _, name, entries in answer.resources
        if code == 0
    }


async def _create(admin: Any, specs: Collection[TopicSpec]) -> set[str]:
    """Return the names of those that were made; another process may have made the rest."""
    answer = await admin.create_topics(
        [
            NewTopic(s.name, s.partitions, s.replication_factor, topic_configs=dict(s.config))
            for s in specs
        ]
    )
    created: set[str] = set()
    refusals: list[tuple[bool, str]] = []
    for name, code, *message in answer.topic_errors:
        if code == 0:
            created.add(name)
        elif code != TopicAlreadyExistsError.errno:
            kind = for_code(code)
            why = next(filter(None, message), kind.__name__)
            if kind is TopicAuthorizationFailedError:
                why += " It needs Create on the topic"
            refusals.append((kind.retriable, f"topic {name}: {why}"))
    if refusals:
        whether = SinkUnavailable if all(retriable for retriable, _ in refusals) else SinkRejected
        raise whether("; ".join(text for _, text in refusals))
    return created


async def _wait_for_leaders(admin: Any, names: Collection[str]) -> None:
    deadline_s = time.monotonic() + _LEADERS_WITHIN_S
    while names:
        layout = await _layout(admin)
        leaderless = [name for name in names if not layout.get(name, (0, False))[1]]
        if not leaderless:
            return
        if time.monotonic() > deadline_s:
            raise SinkUnavailable(
                f"topics without a leader {_LEADERS_WITHIN_S:g} s after they were made: "
                + ", ".join(sorted(leaderless))
            )
        await asyncio.sleep(_FIRST_PAUSE_S)


def _differences(spec: TopicSpec, found: TopicDescription) -> Iterator[str]:
    if found.partitions != spec.partitions:
        yield f"{spec.name} has {found.partitions} partitions; {spec.partitions} were asked for"
    wanted, policy = spec.config.get("cleanup.policy"), found.config.get("cleanup.policy")
    if wanted and policy and set(wanted.split(",")) != set(policy.split(",")):
        yield f"{spec.name} has cleanup.policy={policy}; {wanted} was asked for"


async def partitions_of(
    client: Client, topic: str, partitions: Collection[int] | None = None
) -> list[int]:
    """Return the partitions of ``topic``, or those of them that are wanted, in order.

    Raises:
        SourceError: If there is no such topic or partition.
        SinkUnavailable: If no broker answers.
    """
    async with _admin(client) as admin:
        await require_rights(admin, {topic: ("Read",)})
        count, _ = (await _layout(admin)).get(topic, (0, False))
    if not count:
        raise SourceError(f"there is no topic {topic} on Kafka at {address_of(client)}")
    wanted = range(count) if partitions is None else sorted(partitions)
    unknown = [number for number in wanted if not 0 <= number < count]
    if unknown:
        raise SourceError(f"topic {topic} has partitions 0 to {count - 1}; got {unknown}")
    return list(wanted)
