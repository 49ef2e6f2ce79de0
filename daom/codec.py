"""Bytes to records and back: JSON and MessagePack, one schema, every fault named.

A record is used as far as it can be. A fault in the envelope (no model, wrong schema version,
columns of unequal length) condemns the whole record and is raised; a fault in single values
(a NaN, a negative duration) costs just those values and is returned beside the record. Either
way the caller dead-letters the raw bytes with the reason and counts it by kind.

``null`` means "not measured" and is no fault. In MessagePack a numeric column is a little-endian
float32 buffer (float64 for ``end_s``), or a list like in JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from daom.columns import TableColumns, as_number, check_limit, refuse, usable_numbers
from daom.errors import MalformedRecord
from daom.events import (
    EMPTY_TABLE,
    ChangeEvent,
    ChangeKind,
    GpuSample,
    Output,
    Record,
    Source,
    Table,
    TelemetryBatch,
    Tick,
)
from daom.histograms import usable_histograms, wire_histogram
from daom.limits import DEFAULT_LIMITS, Limits

FAULT_KINDS: Final = (
    "tombstone",
    "too_large",
    "not_decodable",
    "unknown_schema",
    "schema_version",
    "missing_field",
    "wrong_type",
    "columns_unequal",
    "not_finite",
    "negative",
    "not_ascending",
    "not_whole",
    "time_out_of_range",
    "time_outside_batch",
    "wrong_key",
    "limit",
    "internal_error",
)
SCHEMA_VERSION: Final = 1
DEFAULT_MAX_BYTES: Final = 4 * 2**20
MAX_BATCH_SPAN_S: Final = 600.0
"""A batch is an engine's samples of a *short* interval."""
MAX_GPUS: Final = 64
MAX_DETAIL_CHARS: Final = 4_000
"""Of a host."""
MAX_UNIX_S: Final = 32_503_680_000.0
"""The year 3000. Milliseconds sent as seconds land far beyond it."""

_TABLES: Final = ("requests", "steps")
_CHANGE_KINDS: Final[Mapping[str, ChangeKind]] = {
    "deploy": "deploy",
    "deployment": "deploy",
    "config": "config",
    "configuration": "config",
    "lora": "lora",
    "lora_swap": "lora",
    "restart": "restart",
    "scale": "scale",
    "stop": "stop",
    "maintenance": "maintenance",
    "maintenance_window": "maintenance",
    "accept": "accept",
    "other": "other",
}


class Decoded(NamedTuple):
    """A usable record, and the faults of the values that had to be left out of it."""

    record: Record
    faults: tuple[MalformedRecord, ...]


def decode(
    value: bytes | None,
    *,
    logged_s: float | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    limits: Limits = DEFAULT_LIMITS,
) -> Decoded:
    """Return the record that ``value`` holds, JSON or MessagePack.

    Args:
        value: The message as it came; None is a tombstone.
        logged_s: When the log took the record, if the log says; a ``logged_s`` in it wins.
        max_bytes: Longer messages are refused unread.
        limits: How much may be in one record.

    Raises:
        MalformedRecord: If nothing of it can be used; ``kind`` and ``field`` say why.
    """
    if value is None:
        raise MalformedRecord("tombstone", "", "a null value; telemetry is never deleted by key")
    if len(value) > max_bytes:
        raise MalformedRecord(
            "too_large",
            "",
            f"{len(value)} bytes; at most {max_bytes} are allowed",
            limit="message_bytes",
            allowed=max_bytes,
        )
    fields = _parse(value)
    name = _schema_name(fields)
    source = _source(fields)
    faults: list[MalformedRecord] = []
    try:
        for part in source.names:
            check_limit("name_chars", len(part), limits.name_chars, "source")
        own_logged_s = _time(fields, "logged_s")
        logged_s = logged_s if own_logged_s is None else own_logged_s
        record = _record(name, fields, source, logged_s, faults, limits)
    except MalformedRecord as error:
        error.model = source.model
        raise
    return Decoded(record, tuple(faults))


def _record(
    name: str,
    fields: dict[str, Any],
    source: Source,
    logged_s: float | None,
    faults: list[MalformedRecord],
    limits: Limits,
) -> Record:
    match name:
        case "TelemetryBatch":
            return _telemetry(fields, source, logged_s, faults, limits)
        case "GpuSample":
            return _gpu_sample(fields, source, logged_s, faults, limits)
        case "ChangeEvent":
            return _change_event(fields, source, logged_s)
        case _:
            return Tick(source=source, time_s=_required_time(fields, "time_s"), logged_s=logged_s)


