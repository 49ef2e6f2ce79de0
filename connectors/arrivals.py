"""Recorded arrivals: when requests came, and how many tokens each had.

Read from a trace of Azure's (CSV: TIMESTAMP, ContextTokens, GeneratedTokens), one of Mooncake's
(JSON Lines: timestamp in ms, input_length, output_length), or a recording of DAOM's own.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from connectors.recordings import Line, read_lines
from daom.codec import decode
from daom.errors import MalformedRecord, SourceError
from daom.events import TelemetryBatch
from daom.times import parse_time

_CSV_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_JSON_FIELDS: Final = ("timestamp", "input_length", "output_length")
_NEEDED: Final = (
    f"needed: CSV with {', '.join(_CSV_COLUMNS)}, JSON Lines with {', '.join(_JSON_FIELDS)}, "
    "or a recording with prompt_tokens and output_tokens"
)
_MICROSECONDS: Final = 26
"""Characters of an ISO 8601 time down to the microsecond; Azure's have a digit more."""


class Arrival(NamedTuple):
    """A request: when it came, in seconds after the first, and its tokens."""

    at_s: float
    prompt_tokens: int
    output_tokens: int

    def within(self, max_tokens: int | None) -> Arrival:
        """Return it cut to a model's length: the answer to half of it, the prompt to the rest."""
        if max_tokens is None:
            return self
        output = min(self.output_tokens, max(1, max_tokens // 2))
        return Arrival(self.at_s, min(self.prompt_tokens, max(1, max_tokens - output)), output)


def read_arrivals(path: str | os.PathLike[str], limit: int | None = None) -> list[Arrival]:
    """Return the first ``limit`` arrivals of ``path`` in order of time; all by default.

    Every request has a token at least, in and out: a server takes none without.

    Raises:
        SourceError: If it cannot be read, or holds no arrivals.
    """
    lines = iter(read_lines(path))
    first = next(lines, None)
    if first is None:
        raise SourceError(f"{os.fspath(path)}: is empty; {_NEEDED}")
    if first.value.lstrip().startswith(b"{"):
        found = _of_json([first, *lines], os.fspath(path))
    else:
        found = _of_csv([first, *lines], os.fspath(path))
    arrivals = sorted(found)[:limit]
    if not arrivals:
        raise SourceError(f"{os.fspath(path)}: holds no arrivals; {_NEEDED}")
    start_s = arrivals[0].at_s
    return [Arrival(a.at_s - start_s, max(1, a[1]), max(1, a[2])) for a in arrivals]


def _of_csv(lines: Iterable[Line], path: str) -> Iterator[Arrival]:
    rows = csv.DictReader(line.value.decode(errors="replace") for line in lines)
    if not set(_CSV_COLUMNS) <= set(rows.fieldnames or ()):
        raise SourceError(f"{path}: got columns {rows.fieldnames!r:.120}; {_NEEDED}")
    for row in rows:
        time, prompt, output = (row[name] or "" for name in _CSV_COLUMNS)
        at_s = parse_time(time[:_MICROSECONDS])
        if at_s is None or not (prompt.isdecimal() and output.isdecimal()):
            raise SourceError(f"{path}:{rows.line_num}: got {time!r}, {prompt!r}, {output!r}")
        yield Arrival(at_s, int(prompt), int(output))


def _of_json(lines: Iterable[Line], path: str) -> Iterator[Arrival]:
    for number, value in lines:
        try:
            fields = msgspec.json.decode(value)
            if isinstance(fields, dict) and "schema" in fields:
                yield from _of_record(value)
            else:
                yield _of_fields(fields)
        except MalformedRecord:
            # Recordings may hold what producers got wrong.
            continue
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise SourceError(f"{path}:{number}: {error!r}; {_NEEDED}") from error


def _of_fields(fields: Mapping[str, float]) -> Arrival:
    time_ms, prompt, output = (float(fields[name]) for name in _JSON_FIELDS)
    return Arrival(time_ms / 1_000.0, int(prompt), int(output))


def _of_record(value: bytes) -> Iterator[Arrival]:
    """Return the requests of a batch; one of unknown length came when it ended."""
    record = decode(value).record
    if not isinstance(record, TelemetryBatch):
        return
    columns, rows = record.requests.columns, record.requests.end_s
    if "prompt_tokens" not in columns or "output_tokens" not in columns:
        return
    lasted = columns["e2e_s"].tolist() if "e2e_s" in columns else [0.0] * rows.size
    prompts, outputs = (columns[n].tolist() for n in ("prompt_tokens", "output_tokens"))
    for end_s, lasted_s, prompt, output in zip(
        rows.tolist(), lasted, prompts, outputs, strict=True
    ):
        if prompt >= 0.0 and output >= 0.0:
            yield Arrival(end_s - max(0.0, lasted_s), int(prompt), int(output))
