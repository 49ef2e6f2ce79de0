"""A report of a topic: its partitions side by side, in as many processes as there may be."""

import asyncio
import json
import os
import signal

import pytest
from aiokafka import AIOKafkaProducer

from connectors.contests import Interrupt, contested
from connectors.kafka import create_topics
from connectors.sources import Source, open_source
from daom.codec import encode_json
from daom.config import Config
from daom.replay import Sourced
from daom.report.contest import Contest, line_up
from daom.report.document import Replayed, document
from daom.topics import TopicSpec
from tests.daom.stories import calm, story
from tests.fleet import several_cells

CELLS = ("a", "b", "c")
UNTIL_S = 1_764_000_840.0
ONE_SIGNAL = {"signals": {"ttft_s": {}}}


@pytest.fixture(scope="module")
def lines():
    """A quarter of an hour of three models."""
    return several_cells(CELLS, UNTIL_S)


@pytest.fixture(scope="module")
def config(kafka):
    return Config.model_validate(
        ONE_SIGNAL | {"kafka": {"bootstrap_servers": kafka.bootstrap_servers}}
    )


@pytest.fixture(scope="module")
def topic(kafka, config, lines):
    """The lines in a topic, each model in a partition of its own."""
    name = "test-contests"
    client = {"bootstrap_servers": kafka.bootstrap_servers}
    spec = TopicSpec(name, len(CELLS), 1, {"retention.ms": "-1"})

    async def send():
        await create_topics(client, [spec])
        async with AIOKafkaProducer(**client) as producer:
            for line in lines:
                cell = json.loads(line.value)["source"]["model"]
                await producer.send(name, line.value, cell.encode(), CELLS.index(cell))

    asyncio.run(send())
    return open_source(f"topic:{name}", config.kafka.client(), "")


def told(source, config, jobs, after=lambda _: None):
    """Replay a source; return its contests by part."""
    parts = {}
    settings = line_up(config, [])
    with Interrupt() as interrupt, contested(source, config, settings, interrupt, jobs) as items:
        for number, item in items:
            if isinstance(item, Contest):
                parts[number] = item
            else:
                after(interrupt)
    return parts


def report_of(parts, config):
    whole = Contest(line_up(config, []))
    for _, part in sorted(parts.items()):
        whole.absorb(part)
    return document(Replayed(contest=whole, recorded=whole.recorded("topic")))


def test_the_report_of_a_topic_is_the_same_in_one_process_and_in_three(topic, config, lines):
    in_one, in_three = (report_of(told(topic, config, jobs), config) for jobs in (1, 3))

    assert in_one == in_three
    assert in_one["source"]["records"] == len(lines)
    assert [cell["cell"] for cell in in_one["source"]["cells"]] == list(CELLS)


def press_ctrl_c(interrupt):
    if not interrupt.asked:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("jobs", [1, 3])
def test_after_ctrl_c_every_partition_says_what_it_has_read(topic, config, lines, jobs):
    parts = told(topic, config, jobs, after=press_ctrl_c)

    records = [part.tally.records for _, part in sorted(parts.items())]
    assert len(records) == len(CELLS)
    assert 0 < sum(records) < len(lines)


class Endless:
    """A part that gives what it has, then waits for more until it is interrupted."""

    name, size, unit, partition = "endless", 0, "records", None

    def __init__(self, values):
        self._values = values

    def using(self, client):  # noqa: ARG002 - what every part takes.
        return self

    def records(self, done=None):  # noqa: ARG002 - what every part takes.
        yield from self._values
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("it waited, so Ctrl-C interrupts it")


def test_ctrl_c_interrupts_a_source_that_waits_and_keeps_what_came_before():
    values = [Sourced(f"line {n}", encode_json(record)) for n, record in enumerate(story(calm(1)))]
    source = Source("endless", (Endless(values),))

    (part,) = told(source, Config.model_validate(ONE_SIGNAL), 1).values()

    assert part.tally.records == len(values)
    assert part.recorded("endless") is not None
    # SIGINT is what it was before.
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_ctrl_c_waits_for_nothing():
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
