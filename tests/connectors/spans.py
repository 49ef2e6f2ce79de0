"""Spans as vLLM and instrumented clients send them, made by hand."""

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

END_S = 1_700_000_000.25
RANDOM_INSTANCE = "ddd850ea-d54f-4786-a378-349966190b0b"

VLLM = {
    "gen_ai.request.id": "cmpl-1-0",
    "gen_ai.request.n": 1,
    "gen_ai.request.max_tokens": 64,
    "gen_ai.request.temperature": 0.0,
    "gen_ai.usage.prompt_tokens": 812,
    "gen_ai.usage.completion_tokens": 64,
    "gen_ai.latency.time_to_first_token": 0.068,
    "gen_ai.latency.e2e": 1.48,
    "gen_ai.latency.time_in_queue": 0.004,
    "gen_ai.latency.time_in_model_prefill": 0.061,
    "gen_ai.latency.time_in_model_decode": 1.41,
    "gen_ai.latency.time_in_model_inference": 1.471,
}
VLLM_NUMBERS = {
    "ttft_s": 0.068,
    "e2e_s": 1.48,
    "queue_s": 0.004,
    "prefill_s": 0.061,
    "decode_s": 1.41,
    "prompt_tokens": 812.0,
    "output_tokens": 64.0,
}
CLIENT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "llama",
    "gen_ai.response.model": "llama-2026",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.cache_read.input_tokens": 64,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.response.time_to_first_chunk": 0.25,
}
SERVICE = {"service.name": "llama", "service.instance.id": "gpu-0"}


def any_value(value):
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
    return AnyValue(string_value=value)


def pairs(attributes):
    return [KeyValue(key=name, value=any_value(value)) for name, value in attributes.items()]


def span(attributes=VLLM, *, number=1, kind=Span.SPAN_KIND_SERVER, end_s=END_S, lasted_s=2.0):
    """A span; ``number`` is its identity, 0 for none."""
    return Span(
        trace_id=number.to_bytes(16, "big") if number else b"",
        span_id=number.to_bytes(8, "big") if number else b"",
        name="llm_request",
        kind=kind,
        start_time_unix_nano=round((end_s - lasted_s) * 1e9) if end_s else 0,
        end_time_unix_nano=round(end_s * 1e9),
        attributes=pairs(attributes),
    )


def export(*spans, resource=SERVICE):
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=pairs(resource)),
                scope_spans=[ScopeSpans(spans=spans)],
            )
        ]
    )