def _parse(value: bytes) -> dict[str, Any]:
    is_json = value.lstrip()[:1] == b"{"
    try:
        fields = msgspec.json.decode(value) if is_json else msgspec.msgpack.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        form = "JSON" if is_json else "MessagePack (and not JSON, which begins with '{')"
        raise MalformedRecord("not_decodable", "", f"not {form}: {error}") from error
    if not isinstance(fields, dict):
        raise MalformedRecord(
            "wrong_type", "", f"a {type(fields).__name__}; a map with 'schema' is needed"
        )
    return fields


def _schema_name(fields: dict[str, Any]) -> str:
    schema = fields.get("schema")
    if not isinstance(schema, str):
        raise MalformedRecord(
            "missing_field", "schema", f"got {schema!r}; needed, such as 'TelemetryBatch/1'"
        )
    name, _, version = schema.partition("/")
    if name not in {"TelemetryBatch", "GpuSample", "ChangeEvent", "Tick"}:
        raise MalformedRecord(
            "unknown_schema",
            "schema",
            f"got {schema[:80]!r}; allowed: TelemetryBatch, GpuSample, ChangeEvent, Tick",
        )
    if version != str(SCHEMA_VERSION):
        raise MalformedRecord(
            "schema_version",
            "schema",
            f"got {schema[:80]!r}; this version reads {name}/{SCHEMA_VERSION}",
        )
    return name


def _source(fields: dict[str, Any]) -> Source:
    if "source" not in fields:
        raise MalformedRecord("missing_field", "source", "needed, with at least 'model'")
    try:
        source = msgspec.convert(fields["source"], Source)
    except msgspec.ValidationError as error:
        kind = "missing_field" if "missing required" in str(error) else "wrong_type"
        raise MalformedRecord(kind, "source", str(error)) from error
    if not source.model:
        raise MalformedRecord("missing_field", "source.model", "is empty; name the model")
    return source


