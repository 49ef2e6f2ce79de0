import json

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from connectors.otlp import Naming, decode_export, request_rows
from connectors.span_buffer import SpanBuffer
from daom.codec import decode, encode_msgpack
from daom.errors import MalformedRecord
from daom.events import cell_of, is_cell_of
from tests.connectors.spans import (
    CLIENT,
    END_S,
    RANDOM_INSTANCE,
    SERVICE,
    VLLM,
    VLLM_NUMBERS,
    export,
    span,
)

ANYBODY = Naming(client_spans=True)


def rows(*spans, naming=ANYBODY, resource=SERVICE):
    return request_rows(export(*spans, resource=resource), naming).rows


def only_row(*spans, **named):
    (row,) = rows(*spans, **named)
    return row


def collected(*exports, buffer=None, naming=ANYBODY):
    buffer = buffer or SpanBuffer("run", lambda: END_S + 1.0)
    for one in exports:
        buffer.take(request_rows(one, naming))
    return list(buffer.collect())


# Spans to rows


def test_a_request_of_vllm_is_a_row_of_its_numbers():
    row = only_row(span(VLLM))

    assert (row.model, row.engine, row.end_s, row.finish_reason) == ("llama", "gpu-0", END_S, None)
    assert row.numbers == VLLM_NUMBERS


def test_a_request_after_the_semantic_conventions_is_timed_by_its_span():
    row = only_row(span(CLIENT, kind=Span.SPAN_KIND_CLIENT, lasted_s=3.0))

    assert (row.model, row.finish_reason) == ("llama", "stop")
    assert row.numbers == {
        "ttft_s": 0.25,
        "e2e_s": pytest.approx(3.0),
        "prompt_tokens": 100.0,
        "cached_tokens": 64.0,
        "output_tokens": 20.0,
    }


def test_a_request_is_not_counted_twice_by_the_span_of_its_client():
    both = export(span(VLLM), span(CLIENT, number=2, kind=Span.SPAN_KIND_CLIENT))

    mapped = request_rows(both, Naming())

    assert ([row.numbers for row in mapped.rows], mapped.of_clients) == ([VLLM_NUMBERS], 1)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"http.request.method": "POST"},
        {"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 3},
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 3},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"},
    ],
)
def test_a_span_of_something_else_is_ignored_and_counted(attributes):
    mapped = request_rows(export(span(attributes), span(VLLM, number=2)), ANYBODY)

    assert (len(mapped.rows), mapped.ignored, dict(mapped.rejected)) == (1, 1, {})


def test_a_failed_request_ends_in_an_error():
    failed = span(VLLM)
    failed.status.code = Status.STATUS_CODE_ERROR

    assert only_row(failed).finish_reason == "error"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1e300, "0.068", True])
def test_a_value_that_is_no_measurement_is_left_out_and_counted(value):
    attributes = VLLM | {"gen_ai.latency.time_to_first_token": value}

    mapped = request_rows(export(span(attributes)), ANYBODY)

    assert mapped.left_out == 1
    assert mapped.rows[0].numbers == {n: v for n, v in VLLM_NUMBERS.items() if n != "ttft_s"}


@pytest.mark.parametrize(
    ("attributes", "resource", "naming", "model"),
    [
        ({"gen_ai.response.model": "told"}, SERVICE, Naming(model="given"), "told"),
        ({}, {"gen_ai.request.model": "told", **SERVICE}, Naming(), "told"),
        ({}, SERVICE, Naming(model="given"), "given"),
        ({}, SERVICE, Naming(), "llama"),
    ],
)
def test_the_model_is_the_spans_else_the_given_else_the_services(
    attributes, resource, naming, model
):
    assert only_row(span(VLLM | attributes), resource=resource, naming=naming).model == model


@pytest.mark.parametrize(
    ("resource", "engine", "run"),
    [
        ({"service.instance.id": "gpu-0", "host.name": "h"}, "gpu-0", "otlp"),
        ({"service.instance.id": RANDOM_INSTANCE, "host.name": "h"}, "h", RANDOM_INSTANCE),
        ({"service.instance.id": RANDOM_INSTANCE, "k8s.pod.name": "p"}, "p", RANDOM_INSTANCE),
        ({"service.instance.id": RANDOM_INSTANCE}, "given", RANDOM_INSTANCE),
        ({}, "given", "otlp"),
    ],
)
def test_an_engine_keeps_its_name_when_it_restarts(resource, engine, run):
    row = only_row(
        span(VLLM),
        resource={"service.name": "llama", **resource},
        naming=Naming(engine="given"),
    )

    assert (row.engine, row.run) == (engine, run)


def test_a_made_up_instance_is_a_name_where_there_is_no_other():
    resource = {"service.name": "llama", "service.instance.id": RANDOM_INSTANCE}

    assert only_row(span(VLLM), resource=resource).engine == RANDOM_INSTANCE


