"""Spans of OpenTelemetry into rows of finished requests. Pure: bytes and names in, rows out.

Two kinds of spans tell of a request: those that an engine reports of itself, such as vLLM's
``llm_request`` with its ``gen_ai.latency.*``, and those of clients after the semantic conventions
for generative AI. A request may have both, so the clients' count only where that is asked for.
"""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from daom.codec import MAX_UNIX_S
from daom.errors import MalformedRecord

NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "ttft_s": (
        "gen_ai.latency.time_to_first_token",
        "gen_ai.server.time_to_first_token",
        "gen_ai.response.time_to_first_chunk",
    ),
    "e2e_s": ("gen_ai.latency.e2e", "gen_ai.server.request.duration"),
    "queue_s": ("gen_ai.latency.time_in_queue",),
    "prefill_s": ("gen_ai.latency.time_in_model_prefill",),
    "decode_s": ("gen_ai.latency.time_in_model_decode",),
    "prompt_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens",),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
}
"""The columns of a request, and the attributes that tell each; the first that is there counts."""

_MODELS: Final = ("gen_ai.request.model", "gen_ai.response.model")
_FINISH_REASONS: Final = ("gen_ai.response.finish_reasons", "gen_ai.response.finish_reason")
_OPERATION: Final = "gen_ai.operation.name"
_INFERENCE: Final = frozenset({"chat", "text_completion", "generate_content"})
_ENGINES_OWN: Final = ("gen_ai.latency.", "gen_ai.server.")
_USAGE: Final = "gen_ai.usage."
_INSTANCE: Final = "service.instance.id"
_PLACES: Final = ("host.name", "k8s.pod.name")
_UNNAMED_SERVICE: Final = "unknown_service"
"""What SDKs call a service that nobody has named."""

