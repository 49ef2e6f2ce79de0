"""A record of a log as a line of a recording, and back: nothing that a replay heeds is lost.

What can be used is written as the contract has it, with when the log took it (``logged_s``) and,
where it is not the model's own, the cell that it was filed under (``source.cell``). What cannot be
used, or not in full, is kept as it came, in a line with the schema ``Raw/1``: so a replay of the
recording refuses the same for the same reasons.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from daom.codec import decode, encode_json
from daom.errors import MalformedRecord
from daom.events import Record
from daom.limits import DEFAULT_LIMITS, Limits
from daom.replay import Sourced

RAW_SCHEMA: Final = "Raw/1"
_BEGINNING: Final = b'{"schema":"Raw/1",'


class _Raw(msgspec.Struct, omit_defaults=True):
    """A value as it came; without ``text`` and ``base64`` it was null."""

    schema: str
    cell: str | None = None
    logged_s: float | None = None
    text: str | None = None
    base64: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Raw)


def line_of(sourced: Sourced, max_bytes: int, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Return the line of a recording that says what ``sourced`` does.

    Args:
        sourced: A record of a log, or a line of a recording, which stays as it is.
        max_bytes: The longest message that is read; ``limits`` is what is allowed in one.
        limits: As a replay will have them.
    """
    value = sourced.value
    if sourced.key is None and sourced.logged_s is None and value is not None:
        return value
    record = usable(sourced, max_bytes, limits)
    if record is not None:
        line = encode_json(filed_under(record, sourced.key))
        if len(line) <= max_bytes:
            return line
    return _raw_line(sourced)


def usable(sourced: Sourced, max_bytes: int, limits: Limits = DEFAULT_LIMITS) -> Record | None:
    """Return the record that ``sourced`` holds if all of it can be used, else None."""
    if sourced.logged_s is not None and sourced.logged_s < 0.0:
        return None
    try:
        record, faults = decode(
            sourced.value, logged_s=sourced.logged_s, max_bytes=max_bytes, limits=limits
        )
    except MalformedRecord:
        return None
    return None if faults else record


def filed_under(record: Record, key: str | None) -> Record:
    """Return ``record`` saying that it was filed under ``key``; None: what it says already."""
    if key is None:
        return record
    cell = None if key == record.source.model else key
    if cell == record.source.cell:
        return record
    source = msgspec.structs.replace(record.source, cell=cell)
    return msgspec.structs.replace(record, source=source)


def _raw_line(sourced: Sourced) -> bytes:
    text, packed = None, None
    if sourced.value is not None:
        try:
            text = sourced.value.decode()
        except UnicodeDecodeError:
            packed = base64.b64encode(sourced.value).decode()
    return msgspec.json.encode(_Raw(RAW_SCHEMA, sourced.key, sourced.logged_s, text, packed))


def read_line(where: str, value: bytes) -> Sourced:
    """Return what a line of a recording says; what ``Raw/1`` holds is unpacked."""
    if not value.startswith(_BEGINNING):
        return Sourced(where, value)
    try:
        raw = _DECODER.decode(value)
        kept = None if raw.base64 is None else base64.b64decode(raw.base64, validate=True)
    except (msgspec.DecodeError, binascii.Error):
        return Sourced(where, value)
    if raw.text is not None:
        kept = raw.text.encode()
    return Sourced(where, kept, raw.cell, raw.logged_s)