@pytest.mark.parametrize(
    ("end_s", "resource", "why"),
    [
        (END_S, {"service.name": "unknown_service:python"}, "no model is named"),
        (END_S, {}, "no model is named"),
        (0.0, SERVICE, "endTimeUnixNano is missing"),
    ],
)
def test_a_request_that_cannot_be_used_is_rejected_with_the_reason(end_s, resource, why):
    mapped = request_rows(export(span(VLLM, end_s=end_s), resource=resource), Naming())

    assert mapped.rows == []
    assert [(why in reason, count) for reason, count in mapped.rejected.items()] == [(True, 1)]


# Bytes to spans


def test_json_and_protobuf_say_the_same():
    body = {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": "llama"}}]
                },
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "traceId": "5b8efff798038103d269b633813fc60c",
                                "spanId": "eee19b7ec3c1b174",
                                "kind": 2,
                                "endTimeUnixNano": "1700000000250000000",
                                "attributes": [
                                    {"key": "gen_ai.latency.e2e", "value": {"doubleValue": 1.5}},
                                    {
                                        "key": "gen_ai.usage.prompt_tokens",
                                        "value": {"intValue": "812"},
                                    },
                                ],
                                "notOfThisVersion": 1,
                            }
                        ]
                    }
                ],
            }
        ]
    }

    parsed = decode_export(json.dumps(body).encode(), is_json=True)
    again = decode_export(parsed.SerializeToString(), is_json=False)

    (row,) = request_rows(parsed, Naming()).rows
    assert request_rows(again, Naming()).rows == [row]
    assert row.span == bytes.fromhex("5b8efff798038103d269b633813fc60ceee19b7ec3c1b174")
    assert row.numbers == {"e2e_s": 1.5, "prompt_tokens": 812.0}


@pytest.mark.parametrize(
    ("body", "is_json"),
    [
        (b"\xff\xff", False),
        (b"{}", False),
        (b"", True),
        (b"{", True),
        (b"[]", True),
        (b"\xff", True),
        (b'{"resourceSpans": 3}', True),
        (b'{"resourceSpans":' * 500, True),
    ],
)
def test_a_body_that_is_no_export_is_malformed(body, is_json):
    with pytest.raises(MalformedRecord, match="not an ExportTraceServiceRequest"):
        decode_export(body, is_json=is_json)


# Rows to batches


def test_a_batch_is_what_the_codec_takes_without_a_fault():
    (one,) = collected(export(span(VLLM), span(CLIENT, number=2, end_s=END_S - 1.0)))

    key, batch = one
    sent = decode(encode_msgpack(batch))
    assert (key, sent.faults, sent.record.source) == ("llama", (), batch.source)
    for name, column in batch.requests.columns.items():
        np.testing.assert_array_equal(sent.record.requests.columns[name], column)
    assert batch.requests.end_s.tolist() == [END_S - 1.0, END_S]
    assert batch.requests.text["finish_reason"] == ["stop", None]
    assert (batch.start_s, batch.end_s, batch.logged_s) == (END_S - 1.0, END_S, END_S + 1.0)


def test_batches_are_by_engine_and_numbered_each():
    other = SERVICE | {"service.instance.id": "gpu-1"}
    buffer = SpanBuffer("run", lambda: END_S)

    first = collected(export(span(number=1)), export(span(number=2), resource=other), buffer=buffer)
    second = collected(export(span(number=3), resource=other), buffer=buffer)

    numbered = [(b.source.engine, b.source.seq, b.source.frontend) for _, b in first + second]
    assert numbered == [("gpu-0", 0, "run"), ("gpu-1", 0, "run"), ("gpu-1", 1, "run")]
    assert {b.source.boot for _, b in first + second} == {"otlp"}


def test_in_a_model_of_several_cells_a_batch_goes_to_that_of_its_engine():
    buffer = SpanBuffer("run", lambda: END_S, cells=4)

    ((key, batch),) = collected(export(span()), buffer=buffer)

    assert key == cell_of(batch.source, 4)
    assert is_cell_of(key, "llama")
    assert key != "llama"


def test_a_span_sent_twice_counts_once_as_long_as_it_is_remembered():
    buffer = SpanBuffer("run", lambda: END_S, remembered_spans=2)

    batches = collected(*(export(span(number=n)) for n in (1, 1, 2, 3, 1, 3)), buffer=buffer)

    assert sum(batch.requests.rows for _, batch in batches) == 4
    assert (buffer.counts.requests, buffer.counts.duplicates) == (4, 2)


def test_spans_without_ids_all_count():
    ((_, batch),) = collected(export(span(number=0), span(number=0)))

    assert batch.requests.rows == 2


def test_what_nobody_collects_is_bounded_and_the_oldest_is_dropped():
    buffer = SpanBuffer("run", lambda: END_S, waiting_rows=2)

    ((_, batch),) = collected(
        *(export(span(number=n, end_s=END_S + n)) for n in (1, 2, 3)), buffer=buffer
    )

    assert batch.requests.end_s.tolist() == [END_S + 2, END_S + 3]
    assert buffer.counts.dropped == 1


def test_old_spans_beside_new_ones_go_into_a_batch_of_their_own():
    late = span(number=1, end_s=END_S - 3_600.0)

    batches = collected(export(late, span(number=2)))

    assert [decode(encode_msgpack(batch)).faults for _, batch in batches] == [(), ()]
