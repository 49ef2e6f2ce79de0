"""``daom replay --verify`` of a run of live workers: it holds, or tells the first difference."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord

from connectors.kafka import create_topics, read_topic
from daom.codec import decode_output
from tests.fleet import Fleet, said_by_replay, several_cells
from tests.servers import eventually

MODELS = ("llama-3.2-1b", "qwen3-32b")
PARTITIONS = 4
UNUSABLE = 2
UNTIL_S = 1_764_000_900.0

Change = Callable[[ConsumerRecord], bytes | None]
"""What becomes of a message that is copied: its value; None: it is left out."""


@pytest.fixture(scope="module")
def expected():
    return said_by_replay(several_cells(MODELS, UNTIL_S))


@pytest.fixture(scope="module")
def run(kafka, tmp_path_factory, expected):
    """What two workers said, of which one was killed; some of what they were sent is unusable."""
    folder, lines = tmp_path_factory.mktemp("verify"), several_cells(MODELS, UNTIL_S)
    prefix = f"verify-{uuid.uuid4().hex[:12]}"
    with Fleet(kafka.bootstrap_servers, prefix, PARTITIONS) as fleet:
        first = fleet.start_worker(folder / "first.log")
        second = fleet.start_worker(folder / "second.log")
        fleet.play(lines[: len(lines) // 2])
        eventually(lambda: len(fleet.said()) > len(expected) // 5, 60.0, every_s=0.3)
        first.kill()
        fleet.send([(b"llama-3.2-1b", b"{", None), (None, lines[0].value, None)])
        fleet.play(lines[len(lines) // 2 :])
        assert expected == fleet.says(expected)
        second.stop()
        yield fleet


@pytest.fixture(scope="module")
def altered(run, expected):
    """A verdict in the middle."""
    verdicts = [value for value in expected.values() if b'"type":"verdict"' in value]
    return decode_output(sorted(verdicts, key=lambda v: decode_output(v).event_time_s)[50])


def copied(fleet: Fleet, change: Change) -> Fleet:
    """Return a fleet of which the log says that it said what ``fleet`` did, but for ``change``."""
    copy = Fleet(fleet.brokers, f"{fleet.prefix}-{uuid.uuid4().hex[:6]}", PARTITIONS)
    specs = copy.topics.specs(partitions=PARTITIONS, telemetry_retention_s=float("inf"))
    asyncio.run(create_topics(copy.client, specs))

    async def send() -> None:
        async with AIOKafkaProducer(**copy.client, max_request_size=2**24) as producer:
            for name in (*fleet.topics.said, fleet.topics.checkpoints):
                to = name.replace(fleet.prefix, copy.prefix)
                async for record in read_topic(fleet.client, name):
                    if (value := change(record)) is not None:
                        await producer.send(
                            to, value, record.key, record.partition, headers=list(record.headers)
                        )

    asyncio.run(send())
    return copy


def verified_with(run: Fleet, change: Change) -> tuple[int, dict[str, Any]]:
    return copied(run, change).verified(telemetry=run.topics.telemetry)


@pytest.fixture(scope="module")
def told(run):
    """What is told of the run."""
    code, told = run.verified()
    assert code == 0, told
    return told


@pytest.mark.slow
def test_what_live_workers_said_is_verified_to_the_last_message(told, expected):
    assert (told["outcome"], told["first"]) == ("same", None)
    assert told["same"] == len(expected) + UNUSABLE
    assert (told["different"], told["missing"], told["beyond"]) == (0, 0, 0)
    assert (told["not_yet"], told["not_kept"]) == (0, 0)


@pytest.mark.slow
def test_one_altered_output_is_named_with_its_field_and_both_values(run, altered):
    def change(record):
        if altered.id.encode() not in record.value:
            return record.value
        fields = json.loads(record.value)
        return json.dumps(
            fields | {"samples": fields["samples"] + 1}, separators=(",", ":")
        ).encode()

    code, told = verified_with(run, change)

    first = told["first"]
    assert (code, told["outcome"], first["kind"]) == (1, "different", "different")
    assert (first["id"], first["field"]) == (altered.id, "samples")
    assert (first["written"], first["right"]) == (altered.samples + 1, altered.samples)
    assert first["topic"].endswith(".verdicts")
    assert first["partition"] is not None
    assert first["offset"] is not None
    assert first["due"]["topic"] == run.topics.telemetry


@pytest.mark.slow
def test_one_missing_output_is_named_and_what_it_should_have_said(run, altered, expected):
    code, told = verified_with(
        run, lambda record: None if altered.id.encode() in record.value else record.value
    )

    first = told["first"]
    assert (code, told["missing"], told["not_yet"]) == (1, 1, 0)
    assert (first["kind"], first["id"], first["written"]) == ("missing", altered.id, None)
    assert first["right"].encode() == expected[altered.id]


@pytest.mark.slow
def test_one_output_too_many_is_named_with_its_place(run, altered, expected):
    value = expected[altered.id].replace(altered.id.encode(), b"0" * 32)
    copy = copied(run, lambda record: record.value)
    asyncio.run(send_one(copy, copy.topics.verdicts, value))

    code, told = copy.verified(telemetry=run.topics.telemetry)

    first = told["first"]
    assert (code, told["missing"], told["beyond"]) == (1, 0, 1)
    assert (first["kind"], first["id"], first["right"]) == ("beyond", "0" * 32, None)
    assert first["written"].encode() == value
    assert first["offset"] is not None


async def send_one(fleet: Fleet, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(**fleet.client) as producer:
        await producer.send_and_wait(topic, value, key=b"some key")


@pytest.mark.slow
def test_what_a_fleet_has_not_said_yet_is_not_missing(run, expected):
    """Its last checkpoint promises only so much; here it says nothing of the newest records."""
    newest_s = max(decode_output(value).event_time_s for value in expected.values())

    def change(record):
        if record.topic.endswith(".checkpoints"):
            return None
        if record.topic.endswith(".deadletter"):
            return record.value
        return None if decode_output(record.value).event_time_s == newest_s else record.value

    code, told = verified_with(run, change)

    newest = sum(decode_output(value).event_time_s == newest_s for value in expected.values())
    assert (code, told["outcome"], told["missing"]) == (0, "same", 0)
    assert told["not_yet"] == newest


@pytest.mark.slow
def test_a_range_is_compared_alone_with_the_state_from_before_it(run, told):
    longest = max(told["partitions"], key=lambda of: of["log_until"])
    middle = longest["log_until"] // 2

    code, of_range = run.verified("--offsets", f"{longest['partition']}:{middle}-")

    assert (code, of_range["outcome"]) == (0, "same")
    assert 0 < of_range["same"] < told["same"]
    assert [of["compared_from"] for of in of_range["partitions"]] == [middle]
