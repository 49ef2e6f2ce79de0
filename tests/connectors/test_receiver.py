"""The receiver, spoken to by OpenTelemetry's own exporter and by a plain HTTP client."""

import asyncio
import contextlib
import gzip
import json

import numpy as np
import pytest
from aiohttp import ClientSession
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind

from connectors.kafka import create_topics, read_topic
from connectors.otlp import Naming
from connectors.receiver import Address, Receiver
from daom.codec import decode
from daom.errors import ConfigError
from daom.events import ChangeEvent, Source
from daom.topics import Topics
from tests.connectors.spans import END_S, SERVICE, VLLM, VLLM_NUMBERS, export, span
from tests.servers import run

NOBODY = {"bootstrap_servers": "127.0.0.1:1"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
NOW_S = END_S + 1.0


@contextlib.asynccontextmanager
async def receiver(client=NOBODY, prefix="daom", *, naming=None, token=None):
    """A receiver, and a session whose paths are its own."""
    one = Receiver(client, Topics(prefix), naming or Naming(), clock=lambda: NOW_S, run="run-1")
    async with (
        one.listening(Address(port=0, token=token)) as url,
        ClientSession(url) as session,
    ):
        yield url, session


async def post(session, path, body, headers):
    async with session.post(path, data=body, headers=headers) as answer:
        return answer.status, answer.content_type, await answer.read()


async def counts(session):
    async with session.get("/healthz") as answer:
        return (await answer.json())["spans"]


async def records(client, topic):
    return [(r.key.decode(), decode(r.value)) async for r in read_topic(client, topic)]


async def arrived(client, topic, count):
    """The records of ``topic`` once there are so many: a first connection may take its time."""
    while len(found := await records(client, topic)) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return found


def send_requests_of_vllm(url, requests, *, compression):
    """Send spans as vLLM does, through the SDK and its exporter."""
    exporter = OTLPSpanExporter(f"{url}/v1/traces", compression=compression)
    provider = TracerProvider(resource=Resource.create(SERVICE))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("vllm.llm_engine")
    for number in range(requests):
        end_ns = round((END_S + number) * 1e9)
        attributes = VLLM | {"gen_ai.usage.prompt_tokens": 100 + number}
        one = tracer.start_span(
            "llm_request", kind=SpanKind.SERVER, attributes=attributes, start_time=end_ns - 10**9
        )
        one.end(end_time=end_ns)
    tracer.start_span("Load model").end()
    provider.shutdown()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_spans_of_an_exporter_arrive_on_kafka_as_telemetry(any_broker, topic_prefix, compression):
    client = {"bootstrap_servers": any_broker.bootstrap_servers}

    async def story():
        await create_topics(client, Topics(topic_prefix).specs(partitions=2))
        async with receiver(client, topic_prefix) as (url, session):
            await asyncio.to_thread(send_requests_of_vllm, url, 20, compression=compression)
            counted = await counts(session)
        # The end of the receiver sends what is there.
        found = await records(client, f"{topic_prefix}.telemetry")

        assert (counted["requests"], counted["ignored"], counted["rejected"]) == (20, 1, 0)
        assert {key for key, _ in found} == {"llama"}
        assert [decoded.faults for _, decoded in found] == [()] * len(found)
        batches = [decoded.record for _, decoded in found]
        assert [b.source for b in batches] == [
            Source(model="llama", engine="gpu-0", boot="otlp", frontend="run-1", seq=seq)
            for seq in range(len(batches))
        ]
        rows = np.concatenate([b.requests.end_s for b in batches])
        assert sorted(rows.tolist()) == [END_S + number for number in range(20)]
        for name, value in VLLM_NUMBERS.items():
            told = np.concatenate([b.requests.columns[name] for b in batches])
            expected = np.float32(value)
            if name == "prompt_tokens":
                expected = (100.0 + rows - END_S).astype(np.float32)
            np.testing.assert_array_equal(told, np.broadcast_to(expected, rows.shape))

    run(story())


def test_a_span_from_the_future_takes_no_other_down_with_it(any_broker, topic_prefix):
    client = {"bootstrap_servers": any_broker.bootstrap_servers}
    ahead = SERVICE | {"service.instance.id": "gpu-1"}
    future_s = END_S + 3.2e8

    async def story():
        await create_topics(client, Topics(topic_prefix).specs(partitions=1))
        async with receiver(client, topic_prefix) as (_, session):
            whole = export(span(number=1, end_s=future_s), resource=ahead)
            whole.MergeFrom(export(span(number=2)))
            await post(session, "/v1/traces", whole.SerializeToString(), PROTOBUF)
            found = await arrived(client, f"{topic_prefix}.telemetry", 2)

        told = {d.record.source.engine: (d.record.end_s, d.record.logged_s) for _, d in found}
        assert told == {"gpu-0": (END_S, NOW_S), "gpu-1": (pytest.approx(future_s), NOW_S)}

    run(story())


def test_without_kafka_spans_are_taken_all_the_same():
    async def story():
        async with receiver() as (_, session):
            body = export(span(number=1), span(number=1)).SerializeToString()
            answered = await post(session, "/v1/traces", body, PROTOBUF)

            assert answered == (200, "application/x-protobuf", b"")
            assert (await counts(session))["requests"] == 1
            assert (await counts(session))["duplicates"] == 1

    run(story())


@pytest.mark.parametrize("is_json", [True, False])
def test_a_request_that_cannot_be_used_is_a_partial_success(is_json):
    whole = export(span(VLLM), span(VLLM, number=2), resource={})
    body = json_format.MessageToJson(whole) if is_json else whole.SerializeToString()

    async def story():
        async with receiver() as (_, session):
            status, kind, answer = await post(
                session, "/v1/traces", body, JSON if is_json else PROTOBUF
            )

        parsed = ExportTraceServiceResponse()
        if is_json:
            json_format.Parse(answer, parsed)
        else:
            parsed.MergeFromString(answer)
        assert (status, kind) == (200, (JSON if is_json else PROTOBUF)["Content-Type"])
        assert parsed.partial_success.rejected_spans == 2
        assert "2 x no model is named" in parsed.partial_success.error_message

    run(story())


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff", PROTOBUF, 400),
        (b"{", JSON, 400),
        (b"not gzip", PROTOBUF | {"Content-Encoding": "gzip"}, 400),
        (b"x", PROTOBUF | {"Content-Encoding": "zstd"}, 400),
        (gzip.compress(b"cut", mtime=0)[:-4], PROTOBUF | {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(b"\xff\xff", mtime=0), PROTOBUF | {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(bytes(17 * 2**20), mtime=0), PROTOBUF | {"Content-Encoding": "gzip"}, 413),
        (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_a_broken_body_is_refused_and_the_receiver_goes_on(body, headers, status):
    async def story():
        async with receiver() as (_, session):
            refused = await post(session, "/v1/traces", body, headers)
            good = export(span()).SerializeToString()

            assert refused[0] == status
            assert (await post(session, "/v1/traces", good, PROTOBUF))[0] == 200

    run(story())


def test_a_refusal_says_why_as_a_status():
    async def story():
        async with receiver() as (_, session):
            _, kind, binary = await post(session, "/v1/traces", b"\xff", PROTOBUF)
            _, _, text = await post(session, "/v1/traces", b"{", JSON)

        status = ExportTracePartialSuccess.FromString(binary)
        assert (kind, status.rejected_spans) == ("application/x-protobuf", 3)
        assert "not an ExportTraceServiceRequest in protobuf" in status.error_message
        assert json.loads(text)["code"] == 3
        assert "not an ExportTraceServiceRequest in JSON" in json.loads(text)["message"]

    run(story())


# Changes


def test_a_change_that_was_posted_is_on_kafka_once_it_is_answered(any_broker, topic_prefix):
    client = {"bootstrap_servers": any_broker.bootstrap_servers}
    fields = {"model": "m", "kind": "deploy", "version": "v2"}

    async def story():
        await create_topics(client, Topics(topic_prefix).specs(partitions=2))
        async with receiver(client, topic_prefix) as (_, session):
            status, _, answer = await post(session, "/v1/changes", json.dumps(fields), JSON)
            found = await records(client, f"{topic_prefix}.telemetry")

        assert (status, json.loads(answer)["cells"]) == (202, ["m"])
        change = ChangeEvent(source=Source(model="m"), time_s=NOW_S, kind="deploy", version="v2")
        assert found == [("m", (change, ()))]

    run(story())


@pytest.mark.parametrize(
    ("body", "headers", "status", "why"),
    [
        ('{"model": "m", "kind": "deploi"}', JSON, 400, "kind: got 'deploi'; allowed: deploy"),
        ('{"model": "m"}', JSON, 400, "kind: needed"),
        ('["m"]', JSON, 400, "an object is needed"),
        ("{", JSON, 400, "not JSON"),
        (b"\xff", JSON, 400, "not JSON"),
        ('{"model": "m"}', {"Content-Type": "text/plain"}, 415, "application/json is needed"),
        ('{"model": "m", "kind": "deploy"}', JSON, 503, "127.0.0.1:1"),
    ],
)
def test_a_change_that_is_not_taken_is_answered_with_the_reason(body, headers, status, why):
    async def story():
        async with receiver() as (_, session):
            answered, _, answer = await post(session, "/v1/changes", body, headers)

        assert answered == status
        assert why in json.loads(answer)["error"]

    run(story())


# Who may send


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/changes"])
def test_who_lacks_the_token_is_refused(path):
    async def story():
        async with receiver(token="s3cret") as (_, session):
            for given in (None, "Bearer wrong", "Basic s3cret", "Bearer s3creté"):
                headers = PROTOBUF | ({} if given is None else {"Authorization": given})
                assert (await post(session, path, b"", headers))[0] == 401

            allowed = PROTOBUF | {"Authorization": "Bearer s3cret"}
            assert (await post(session, "/v1/traces", b"", allowed))[0] == 200
            assert (await counts(session))["spans"] == 0

    run(story())


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("h", False)],
)
def test_what_is_loopback(host, is_loopback):
    assert Address(host).is_loopback is is_loopback


def test_a_port_that_is_taken_is_a_clear_message():
    async def story():
        async with receiver() as (url, _):
            port = int(url.rpartition(":")[2])
            second = Receiver(NOBODY, Topics(), Naming(), clock=lambda: 0.0, run="run-2")
            with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: "):
                async with second.listening(Address(port=port)):
                    pass

    run(story())