def _time(fields: dict[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    time_s = None if isinstance(value, bool) else as_number(value)
    if time_s is None:
        raise MalformedRecord("wrong_type", name, f"got {value!r:.80}; Unix seconds are needed")
    if not math.isfinite(time_s):
        raise MalformedRecord("not_finite", name, f"got {value!r:.80}; Unix seconds are needed")
    if not 0.0 <= time_s <= MAX_UNIX_S:
        raise MalformedRecord(
            "negative" if time_s < 0 else "time_out_of_range",
            name,
            f"got {value!r:.80}; Unix seconds from 0 to {MAX_UNIX_S:.0f} (the year 3000) are "
            "allowed",
        )
    return time_s


def _required_time(fields: dict[str, Any], name: str) -> float:
    value = _time(fields, name)
    if value is None:
        raise MalformedRecord("missing_field", name, "needed, in Unix seconds")
    return value


def _telemetry(
    fields: dict[str, Any],
    source: Source,
    logged_s: float | None,
    faults: list[MalformedRecord],
    limits: Limits,
) -> TelemetryBatch:
    start_s, end_s = _time(fields, "start_s"), _time(fields, "end_s")
    parsed = [TableColumns(n, fields[n], faults, limits) for n in _TABLES if fields.get(n)]
    if end_s is None:
        end_s = _latest_row_s(parsed)
    if start_s is not None and start_s > end_s:
        raise MalformedRecord(
            "time_out_of_range", "start_s", f"got {start_s!r}, after end_s {end_s!r}"
        )
    if start_s is not None and end_s - start_s > MAX_BATCH_SPAN_S:
        reason = (
            f"got {start_s!r}, {end_s - start_s:.0f} s before end_s; at most "
            f"{MAX_BATCH_SPAN_S:.0f} s are allowed; left out"
        )
        faults.append(MalformedRecord("time_out_of_range", "start_s", reason))
        start_s = None
    earliest_s = end_s if start_s is None else start_s
    tables = {c.name: c.table(earliest_s, end_s, faults) for c in parsed}
    times = [t.end_s for t in tables.values() if t.rows]
    if times:
        earliest_s = min(earliest_s, *(float(t.min()) for t in times))
        end_s = max(end_s, *(float(t.max()) for t in times))
    return TelemetryBatch(
        source=source,
        start_s=earliest_s,
        end_s=end_s,
        requests=tables.get("requests", EMPTY_TABLE),
        steps=tables.get("steps", EMPTY_TABLE),
        gauges=usable_numbers(fields.get("gauges"), "gauges", faults, limits),
        histograms=usable_histograms(fields.get("histograms"), faults, limits),
        logged_s=logged_s,
    )


def _latest_row_s(tables: list[TableColumns]) -> float:
    """Return the latest event time of the rows, in place of an ``end_s`` that is missing."""
    times = [table.end_s for table in tables if table.end_s is not None]
    possible = [t[(t >= 0.0) & (t <= MAX_UNIX_S)] for t in times]
    latest = [float(t.max()) for t in possible if t.size]
    if not latest:
        raise MalformedRecord("missing_field", "end_s", "needed, in Unix seconds")
    return max(latest)


def _gpu_sample(
    fields: dict[str, Any],
    source: Source,
    logged_s: float | None,
    faults: list[MalformedRecord],
    limits: Limits,
) -> GpuSample:
    raw = fields.get("gpus")
    if not isinstance(raw, list) or not all(isinstance(gpu, dict) for gpu in raw):
        refuse("wrong_type", "gpus", raw, "a list of maps, one a GPU, is needed")
    check_limit("gpus", len(raw), MAX_GPUS, "gpus")
    gpus: list[Mapping[str, float | str]] = []
    for i, gpu in enumerate(raw):
        words = {n: v for n, v in gpu.items() if isinstance(n, str) and isinstance(v, str)}
        for word in (*words, *words.values()):
            check_limit("name_chars", len(word), limits.name_chars, f"gpus[{i}]")
        rest = {n: v for n, v in gpu.items() if n not in words and not isinstance(v, list | dict)}
        gpus.append({**words, **usable_numbers(rest, f"gpus[{i}]", faults, limits)})
    return GpuSample(
        source=source,
        time_s=_required_time(fields, "time_s"),
        gpus=tuple(gpus),
        logged_s=logged_s,
    )


def _change_event(fields: dict[str, Any], source: Source, logged_s: float | None) -> ChangeEvent:
    kind = fields.get("kind")
    if not isinstance(kind, str):
        refuse("missing_field", "kind", kind, f"one of {', '.join(sorted(_CHANGE_KINDS))}")
    known = _CHANGE_KINDS.get(kind, "other")
    detail = _words(fields, "detail")
    if kind not in _CHANGE_KINDS:
        detail = f"{kind}: {detail}" if detail else kind
    version = _words(fields, "version") or source.version
    for field, words in (("version", version), ("detail", detail)):
        check_limit("detail_chars", len(words or ""), MAX_DETAIL_CHARS, field)
    return ChangeEvent(
        source=source,
        time_s=_required_time(fields, "time_s"),
        kind=known,
        version=version,
        detail=detail,
        until_s=_time(fields, "until_s"),
        logged_s=logged_s,
    )


def _words(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        refuse("wrong_type", name, value, "words are needed")
    return value


def encode_json(record: Record) -> bytes:
    """Return ``record`` as one line of JSON, without the line's end."""
    return msgspec.json.encode(_wire(record, _json_column))


def encode_msgpack(record: Record) -> bytes:
    """Return ``record`` as MessagePack, columns as buffers: the fast form."""
    return msgspec.msgpack.encode(_wire(record, _buffer_column))


def schema_of(record: Record) -> str:
    """Return what a record's header ``schema`` and its field of that name say."""
    return f"{type(record).__name__}/{SCHEMA_VERSION}"


def _wire(record: Record, column: Any) -> dict[str, Any]:
    wire: dict[str, Any] = {"schema": schema_of(record)}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, Table):
            if not value.columns and not value.rows:
                continue
            arrays: dict[str, NDArray[Any]] = {"end_s": value.end_s, **value.columns}
            value = {n: column(array) for n, array in arrays.items()} | dict(value.text)
        elif value is None or (name in {"gauges", "histograms"} and not value):
            continue
        elif name == "histograms":
            value = {column: wire_histogram(histogram) for column, histogram in value.items()}
        wire[name] = value
    return wire


def _json_column(array: NDArray[Any]) -> list[float | None]:
    # The shortest decimal that is the same float32: 0.021, not 0.020999999716877937.
    numbers = array.astype(str).astype(np.float64).tolist()
    return [None if math.isnan(number) else number for number in numbers]


def _buffer_column(array: NDArray[Any]) -> bytes | list[float | None]:
    # NaN in a buffer is a fault; "not measured" travels as null, so such a column is a list.
    if np.isnan(array).any():
        return _json_column(array)
    return array.astype("<f8" if array.dtype == np.float64 else "<f4").tobytes()


def encode_output(output: Output) -> bytes:
    """Return ``output`` as one line of JSON: the same bytes on every run."""
    return msgspec.json.encode(output)


_OUTPUT_DECODER: Final = msgspec.json.Decoder(Output)


def decode_output(value: bytes) -> Output:
    """Return the output that ``encode_output`` wrote.

    Raises:
        MalformedRecord: If ``value`` is no output of this version.
    """
    try:
        return _OUTPUT_DECODER.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRecord("not_decodable", "", f"not an output of DAOM: {error}") from error
