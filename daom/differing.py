"""Where two messages begin to differ."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, Final, NamedTuple

import msgspec

from daom.published import Message


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()
"""Of a field that is not there."""


class Field(NamedTuple):
    """What differs: its path, such as ``labels.engine``, what was written, and what is right."""

    path: str
    written: object
    right: object


def first_field(written: Message, right: Message) -> Field | None:
    """Return the first field in which ``written`` is not as it should be; None: it is.

    Fields of the value come first, in the order in which they are written.
    """
    if written.value != right.value:
        return _of_values(written.value, right.value)
    for name in ("topic", "key"):
        values = getattr(written, name), getattr(right, name)
        if values[0] != values[1]:
            return Field(name, *map(_text, values))
    there = dict(written.headers)
    for name, value in right.headers:
        if there.get(name) != value:
            shown = _text(there[name]) if name in there else NOTHING
            return Field(f"header {name}", shown, _text(value))
    return None


def _of_values(written: bytes, right: bytes) -> Field:
    try:
        values = msgspec.json.decode(written), msgspec.json.decode(right)
    except (msgspec.DecodeError, RecursionError):
        return Field("value", _text(written), _text(right))
    found = _first_of("", *values)
    # The same values in other bytes: an order, a space, or 1.0 for 1.
    return found or Field("value", _text(written), _text(right))


def _first_of(path: str, written: Any, right: Any) -> Field | None:
    if isinstance(written, dict) and isinstance(right, dict):
        for name in (*right, *(name for name in written if name not in right)):
            pair = written.get(name, NOTHING), right.get(name, NOTHING)
            if (found := _first_of(f"{path}.{name}".lstrip("."), *pair)) is not None:
                return found
        return None
    if isinstance(written, list) and isinstance(right, list):
        for number, pair in enumerate(zip_longest(written, right, fillvalue=NOTHING)):
            if (found := _first_of(f"{path}[{number}]", *pair)) is not None:
                return found
        return None
    is_same = written == right and type(written) is type(right)
    return None if is_same else Field(path or "value", written, right)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
