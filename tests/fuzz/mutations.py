"""Messages that were once good: the wire of real records, changed in one place or several.

Half of the changes are made to the bytes, as a broken producer or disk would; the other half to the
decoded message, so that it is still JSON or MessagePack and comes further. Everything is drawn from
one seed.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from connectors.recordings import read_lines
from daom.codec import decode, encode_json, encode_msgpack
from tests.daom.messages import CHANGE, GOOD, GPUS, TICK, written
from tests.fleet import OVERLOAD

_GOOD_SHARE: Final = 0.4
"""So many are left as they are: amid all that is not, what is good must be judged."""
_MOST_CHANGES: Final = 4
_MOST_BYTES: Final = 40
_MANY: Final = 300
_ODD_EVERY: Final = 20
_HISTOGRAM: Final = {"le_s": [0.1, 0.5, "+Inf"], "counts": [3, 4, 1]}
_STRANGE: Final[tuple[object, ...]] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 1e-9, 1e9, 1e30, 1e308, -0.0),
    *(math.nan, math.inf, -math.inf, 1e-320, "", "NaN", "null", "model-0", "\x00", "\ud7ff"),
    *("a" * _MANY, "é" * _MANY, [], {}, [[]], [{}], [None], [1.0, "a"], {"": 0}, {"end_s": []}),
    *(b"", b"\x00", b"\x00" * 4, b"\xff" * 8, b"\x00\x00\xc0\x7f", [0.1] * _MANY),
    *([math.nan] * 3, {"a": {"b": {"c": {}}}}, list(range(70)), 1_766_000_000.0, -1e12),
)
"""What stands in the place of a value; bytes are columns in MessagePack and no JSON."""


def originals() -> list[bytes]:
    """Return the wire of real records, in both encodings in turn, and now and then an odd kind."""
    odd = [CHANGE, GPUS, TICK, GOOD, GOOD | {"histograms": {"ttft_s": _HISTOGRAM}}]
    found = []
    for number, line in enumerate(read_lines(OVERLOAD)):
        encode = encode_msgpack if number % 2 else encode_json
        found.append(encode(decode(line.value).record))
        if number % _ODD_EVERY == 0:
            found.append(written(odd[number // _ODD_EVERY % len(odd)]))
    return found


def mutated(rng: random.Random, pool: list[bytes]) -> Iterator[bytes]:
    """Yield the messages of ``pool``, most of them changed."""
    for original in pool:
        value = original
        if rng.random() > _GOOD_SHARE:
            change = rng.choice((_changed_bytes, _changed_fields))
            for _ in range(rng.randint(1, _MOST_CHANGES)):
                value = change(value, rng, pool)
        yield value


def _changed_bytes(value: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    return rng.choice(_BYTE_CHANGES)(value, rng, pool)


def _flip(value: bytes, rng: random.Random, _: list[bytes]) -> bytes:
    changed = bytearray(value)
    if changed:
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(value: bytes, rng: random.Random, _: list[bytes]) -> bytes:
    return value[: rng.randint(0, len(value))]


def _drop(value: bytes, rng: random.Random, _: list[bytes]) -> bytes:
    at = rng.randint(0, len(value))
    return value[:at] + value[at + rng.randint(1, _MOST_BYTES) :]


def _insert(value: bytes, rng: random.Random, _: list[bytes]) -> bytes:
    at = rng.randint(0, len(value))
    return value[:at] + rng.randbytes(rng.randint(1, _MOST_BYTES)) + value[at:]


def _splice(value: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    other = rng.choice(pool)
    return value[: rng.randint(0, len(value))] + other[rng.randint(0, len(other)) :]


_BYTE_CHANGES: Final[tuple[Callable[[bytes, random.Random, list[bytes]], bytes], ...]] = (
    *(_flip, _cut, _drop, _insert, _splice),
)


def _changed_fields(value: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    """Change one field, or one value of a column; what is no message any more is left as it is."""
    is_json = value[:1] == b"{"
    try:
        fields = json.loads(value) if is_json else msgspec.msgpack.decode(value)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return value
    if not isinstance(fields, dict) or not fields:
        return value
    _change_somewhere(fields, rng)
    if is_json:
        return json.dumps(fields, default=lambda odd: odd.decode("latin-1")).encode(
            errors="surrogatepass"
        )
    try:
        return msgspec.msgpack.encode(fields)
    except (OverflowError, TypeError, ValueError):
        return rng.choice(pool)


def _change_somewhere(fields: dict[Any, Any], rng: random.Random) -> None:
    place: Any = fields
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = rng.choice(keys)
        below = place[key]
        if not isinstance(below, dict | list) or not below or not rng.randrange(3):
            break
        place = below
    match rng.randrange(5):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            place[f"{key}{rng.randrange(1_000)}"] = place.pop(key)
        case 2 if isinstance(below, int | float):
            place[key] = below * rng.choice((-1, 0, 1e-6, 1e-3, 1e3, 1e6, 1e300))
        case 3 if isinstance(place, list):
            place.extend(place[: rng.randint(1, len(place))])
        case _:
            place[key] = rng.choice(_STRANGE)
