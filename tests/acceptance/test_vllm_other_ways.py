"""A real vLLM without the plugin: its spans and its /metrics tell what its clients saw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from daom.codec import decode
from daom.events import TelemetryBatch
from tests.fleet import Fleet
from tests.processes import running
from tests.servers import eventually
from tests.vllm.engine import Answer, Load, Vllm, assert_clocks_agree

pytestmark = [pytest.mark.vllm, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

REPORTED_WITHIN_S = 60.0


def batches(fleet: Fleet, engine: str) -> list[TelemetryBatch]:
    """What has been reported of ``engine``, batch by batch."""
    records = [decode(value).record for value in fleet.values(fleet.topics.telemetry)]
    found = [record for record in records if isinstance(record, TelemetryBatch)]
    return [batch for batch in found if batch.source.engine == engine]


def column(found: list[TelemetryBatch], name: str) -> np.ndarray:
    return np.concatenate([b.requests.columns[name] for b in found if b.requests.rows])


def counted(found: list[TelemetryBatch], name: str) -> int:
    """Samples of a histogram, all batches together."""
    return sum(batch.histograms[name].total for batch in found if name in batch.histograms)


def test_spans_and_metrics_of_a_real_engine_tell_what_its_clients_saw(
    kafka, topic_prefix: str, tmp_path: Path
) -> None:
    with (
        Fleet(kafka.bootstrap_servers, topic_prefix, partitions=1) as fleet,
        running("receive", "--port", "0", **fleet.environment) as receiver,
    ):
        assert receiver.stdout is not None
        traces = f"{receiver.stdout.readline().strip()}/v1/traces"
        environment = {
            "VLLM_PLUGINS": "none",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=tiny,service.instance.id=spans",
        }
        with Vllm(tmp_path, "--otlp-traces-endpoint", traces, environment=environment) as engine:
            options = ("--engine", "buckets", "--interval", "1s")
            with running("scrape", engine.url, *options, **fleet.environment):
                # What was counted before the first look is not sent.
                eventually(lambda: batches(fleet, "buckets/0"), REPORTED_WITHIN_S, every_s=0.5)
                answers = Load(streams=20, requests=3).run(engine.url)
                _assert_spans_tell(fleet, answers)
                _assert_buckets_tell(fleet, answers)


def _assert_spans_tell(fleet: Fleet, answers: list[Answer]) -> None:
    eventually(
        lambda: sum(b.requests.rows for b in batches(fleet, "spans")) == len(answers),
        REPORTED_WITHIN_S,
        every_s=0.5,
    )
    found = batches(fleet, "spans")
    assert {batch.source.model for batch in found} == {"tiny"}
    assert column(found, "output_tokens").sum() == sum(a.output_tokens for a in answers)
    assert column(found, "prompt_tokens").sum() == sum(a.prompt_tokens for a in answers)
    for name in ("ttft_s", "e2e_s"):
        assert_clocks_agree(column(found, name), [getattr(answer, name) for answer in answers])


def _assert_buckets_tell(fleet: Fleet, answers: list[Answer]) -> None:
    eventually(
        lambda: counted(batches(fleet, "buckets/0"), "e2e_s") == len(answers),
        REPORTED_WITHIN_S,
        every_s=0.5,
    )
    found = batches(fleet, "buckets/0")
    assert counted(found, "ttft_s") == len(answers)
    gaps = sum(answer.output_tokens - 1 for answer in answers)
    assert counted(found, "itl_s") == gaps
    totals = [b.gauges["generation_tokens_total"] for b in found if "running" in b.gauges]
    assert totals[-1] - totals[0] == sum(answer.output_tokens for answer in answers)
