"""A real vLLM with the plugin: it serves as before, and what it reports is what its clients saw."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from connectors.kafka import create_topics, read_topic
from daom.codec import decode
from daom.events import ChangeEvent, Record, TelemetryBatch
from daom.topics import Topics, TopicSpec
from tests.kafka_servers import RealKafka
from tests.servers import eventually
from tests.vllm.engine import (
    Answer,
    Load,
    Vllm,
    assert_clocks_agree,
    break_off,
    find_vllm,
)

pytestmark = [pytest.mark.vllm, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

REPORTED_WITHIN_S = 30.0


class Reported:
    """What the plugin has put on a topic."""

    def __init__(self, address: str, topic: str) -> None:
        self._client = {"bootstrap_servers": address}
        self._topic = topic

    def records(self) -> list[Record]:
        async def read() -> list[Record]:
            found = []
            async for record in read_topic(self._client, self._topic):
                decoded = decode(record.value)
                assert decoded.faults == ()
                found.append(decoded.record)
            return found

        return asyncio.run(read())

    def batches(self) -> list[TelemetryBatch]:
        """Each batch once, however often it was sent."""
        found = [r for r in self.records() if isinstance(r, TelemetryBatch)]
        return list({(b.source.engine, *b.source.numbering): b for b in found}.values())

    def changes(self) -> list[ChangeEvent]:
        return [record for record in self.records() if isinstance(record, ChangeEvent)]

    def column(self, table: str, name: str) -> np.ndarray:
        tables = [getattr(batch, table) for batch in self.batches()]
        return np.concatenate([t.columns[name] for t in tables if name in t.columns])

    def requests(self) -> int:
        return sum(batch.requests.rows for batch in self.batches())


def frames_of_ours(log: str) -> list[str]:
    """The lines of tracebacks that pass through DAOM; vLLM logs some of its own when it stops."""
    return re.findall(r'File "[^"]*/(?:connectors|daom)/[^"]*", line \d+.*', log)


def variables(address: str, prefix: str, **probe: str) -> dict[str, str]:
    return {
        "DAOM_KAFKA__BOOTSTRAP_SERVERS": address,
        "DAOM_KAFKA__TOPIC_PREFIX": prefix,
        **{f"DAOM_PROBE__{name.upper()}": value for name, value in probe.items()},
    }


def topic_of(address: str, prefix: str) -> Reported:
    topic = Topics(prefix).telemetry
    spec = TopicSpec(topic, 1, 1, {"max.message.bytes": "5000000"})
    asyncio.run(create_topics({"bootstrap_servers": address}, [spec]))
    return Reported(address, topic)


@pytest.fixture
def own_kafka(kafka_script: Path, tmp_path: Path) -> Iterator[RealKafka]:
    with RealKafka(tmp_path / "kafka", script=kafka_script) as broker:
        yield broker


def assert_same_counts(
    reported: Reported, answers: list[Answer], *, aborted_tokens: float = 0.0
) -> None:
    """Of a request that was aborted the steps know the tokens, and the requests nothing."""
    eventually(lambda: reported.requests() == len(answers), REPORTED_WITHIN_S, every_s=0.5)
    tokens = sum(answer.output_tokens for answer in answers)
    assert reported.column("requests", "output_tokens").sum() == tokens
    assert reported.column("steps", "tokens").sum() == tokens + aborted_tokens
    prompts = sum(answer.prompt_tokens for answer in answers)
    assert reported.column("requests", "prompt_tokens").sum() == prompts


def tokens_of_an_abort(reported: Reported, url: str) -> float:
    """Break a request off, and return how many tokens the engine made of it."""
    break_off(url, after_tokens=20)

    def is_over() -> bool:
        batches = [batch.gauges for batch in reported.batches() if "running" in batch.gauges]
        begun = bool(batches) and batches[-1].get("first_tokens_total") == 1.0
        return begun and batches[-1]["running"] == 0.0

    eventually(is_over, REPORTED_WITHIN_S, every_s=0.5)
    assert reported.requests() == 0
    made = float(reported.column("steps", "tokens").sum())
    assert 20 <= made < 900
    return made


def test_installing_daom_moves_no_version_that_vllm_had() -> None:
    python = find_vllm()
    assert python is not None
    before, after = (
        set((python.parents[1] / name).read_text().split()) for name in ("before.txt", "after.txt")
    )

    assert before <= after
    new = {line.partition("==")[0] for line in after - before}
    assert "daom" in new
    assert new <= {"daom", "aiokafka", "async-timeout"}
    complaints = [
        set((python.parents[1] / f"check-{when}.txt").read_text().splitlines())
        for when in ("before", "after")
    ]
    assert complaints[0] == complaints[1], "pip check finds what it did not before"


def test_what_the_plugin_reports_is_what_the_clients_saw_whatever_becomes_of_kafka(
    own_kafka: RealKafka, tmp_path: Path
) -> None:
    address = own_kafka.bootstrap_servers
    reported = topic_of(address, "vllm")
    with Vllm(tmp_path, environment=variables(address, "vllm", engine="blue")) as engine:
        aborted = tokens_of_an_abort(reported, engine.url)
        calm = Load(streams=20, requests=3).run(engine.url)
        assert_same_counts(reported, calm, aborted_tokens=aborted)
        for column in ("ttft_s", "e2e_s"):
            seen_s = [getattr(answer, column) for answer in calm]
            assert_clocks_agree(reported.column("requests", column), seen_s)

        # A broker that hangs, then one that dies, under load; and one that is back.
        own_kafka.pause()
        hung = Load(streams=20, requests=3, seed=2).run(engine.url)
        own_kafka.resume()
        own_kafka.kill()
        away = Load(streams=20, requests=3, seed=3).run(engine.url)
        own_kafka.start()
        back = Load(streams=20, requests=1, seed=4).run(engine.url)

        served = [*calm, *hung, *away, *back]
        assert_same_counts(reported, served, aborted_tokens=aborted)
        assert reported.batches()[-1].gauges["probe_dropped_total"] == 0.0
        # A stop sends what has just happened, too.
        last = Load(streams=1, requests=1, seed=5).run(engine.url)
        engine.stop()
        log = engine.log

    assert_same_counts(reported, [*served, *last], aborted_tokens=aborted)
    assert {(b.source.engine, b.source.model) for b in reported.batches()} == {("blue", "tiny")}
    (change,) = reported.changes()
    assert change.kind == "restart"
    assert "prefix_caching=True" in (change.detail or "")
    assert log.count("connectors.vllm_plugin") >= 1
    assert frames_of_ours(log) == []


def test_two_engines_behind_two_frontends_report_each_token_once(
    kafka, topic_prefix: str, tmp_path: Path
) -> None:
    address = kafka.bootstrap_servers
    reported = topic_of(address, topic_prefix)
    environment = {
        **variables(address, topic_prefix, engine="pair"),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    with Vllm(tmp_path, "--data-parallel-size", "2", environment=environment) as engines:
        answers = Load(streams=12, requests=3).run(engines.url)

        assert_same_counts(reported, answers)

    sources = {(b.source.engine, b.source.boot, b.source.frontend) for b in reported.batches()}
    assert {name for name, _, _ in sources} == {"pair/0", "pair/1"}
    assert len({boot for _, boot, _ in sources}) == 1
    assert {change.source.engine for change in reported.changes()} == {"pair/0", "pair/1"}
    steps = {
        (b.source.engine, round(float(end_s), 4))
        for b in reported.batches()
        if "itl_s" in b.steps.columns
        for end_s, gap_s in zip(b.steps.end_s, b.steps.columns["itl_s"], strict=True)
        if not np.isnan(gap_s)
    }
    gaps = int((~np.isnan(reported.column("steps", "itl_s"))).sum())
    assert gaps == len(steps), "a step's gap was reported twice"


def test_a_broken_setting_disables_the_plugin_with_one_line_and_vllm_serves(
    tmp_path: Path,
) -> None:
    environment = {"DAOM_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "DAOM_PROBE__PERIOD_S": "often"}
    with Vllm(tmp_path, environment=environment) as engine:
        answers = Load(streams=2, requests=1).run(engine.url)
        log = engine.log

    assert len(answers) == 2
    ours = [line for line in log.splitlines() if "daom: " in line]
    assert len(ours) == 1
    assert "nothing is reported: DAOM_PROBE__PERIOD_S: probe: " in ours[0]
