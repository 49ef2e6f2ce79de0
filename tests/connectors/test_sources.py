"""What SOURCE means: recordings, directories of them, and ranges of topics."""

import asyncio
import gzip

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from connectors.kafka import create_topics
from connectors.sources import Done, open_source
from daom.errors import ConfigError, SourceError
from daom.span import Moment, Offsets, Span
from daom.topics import TopicSpec

NOBODY = {"bootstrap_servers": "127.0.0.1:1"}
T0 = 1_766_000_000
PARTITIONS = 3
BATCH = 10
"""Records of one producer's batch: the embedded broker's answers are wrong of such."""


def tick(time_s):
    return b'{"schema":"Tick/1","source":{"model":"m"},"time_s":%d}' % time_s


def recording(path, *times_s, end=b"\n"):
    path.write_bytes(b"\n".join(tick(time_s) for time_s in times_s) + end)
    return str(path)


def opened(source, span=None, client=NOBODY):
    return open_source(str(source), client, "the.default", span)


def values(source, span=None):
    return [r.value for part in opened(source, span).parts for r in part.records()]


def since(text_s, until_s=None):
    until = None if until_s is None else Moment(time_s=until_s)
    return Span(None if text_s is None else Moment(time_s=text_s), until)


# Recordings


def test_a_recording_is_one_part_and_says_where_each_line_is(tmp_path):
    path = recording(tmp_path / "a.jsonl", 1, 2)

    [part] = opened(path).parts

    assert [(r.where, r.value) for r in part.records()] == [
        (f"{path}:1", tick(1)),
        (f"{path}:2", tick(2)),
    ]


def test_a_directory_is_one_log_in_the_order_of_names(tmp_path):
    recording(tmp_path / "b.jsonl", 1)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(tick(2) + b"\n"))
    (tmp_path / "notes.yaml").write_text("no recording")

    [part] = opened(tmp_path).parts
    done = Done()

    assert [r.value for r in part.records(done)] == [tick(2), tick(1)]
    assert done.amount == part.size > 0


def test_a_directory_without_recordings_is_no_source(tmp_path):
    (tmp_path / "notes.yaml").write_text("no recording")

    with pytest.raises(SourceError, match=r"a directory without recordings.*\.jsonl\.zst"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("span", "kept"),
    [
        (since(2), [2, 3, 4, 5]),
        (since(2, 4), [2, 3]),
        (since(None, 3), [1, 2]),
        (Span(since=Moment(back_s=1.0)), [4, 5]),
        (Span(since=Moment(back_s=3.0), until=Moment(back_s=1.0)), [2, 3]),
    ],
)
def test_a_range_of_a_recording_is_by_time(tmp_path, span, kept):
    path = recording(tmp_path / "a.jsonl", 1, 2, 3, 4, 5)

    assert values(path, span) == [tick(time_s) for time_s in kept]


def test_a_log_time_counts_before_an_event_time(tmp_path):
    path = tmp_path / "a.jsonl"
    late = tick(1)[:-1] + b',"logged_s":9}'
    path.write_bytes(b"\n".join([tick(3), late, b"junk", tick(2)]) + b"\n")

    assert values(path, since(5)) == [late, b"junk"]


def test_offsets_are_of_topics_alone(tmp_path):
    with pytest.raises(ConfigError, match="a recording has no offsets; use --since"):
        opened(recording(tmp_path / "a.jsonl", 1), Span(offsets={0: Offsets()}))


def test_a_recording_cut_in_the_middle_of_a_line_is_told_after_its_whole_lines(tmp_path):
    path = recording(tmp_path / "a.jsonl", 1, 2, end=b"\n" + tick(3)[:20])
    read = []

    with pytest.raises(SourceError, match="breaks off in the middle of line 3; the 2 whole lines"):
        read.extend(r.value for part in opened(path).parts for r in part.records())

    assert read == [tick(1), tick(2)]


def test_a_last_line_without_its_end_is_used_if_it_is_whole(tmp_path):
    assert values(recording(tmp_path / "a.jsonl", 1, 2, end=b"")) == [tick(1), tick(2)]


# Topics


@pytest.fixture(scope="module")
def logs():
    """What each broker holds: made once."""
    return {}


@pytest.fixture
def topic(any_broker, logs):
    """A topic: partition p has the records of T0 + p, T0 + p + 10 and so on; the last has none."""
    address = any_broker.bootstrap_servers
    if address not in logs:
        logs[address] = f"sources-{T0}-{len(logs)}-{id(logs)}"
        asyncio.run(fill(address, logs[address]))
    return {"bootstrap_servers": address}, logs[address]


def stamps_s(partition):
    return (
        [] if partition == PARTITIONS - 1 else [T0 + partition + 10 * n for n in range(4 * BATCH)]
    )


async def fill(address, name):
    spec = TopicSpec(name, PARTITIONS, 1, {"cleanup.policy": "delete", "retention.ms": "-1"})
    await create_topics({"bootstrap_servers": address}, [spec])
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for partition in range(PARTITIONS):
            stamps = stamps_s(partition)
            for first in range(0, len(stamps), BATCH):
                batch = producer.create_batch()
                for stamp_s in stamps[first : first + BATCH]:
                    batch.append(key=b"m", value=tick(stamp_s), timestamp=1_000 * stamp_s)
                await (await producer.send_batch(batch, name, partition=partition))


