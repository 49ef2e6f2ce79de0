"""A live worker is sent what producers get wrong: it goes on, and keeps each with its reason."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from connectors.kafka import create_topics, read_topic
from connectors.recordings import record_time_s
from daom.codec import decode, decode_output
from daom.config import Config
from daom.events import Alert
from daom.topics import TopicSpec
from tests.bad_lines import kinds, with_bad_lines
from tests.fleet import LARGEST_BYTES, Fleet, said_by_replay, several_cells
from tests.servers import WITHOUT_PROXY, eventually, free_port

KEPT_BYTES = 512 * 2**10


def fleet_with_room(broker, prefix, metrics_port):
    """One partition, so that good and bad lines keep their order, that takes what DAOM will not."""
    settings = {"DAOM_WORKER__METRICS_PORT": str(metrics_port)}
    fleet = Fleet(broker.bootstrap_servers, prefix, partitions=1, settings=settings)
    room = {"max.message.bytes": str(LARGEST_BYTES), "retention.ms": "-1"}
    spec = TopicSpec(fleet.topics.telemetry, 1, 1, room)
    asyncio.run(create_topics(fleet.client, [spec]))
    return fleet


def logged(fleet):
    """The telemetry topic's values by offset."""

    async def collect():
        records = read_topic(fleet.client, fleet.topics.telemetry)
        return {record.offset: record.value async for record in records}

    return asyncio.run(collect())


def counted(port):
    """What the worker has counted as dead letters, by kind."""
    with WITHOUT_PROXY.open(f"http://127.0.0.1:{port}/metrics", timeout=5.0) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.partition('kind="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2]))
        for line in lines
        if line.startswith("daom_dead_letters_total{")
    }


@pytest.mark.slow
def test_a_worker_goes_on_past_bad_input_and_keeps_each_with_its_reason(
    any_broker, topic_prefix, tmp_path
):
    sent, port = with_bad_lines(), free_port()
    lines = [line for line, _ in sent]
    expected = said_by_replay(lines, partition=0)
    # What a recording cannot hold: a null value, and a good one that is filed under no cell.
    unfiled = [(b"llama-3.2-1b", None), (None, lines[0].value)]
    faults = kinds(sent) + Counter(["tombstone", "wrong_key"])
    with fleet_with_room(any_broker, topic_prefix, port) as fleet:
        worker = fleet.start_worker(tmp_path / "worker.log")
        fleet.play(lines[: len(lines) // 2])
        fleet.send((key, value, None) for key, value in unfiled)
        fleet.play(lines[len(lines) // 2 :])

        assert expected == fleet.says(expected)
        eventually(lambda: len(fleet.records(fleet.topics.dead_letters)) >= faults.total())
        letters, log = fleet.records(fleet.topics.dead_letters), logged(fleet)
        assert Counter(headers["kind"].decode() for _, _, headers in letters) == faults
        for key, value, headers in letters:
            offset = int(headers["source_offset"])
            whole = log[offset] or b""
            assert key.decode() == f"{fleet.topics.telemetry}/0/{offset}"
            assert value == whole[:KEPT_BYTES]
            assert int(headers["source_bytes"]) == len(whole)
            assert headers["reason"]
        assert counted(port) == faults
        said, told = fleet.replayed()
        assert sorted(said) == sorted(expected.values())
        at = {int(headers["source_offset"]) for _, _, headers in letters}
        places = [
            f"{fleet.topics.telemetry} partition 0 offset {offset}: " for offset in sorted(at)
        ]
        assert all(map(str.startswith, told, places))
        assert worker.stop() == 0


REFUSED_FOR_S = 300.0


def with_a_cell_too_many():
    """Two models, of which the second stops after some minutes."""
    lines = several_cells(("first", "second"))
    records = [decode(line.value).record for line in lines]
    until_s = record_time_s(records[0]) + REFUSED_FOR_S
    return [
        line
        for line, record in zip(lines, records, strict=True)
        if record.source.model == records[0].source.model or record_time_s(record) < until_s
    ]


@pytest.mark.slow
def test_a_cell_too_many_raises_an_alert_of_its_partition_whoever_owns_that(
    kafka, topic_prefix, tmp_path
):
    lines = with_a_cell_too_many()
    config = Config.model_validate({"limits": {"cells": 1}})
    expected = said_by_replay(lines, config, partition=0)
    settings = {"DAOM_LIMITS__CELLS": "1"}
    with Fleet(kafka.bootstrap_servers, topic_prefix, 1, settings=settings) as fleet:
        first = fleet.start_worker(tmp_path / "first.log")
        fleet.play(lines[: len(lines) // 3])
        eventually(lambda: fleet.values(fleet.topics.alerts), 60.0, every_s=0.3)
        first.kill()
        fleet.start_worker(tmp_path / "second.log")
        fleet.play(lines[len(lines) // 3 :])

        assert expected == fleet.says(expected)
        said, _ = fleet.replayed()
        assert sorted(said) == sorted(expected.values())
    alerts = [o for o in map(decode_output, expected.values()) if isinstance(o, Alert)]
    moves = [(a.state, a.labels.get("partition")) for a in alerts if a.name == "LimitReached"]
    assert moves == [("firing", "0"), ("resolved", "0")]
