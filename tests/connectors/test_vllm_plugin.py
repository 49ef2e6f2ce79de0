"""The plugin as vLLM calls it, by the shapes of its oldest version and of a new one.

vLLM itself takes seconds and half a gigabyte to import; the acceptance tests run the real one.
"""

import asyncio
import importlib
import logging
import sys
from abc import ABC, abstractmethod
from types import ModuleType, SimpleNamespace

import pytest

from connectors import vllm_probe
from connectors.kafka import create_topics, read_topic
from daom.codec import decode
from daom.events import ChangeEvent, TelemetryBatch
from daom.topics import Topics, TopicSpec
from tests.connectors.vllm_recorded import finished, scheduler, step
from tests.servers import eventually

NOW_S = 1_766_000_000.0


class Base(ABC):
    """Of 0.11.1: one logger an engine."""

    @abstractmethod
    def __init__(self, vllm_config, engine_index=0): ...

    @abstractmethod
    def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0): ...

    @abstractmethod
    def log_engine_initialized(self): ...


class Aggregate(Base):
    """Of later versions: one for all engines; it alone hears of sleep and rejections."""

    @abstractmethod
    def __init__(self, vllm_config, engine_indexes): ...


CONFIG = SimpleNamespace(
    parallel_config=SimpleNamespace(tensor_parallel_size=1, data_parallel_size=1),
    model_config=SimpleNamespace(served_model_name="tiny", model="/models/tiny"),
)
TWO = SimpleNamespace(
    parallel_config=SimpleNamespace(data_parallel_size=2), model_config=CONFIG.model_config
)


@pytest.fixture
def plugin(monkeypatch):
    """Import the plugin beside a vLLM whose loggers have these base classes."""

    def imported(**bases):
        loggers = ModuleType("vllm.v1.metrics.loggers")
        loggers.__dict__.update(bases)
        metrics = ModuleType("vllm.v1.metrics")
        metrics.loggers = loggers
        vllm = ModuleType("vllm")
        vllm.__version__ = "0.11.1"
        for module in (vllm, ModuleType("vllm.v1"), metrics, loggers):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.delitem(sys.modules, "connectors.vllm_plugin", raising=False)
        return importlib.import_module("connectors.vllm_plugin").DaomStatLogger

    yield imported
    sys.modules.pop("connectors.vllm_plugin", None)


@pytest.fixture
def reported(embedded_broker, topic_prefix, monkeypatch):
    """What a logger has reported until its stop."""
    client = {"bootstrap_servers": embedded_broker.bootstrap_servers}
    topic = Topics(topic_prefix).telemetry
    asyncio.run(create_topics(client, [TopicSpec(topic, 1, 1, {})]))
    monkeypatch.setenv("DAOM_KAFKA__BOOTSTRAP_SERVERS", embedded_broker.bootstrap_servers)
    monkeypatch.setenv("DAOM_KAFKA__TOPIC_PREFIX", topic_prefix)
    monkeypatch.setenv("DAOM_PROBE__ENGINE", "blue")
    clock = SimpleNamespace(time=lambda: NOW_S, monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr(vllm_probe, "time", clock)

    def stopped(logger):
        eventually(lambda: logger._probe._reporter.counts.sent > 0)
        logger._probe.stop()

        async def read():
            return [decode(record.value) async for record in read_topic(client, topic)]

        decoded = asyncio.run(read())
        assert [each.faults for each in decoded] == [()] * len(decoded)
        return [each.record for each in decoded]

    return stopped


def total(records, name):
    batches = [record for record in records if isinstance(record, TelemetryBatch)]
    return max(batch.gauges.get(name, 0.0) for batch in batches)


def test_an_engine_of_the_oldest_version_is_reported(plugin, reported):
    """No ids, no cached tokens, prompt tokens as a number, adapters with the step's outputs."""
    logger = plugin(StatLoggerBase=Base)(CONFIG, 0)
    first = step(
        NOW_S - 1.0, ttfts_s=[0.5], num_prompt_tokens=7, running_lora_adapters={"poems": 1}
    )
    last = step(
        NOW_S,
        gaps_s=[0.02],
        finished=[finished(1.5, num_prompt_tokens=7)],
        num_prompt_tokens=0,
        num_preempted_reqs=1,
        running_lora_adapters={"poems": 1},
    )

    logger.log_engine_initialized()
    for of_step in (first, last):
        logger.record(scheduler(), of_step, mm_cache_stats=object(), engine_idx=0)
    records = reported(logger)

    rows = [r.requests for r in records if isinstance(r, TelemetryBatch) and r.requests.rows]
    (row,) = rows
    assert row.columns["ttft_s"].tolist() == pytest.approx([0.5])
    assert row.columns["prompt_tokens"].tolist() == [7.0]
    assert total(records, "prompt_tokens_total") == 7.0
    assert total(records, "preemptions_total") == 1.0
    assert total(records, "lora.poems") == 1.0


def test_a_logger_of_all_engines_reports_sleep_wake_and_rejections(plugin, reported):
    made = plugin(StatLoggerBase=Base, AggregateStatLoggerBase=Aggregate)
    logger = made(vllm_config=TWO, engine_indexes=[0, 1])
    logger.record_sleep_state(1, 2)
    logger.record_sleep_state(is_awake=0, level=0)
    logger.record_admission_rejection("max_num_queued_reqs")

    records = reported(logger)

    assert issubclass(made, Aggregate)
    told = [
        (r.source.engine, r.detail)
        for r in records
        if isinstance(r, ChangeEvent) and r.kind == "other"
    ]
    assert told == [
        *(("blue/0", "sleep level 2"), ("blue/1", "sleep level 2")),
        *(("blue/0", "wake"), ("blue/1", "wake")),
    ]
    assert total(records, "rejected_max_num_queued_reqs_total") == 1.0


class Breaks:
    """Whatever is asked of it goes wrong."""

    def __getattr__(self, name):
        raise RuntimeError("no such thing")

    def __bool__(self):
        raise RuntimeError("neither")

    def __str__(self):
        raise RuntimeError("no words")


def test_what_goes_wrong_within_a_call_is_counted_and_said_once(plugin, reported, caplog):
    logger = plugin(StatLoggerBase=Base, AggregateStatLoggerBase=Aggregate)(CONFIG, [0])
    for _ in range(2):
        logger.record(Breaks(), Breaks(), None, None, "one more", and_more=1)
        logger.record_sleep_state(Breaks(), Breaks())
        logger.record_admission_rejection(Breaks())
    logger.record(scheduler(), step(NOW_S, gaps_s=[0.02]))

    records = reported(logger)

    assert total(records, "generation_tokens_total") == 1.0
    assert logger._probe._reporter.counts.errors == {"RuntimeError": 6}
    assert sum("RuntimeError" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("engines", [(0,), ([0],), (Breaks(),), ()])
def test_a_configuration_that_cannot_be_read_is_one_line_and_vllm_goes_on(
    plugin, monkeypatch, caplog, engines
):
    monkeypatch.setenv("DAOM_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    logger = plugin(StatLoggerBase=Base)(Breaks(), *engines)

    logger.log_engine_initialized()
    logger.record(scheduler(), None, mm_cache_stats=None, engine_idx=0)
    logger.record_sleep_state(1, 1)
    logger.record_admission_rejection("full")
    logger.log()

    (line,) = [r.message for r in caplog.records if r.levelno >= logging.ERROR]
    assert line.startswith("daom: nothing is reported: ")
