"""The HTTP receiver: spans of requests (OTLP) and changes in, telemetry on Kafka out.

Spans are answered at once, whatever Kafka does: they wait in memory, bounded, and the reporter
sends them. A change is answered once Kafka has it.
"""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import json
import logging
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from connectors.changes import tell_cells
from connectors.kafka import Client
from connectors.otlp import Mapped, Naming, decode_export, request_rows
from connectors.reporter import Reporter
from connectors.span_buffer import SpanBuffer
from daom.changes import change_event, change_fields
from daom.errors import ConfigError, DaomError, MalformedRecord, SinkUnavailable
from daom.topics import Topics

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

TRACES_PATH: Final = "/v1/traces"
CHANGES_PATH: Final = "/v1/changes"
HEALTH_PATH: Final = "/healthz"
MAX_BODY_BYTES: Final = 16 * 2**20
"""Of a body as it is unpacked."""

_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"
_INVALID_ARGUMENT: Final = 3
"""Of google.rpc.Code."""
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_RETRY_AFTER: Final = {"Retry-After": "10"}

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, and who may send.

    Args:
        token: Asked of every sender as a bearer token; None asks for none.
    """

    host: str = "127.0.0.1"
    port: int = 4318
    token: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Receiver:
    """Takes spans and changes.

    Args:
        client: The aiokafka settings.
        topics: Where the telemetry goes, and where the cells are found.
        naming: What spans that do not say so are of.
        clock: Unix seconds.
        run: Names this run, so that batches are told apart from those of an earlier one.
        cells: A model is cut into so many, by its engines' names.
    """

    def __init__(
        self,
        client: Client,
        topics: Topics,
        naming: Naming,
        *,
        clock: Callable[[], float],
        run: str,
        cells: int = 1,
    ) -> None:
        self._client = client
        self._topics = topics
        self._naming = naming
        self._clock = clock
        self._buffer = SpanBuffer(run, clock, cells=cells)
        self._reporter = Reporter(client, topics.telemetry, self._buffer.collect)
        self._said: set[str] = set()

    @asynccontextmanager
    async def listening(self, address: Address) -> AsyncIterator[str]:
        """Serve, and give the URL; at the end send what is there.

        Raises:
            ConfigError: If nobody can listen there.
        """
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_asking(address.token)])
        app.router.add_post(TRACES_PATH, self._take_spans)
        app.router.add_post(CHANGES_PATH, self._take_change)
        app.router.add_get(HEALTH_PATH, self._health)
        # Unpacked here: aiohttp ends the connection of a sender whose packing is broken.
        runner = web.AppRunner(app, access_log=None, auto_decompress=False)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, address.host, address.port).start()
            except OSError as error:
                raise ConfigError(f"{address.host}:{address.port}: {error.strerror}") from error
            self._reporter.start()
            host = f"[{address.host}]" if ":" in address.host else address.host
            yield f"http://{host}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
            self._reporter.stop()

    async def _take_spans(self, request: web.Request) -> web.Response:
        if request.content_type not in {_JSON, _PROTOBUF}:
            return _refusal(415, f"Content-Type: {_PROTOBUF} or {_JSON} is needed", is_json=False)
        is_json = request.content_type == _JSON
        try:
            export = decode_export(await _body(request), is_json=is_json)
        except MalformedRecord as error:
            return _refusal(400, str(error), is_json=is_json)
        mapped = request_rows(export, self._naming)
        self._buffer.take(mapped)
        self._say_once(mapped)
        answer = _answer(mapped)
        if is_json:
            return web.Response(text=json_format.MessageToJson(answer), content_type=_JSON)
        return web.Response(body=answer.SerializeToString(), content_type=_PROTOBUF)

    def _say_once(self, mapped: Mapped) -> None:
        reasons = [f"spans are rejected: {reason}" for reason in mapped.rejected]
        if mapped.of_clients:
            reasons.append("spans of clients are not counted; --client-spans counts them")
        for reason in reasons:
            if reason not in self._said:
                self._said.add(reason)
                _LOGGER.warning("%s (said once, counted from now on)", reason)

    async def _take_change(self, request: web.Request) -> web.Response:
        # A form of a foreign page in a browser could send anything but this type.
        if request.content_type != _JSON:
            return _reason(415, f"Content-Type: {_JSON} is needed")
        try:
            fields = json.loads(await _body(request))
        except MalformedRecord as error:
            return _reason(400, str(error))
        except (ValueError, RecursionError) as error:
            return _reason(400, f"not JSON: {error}")
        if not isinstance(fields, dict):
            return _reason(400, f"got {fields!r:.80}; an object is needed")
        try:
            change = change_event(fields, self._clock())
            cells = await tell_cells(self._client, self._topics, change)
        except MalformedRecord as error:
            return _reason(400, str(error))
        except SinkUnavailable as error:
            return _reason(503, str(error), _RETRY_AFTER)
        except DaomError as error:
            return _reason(500, str(error))
        _LOGGER.info("told %s: %s", ", ".join(cells), change.words())
        return web.json_response({"cells": cells, **change_fields(change)}, status=202)

    async def _health(self, _: web.Request) -> web.Response:
        spans, kafka = self._buffer.counts, self._reporter.counts
        counts = {"spans": dataclasses.asdict(spans), "kafka": dataclasses.asdict(kafka)}
        return web.json_response(counts)


async def _body(request: web.Request) -> bytes:
    """Return the body as it was before it was packed.

    Raises:
        MalformedRecord: If it cannot be unpacked.
        HTTPRequestEntityTooLarge: If it is too long, packed or not.
    """
    packed = await request.read()
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding == "identity":
        return packed
    if encoding not in {"gzip", "deflate"}:
        raise MalformedRecord(
            "not_decodable", "Content-Encoding", f"got {encoding!r:.80}; gzip and deflate are read"
        )
    unpacking = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        body = unpacking.decompress(packed, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise MalformedRecord("not_decodable", "", f"not {encoding}: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(MAX_BODY_BYTES, len(body))
    if not unpacking.eof:
        raise MalformedRecord("not_decodable", "", f"not {encoding}: it ends too early")
    return body


def _asking(token: str | None) -> Middleware:
    """Return the middleware that lets pass who has the token; the health is for everybody."""

    @web.middleware
    async def ask(request: web.Request, handler: Handler) -> web.StreamResponse:
        if token is not None and request.path != HEALTH_PATH:
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            is_right = hmac.compare_digest(given.strip().encode(), token.encode())
            if scheme.lower() != "bearer" or not is_right:
                asked = {"WWW-Authenticate": "Bearer"}
                return _reason(401, "a bearer token is needed, and this is not it", asked)
        return await handler(request)

    return ask


def _answer(mapped: Mapped) -> ExportTraceServiceResponse:
    """Return an empty answer, or one that says how many spans were rejected and why."""
    answer = ExportTraceServiceResponse()
    if mapped.rejected:
        words = "; ".join(f"{count} x {reason}" for reason, count in mapped.rejected.items())
        answer.partial_success.rejected_spans = mapped.rejected.total()
        answer.partial_success.error_message = words
    return answer


def _refusal(status: int, why: str, *, is_json: bool) -> web.Response:
    """Return what OTLP answers to an export that is refused: a google.rpc.Status."""
    if is_json:
        return web.json_response({"code": _INVALID_ARGUMENT, "message": why}, status=status)
    # Both have an integer as field 1 and a text as field 2: the same bytes, a dependency less.
    body = ExportTracePartialSuccess(rejected_spans=_INVALID_ARGUMENT, error_message=why)
    return web.Response(status=status, body=body.SerializeToString(), content_type=_PROTOBUF)


def _reason(status: int, why: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": why}, status=status, headers=headers)