def read(topic, span=None):
    """What is in the range: by partition, the log times."""
    client, name = topic
    source = opened(f"topic:{name}", span, client)
    return {part.partition: [r.logged_s for r in part.records()] for part in source.parts}


def test_a_topic_has_a_part_for_each_partition(topic):
    assert read(topic) == {number: stamps_s(number) for number in range(PARTITIONS)}


def test_a_record_of_a_topic_says_where_it_is(topic):
    client, name = topic

    [first, *_] = opened(f"topic:{name}", None, client).parts[0].records()

    assert first == (f"{name} partition 0 offset 0", tick(T0), "m", float(T0), 0)


@pytest.mark.parametrize(
    ("since_s", "until_s"),
    [
        (None, T0 + 55),
        (T0 + 55, None),
        (T0 + 50, T0 + 51),
        (T0 + 105, T0 + 305),
        (T0 - 999, T0 + 9_999),
        (T0 + 9_999, None),
        (None, T0),
    ],
)
def test_a_range_by_time_holds_what_is_stamped_so_whatever_the_broker_answers(
    topic, since_s, until_s
):
    def is_meant(stamp_s):
        return (since_s or 0) <= stamp_s < (until_s or 2 * T0)

    found = read(topic, since(since_s, until_s))

    assert found == {n: list(filter(is_meant, stamps_s(n))) for n in range(PARTITIONS)}


def test_a_duration_counts_from_the_newest_record_of_all_partitions(topic):
    newest_s = max(stamps_s(1))

    found = read(topic, Span(since=Moment(back_s=25.0)))

    assert found == {n: [s for s in stamps_s(n) if s >= newest_s - 25] for n in range(PARTITIONS)}


def test_offsets_choose_partitions_and_what_is_read_of_them(topic):
    found = read(topic, Span(offsets={0: Offsets(5, 7), 1: Offsets(38, None), 2: Offsets()}))

    assert found == {0: stamps_s(0)[5:7], 1: stamps_s(1)[38:], 2: []}


def test_a_range_by_offset_may_end_where_the_log_does(topic):
    assert read(topic, Span(offsets={0: Offsets(39, 40)})) == {0: stamps_s(0)[39:]}


@pytest.mark.parametrize("offsets", [Offsets(5, 41), Offsets(41, None), Offsets(None, 41)])
def test_offsets_beyond_the_end_are_refused_with_what_there_is(topic, offsets):
    with pytest.raises(SourceError, match="/0 holds offsets from 0 to before 40; 41 is beyond"):
        read(topic, Span(offsets={0: offsets}))


def test_a_partition_that_is_not_there_is_named(topic):
    with pytest.raises(SourceError, match=r"has partitions 0 to 2; got \[7\]"):
        read(topic, Span(offsets={7: Offsets()}))


def test_a_topic_that_is_not_there_is_named_and_not_made(topic):
    client, _ = topic

    for _ in range(2):
        with pytest.raises(SourceError, match=r"there is no topic the\.default on Kafka at"):
            opened("topic:", None, client)


def test_how_much_of_a_part_has_been_read_is_known_all_along(topic):
    client, name = topic
    part = opened(f"topic:{name}", since(T0 + 105), client).parts[0]
    done = Done()

    amounts = [done.amount for _ in part.records(done)]

    assert amounts == sorted(amounts)
    assert done.amount == part.size >= len(amounts)


def test_one_clock_ahead_does_not_end_a_range(kafka, topic_prefix):
    """Of two producers one is an hour ahead: the first record after the end is not the last."""
    client = {"bootstrap_servers": kafka.bootstrap_servers}
    stamps = [T0 + n + (3_600 if n % 2 else 0) for n in range(200)]

    async def story():
        await create_topics(client, [TopicSpec(topic_prefix, 1, 1, {"retention.ms": "-1"})])
        async with AIOKafkaProducer(**client) as producer:
            for stamp_s in stamps:
                await producer.send(topic_prefix, tick(stamp_s), timestamp_ms=1_000 * stamp_s)

    asyncio.run(story())

    found = read((client, topic_prefix), since(T0 + 50, T0 + 150))

    assert found == {0: [s for s in stamps if T0 + 50 <= s < T0 + 150]}
    assert len(found[0]) == 50


def test_offsets_that_are_no_longer_there_are_told(kafka, topic_prefix):
    client = {"bootstrap_servers": kafka.bootstrap_servers}

    async def story():
        await create_topics(client, [TopicSpec(topic_prefix, 1, 1, {"retention.ms": "-1"})])
        async with AIOKafkaProducer(**client) as producer:
            for n in range(20):
                await producer.send_and_wait(topic_prefix, tick(T0 + n))
        admin = AIOKafkaAdminClient(**client)
        await admin.start()
        await admin.delete_records({TopicPartition(topic_prefix, 0): RecordsToDelete(12)})
        await admin.close()

    asyncio.run(story())

    with pytest.raises(SourceError, match="holds offsets from 12 to before 20; 3 is no longer"):
        read((client, topic_prefix), Span(offsets={0: Offsets(3, None)}))
    assert len(read((client, topic_prefix))[0]) == 8