_LARGEST: Final = 1e9
"""No request takes 30 years, nor has a billion tokens."""
_MAX_NAME: Final = 200
_NANOSECOND_S: Final = 1e-9
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Naming:
    """What spans that do not say so are of.

    Args:
        model: For spans that name no model; else the service's name stands for it.
        engine: For resources that name neither an instance, nor a host, nor a pod.
        client_spans: Spans of clients are requests, too.
    """

    model: str | None = None
    engine: str | None = None
    client_spans: bool = False


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One finished request.

    Attributes:
        span: Trace id and span id, by which a span that is sent twice is known; None without.
        run: What changes when the engine restarts, as far as the resource says.
        end_s: When it ended, Unix seconds.
        numbers: What was told of the columns of ``NUMBERS``.
    """

    span: bytes | None
    model: str
    engine: str | None
    run: str
    end_s: float
    numbers: Mapping[str, float]
    finish_reason: str | None


@dataclass(slots=True)
class Mapped:
    """What an export holds.

    Attributes:
        rows: Its requests.
        ignored: Spans that are of something else,
        of_clients: and those of clients, where these do not count.
        rejected: Why requests could not be used, and how many.
        left_out: Values that cannot be a measurement.
    """

    rows: list[RequestRow] = field(default_factory=list)
    ignored: int = 0
    of_clients: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    left_out: int = 0


def decode_export(body: bytes, *, is_json: bool) -> ExportTraceServiceRequest:
    """Return the export that ``body`` holds, protobuf or JSON.

    Raises:
        MalformedRecord: If it is none.
    """
    try:
        if not is_json:
            return ExportTraceServiceRequest.FromString(body)
        export = ExportTraceServiceRequest()
        json_format.ParseDict(_object(body), export, ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError) as error:
        form = "JSON" if is_json else "protobuf"
        raise MalformedRecord(
            "not_decodable", "", f"not an ExportTraceServiceRequest in {form}: {error}"
        ) from error
    for resource in export.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                span.trace_id = _from_hex(span.trace_id, _TRACE_ID_BYTES)
                span.span_id = _from_hex(span.span_id, _SPAN_ID_BYTES)
    return export


def _object(body: bytes) -> dict[str, object]:
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError(f"got {fields!r:.80}; an object is needed")
    return fields


def _from_hex(parsed: bytes, length: int) -> bytes:
    """Return an id of OTLP's JSON, which is hexadecimal where protobuf's own is base64."""
    if len(parsed) == length:
        return parsed
    try:
        return bytes.fromhex(base64.b64encode(parsed).decode())
    except ValueError:
        return b""


def request_rows(export: ExportTraceServiceRequest, naming: Naming) -> Mapped:
    """Return the requests that ``export`` tells of."""
    mapped = Mapped()
    for of_resource in export.resource_spans:
        resource = _attributes(of_resource.resource.attributes)
        engine, run = _engine(resource, naming.engine)
        for scope in of_resource.scope_spans:
            for span in scope.spans:
                attributes = _attributes(span.attributes)
                reporter = _reporter(span, attributes)
                if reporter is None:
                    mapped.ignored += 1
                elif reporter == "client" and not naming.client_spans:
                    mapped.of_clients += 1
                else:
                    model = _model(attributes, resource, naming.model)
                    _add(mapped, span, attributes, model, engine, run)
    return mapped


def _add(
    mapped: Mapped,
    span: Span,
    attributes: Mapping[str, object],
    model: str | None,
    engine: str | None,
    run: str,
) -> None:
    end_s = span.end_time_unix_nano * _NANOSECOND_S
    if model is None:
        mapped.rejected["no model is named: set service.name, or start with --model"] += 1
        return
    if not 0.0 < end_s <= MAX_UNIX_S:
        mapped.rejected["endTimeUnixNano is missing, or after the year 3000"] += 1
        return
    numbers: dict[str, float] = {}
    for column, names in NUMBERS.items():
        told = next((attributes[name] for name in names if name in attributes), None)
        number = _number(told)
        if number is not None:
            numbers[column] = number
        elif told is not None:
            mapped.left_out += 1
    lasted_s = (span.end_time_unix_nano - span.start_time_unix_nano) * _NANOSECOND_S
    if "e2e_s" not in numbers and span.start_time_unix_nano and 0.0 <= lasted_s <= _LARGEST:
        numbers["e2e_s"] = lasted_s
    row = RequestRow(
        _identity(span), model, engine, run, end_s, numbers, _finish_reason(span, attributes)
    )
    mapped.rows.append(row)


def _reporter(span: Span, attributes: Mapping[str, object]) -> str | None:
    """Return who reports a request by this span: ``engine``, ``client``, or None: it is none."""
    if any(name.startswith(_ENGINES_OWN) for name in attributes):
        return "engine"
    operation = attributes.get(_OPERATION)
    is_request = (
        any(name.startswith(_USAGE) for name in attributes)
        if operation is None
        else operation in _INFERENCE
    )
    if not is_request:
        return None
    return "engine" if span.kind == Span.SPAN_KIND_SERVER else "client"


def _model(
    attributes: Mapping[str, object], resource: Mapping[str, object], given: str | None
) -> str | None:
    named = [attributes.get(name) or resource.get(name) for name in _MODELS]
    service = resource.get("service.name")
    if isinstance(service, str) and service.startswith(_UNNAMED_SERVICE):
        service = None
    return _first_name(*named, given, service)


def _engine(resource: Mapping[str, object], given: str | None) -> tuple[str | None, str]:
    """Return the engine's name and its run.

    SDKs make up an instance id at each start. As a name it would be a new engine every time, so
    it is the run, and a name only where there is no other.
    """
    instance = _first_name(resource.get(_INSTANCE))
    made_up = instance if instance is not None and _is_uuid(instance) else None
    chosen = instance if made_up is None else None
    places = (resource.get(name) for name in _PLACES)
    return _first_name(chosen, *places, given, made_up), made_up or "otlp"


def _first_name(*candidates: object) -> str | None:
    names = (name[:_MAX_NAME] for name in candidates if isinstance(name, str) and name.strip())
    return next(names, None)


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _identity(span: Span) -> bytes | None:
    trace_id, span_id = span.trace_id, span.span_id
    if len(trace_id) != _TRACE_ID_BYTES or len(span_id) != _SPAN_ID_BYTES:
        return None
    return trace_id + span_id


def _finish_reason(span: Span, attributes: Mapping[str, object]) -> str | None:
    for name in _FINISH_REASONS:
        told = attributes.get(name)
        reason = _first_name(*(told if isinstance(told, list) else [told]))
        if reason is not None:
            return reason
    return "error" if span.status.code == Status.STATUS_CODE_ERROR else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0.0 <= value <= _LARGEST else None


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, object]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(element) for element in value.array_value.values]
    return None if kind is None else getattr(value, kind)
