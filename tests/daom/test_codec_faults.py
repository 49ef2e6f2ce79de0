"""Whatever comes is read or refused, and a refusal names field, value and what is allowed."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daom.codec import FAULT_KINDS, decode, encode_json, encode_msgpack
from daom.errors import MalformedRecord
from daom.limits import DEFAULT_LIMITS
from tests.daom.messages import (
    CHANGE,
    GOOD,
    GPUS,
    MISSING,
    TICK,
    changed,
    message,
    refusal,
    written,
)
from tests.daom.stories import T0, by_time, calm, change, story, tick

# Records that cannot be used at all: kind of fault, field, and what the reason must say.

NO_JSON = {
    "half a message": written(GOOD)[:40],
    "not finite": written(changed(GOOD, "end_s", math.nan)),
    "not finite in a column": written(changed(GOOD, "requests.ttft_s", [0.1, math.inf])),
    "not text": b'{"schema": "\xff"}',
    "junk in a nest": b'{"schema":' + b"[" * 100_000,
}


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
def test_what_begins_like_json_and_is_not_is_refused_as_such(value):
    fault = refusal(value)

    assert (fault.kind, fault.field) == ("not_decodable", "")
    assert "not JSON" in str(fault)


NO_MSGPACK = {
    "nothing": b"",
    "words": b"hello",
    "cut short": encode_msgpack(tick(T0))[:-3],
    "junk in a nest": b"\x91" * 100_000,
}


@pytest.mark.parametrize("value", NO_MSGPACK.values(), ids=NO_MSGPACK)
def test_what_is_neither_form_is_refused_naming_both(value):
    fault = refusal(value)

    assert (fault.kind, fault.field) == ("not_decodable", "")
    assert "not MessagePack (and not JSON, which begins with '{')" in str(fault)


def test_a_tombstone_is_refused():
    assert refusal(None).kind == "tombstone"


def test_a_message_of_ten_megabytes_is_refused_unread():
    fault = refusal(b"{" * 10_000_000)

    assert fault.kind == "too_large"
    assert str(fault) == "10000000 bytes; at most 4194304 are allowed"


def test_a_message_as_large_as_allowed_is_read():
    value = written(TICK)

    assert decode(value, max_bytes=len(value)).record.time_s == T0
    assert refusal(value, max_bytes=len(value) - 1).kind == "too_large"


@pytest.mark.parametrize("value", [7, [1, 2], "words", None])
def test_a_message_that_is_no_map_is_refused(value):
    fault = refusal(msgspec.msgpack.encode(value))

    assert fault.kind == "wrong_type"
    assert type(value).__name__ in str(fault)
    assert "a map" in str(fault)


MILLISECONDS = T0 * 1_000.0
TOO_MANY = {f"c{i}": [1.0] for i in range(DEFAULT_LIMITS.columns + 1)}
TOO_MANY_READINGS = dict.fromkeys(TOO_MANY, 1.0)
REFUSED = [
    # fields, path, value, kind, field, said of the value, said of what is allowed
    (GOOD, "schema", MISSING, "missing_field", "schema", "None", "'TelemetryBatch/1'"),
    (GOOD, "schema", 1, "missing_field", "schema", "1", "'TelemetryBatch/1'"),
    (GOOD, "schema", "Telemetry/1", "unknown_schema", "schema", "'Telemetry/1'", "ChangeEvent"),
    (GOOD, "schema", "TelemetryBatch/2", "schema_version", "schema", "Batch/2'", "Batch/1"),
    (GOOD, "schema", "TelemetryBatch", "schema_version", "schema", "Batch'", "Batch/1"),
    (GOOD, "source", MISSING, "missing_field", "source", "", "'model'"),
    (GOOD, "source", "e1", "wrong_type", "source", "str", "object"),
    (GOOD, "source.model", MISSING, "missing_field", "source", "", "`model`"),
    (GOOD, "source.model", "", "missing_field", "source.model", "empty", "name the model"),
    (GOOD, "source.model", 5, "wrong_type", "source", "int", "`str`"),
    (GOOD, "source.seq", "5", "wrong_type", "source", "str", "`int | null`"),
    (GOOD, "source.seq", -1, "wrong_type", "source", "$.seq", "`int` >= 0"),
    (GOOD, "source.seq", 2**53 + 1, "wrong_type", "source", "$.seq", "<= 9007199254740992"),
    (GOOD | {"requests": {}}, "end_s", MISSING, "missing_field", "end_s", "", "Unix seconds"),
    (GOOD, "end_s", "now", "wrong_type", "end_s", "'now'", "Unix seconds"),
    (GOOD, "end_s", True, "wrong_type", "end_s", "True", "Unix seconds"),
    (GOOD, "end_s", -5.0, "negative", "end_s", "-5.0", "from 0 to"),
    (GOOD, "end_s", MILLISECONDS, "time_out_of_range", "end_s", "1766000000000.0", "year 3000"),
    (GOOD, "start_s", T0 + 1.0, "time_out_of_range", "start_s", f"{T0 + 1.0}", f"end_s {T0 + 0.5}"),
    (GOOD, "logged_s", -1.0, "negative", "logged_s", "-1.0", "from 0 to"),
    (GOOD, "requests", [1], "wrong_type", "requests", "[1]", "a map"),
    (GOOD, "requests", TOO_MANY, "too_large", "requests", "65 names", "at most 64"),
    (GOOD, "requests.ttft_s", 0.1, "wrong_type", "requests.ttft_s", "0.1", "a list of numbers"),
    (GOOD, "requests.ttft_s", [0.1, "x"], "wrong_type", "requests.ttft_s", "'x'", "a number"),
    (GOOD, "requests.ttft_s", [0.1, [2]], "wrong_type", "requests.ttft_s", "[2]", "a number"),
    (GOOD, "requests.ttft_s", [0.1], "columns_unequal", "requests", "'ttft_s': 1", "one length"),
    (GOOD, "requests.end_s", [T0], "columns_unequal", "requests", "'end_s': 1", "one length"),
    (GOOD, "gauges", [0.4], "wrong_type", "gauges", "[0.4]", "a map from names"),
    (GOOD, "gauges", TOO_MANY, "too_large", "gauges", "65 names", "at most 64"),
    (GPUS, "gpus", [TOO_MANY_READINGS], "too_large", "gpus[0]", "65 names", "at most 64"),
    (TICK, "time_s", MISSING, "missing_field", "time_s", "", "Unix seconds"),
    (CHANGE, "time_s", None, "missing_field", "time_s", "", "Unix seconds"),
    (CHANGE, "kind", 3, "missing_field", "kind", "3", "deploy"),
    (CHANGE, "detail", 3, "wrong_type", "detail", "3", "words"),
    (CHANGE, "until_s", MILLISECONDS, "time_out_of_range", "until_s", "1766000000000", "year 3000"),
    (GPUS, "time_s", MILLISECONDS, "time_out_of_range", "time_s", "1766000000000.0", "year 3000"),
    (GPUS, "gpus", {"power_w": 3}, "wrong_type", "gpus", "{'power_w': 3}", "a list of maps"),
]


@pytest.mark.parametrize("form", [written, msgspec.msgpack.encode], ids=["json", "msgpack"])
@pytest.mark.parametrize(
    ("fields", "path", "value", "kind", "field", "got", "allowed"),
    REFUSED,
    ids=[
        f"{path}={str(value)[:20]}" if value is not MISSING else path
        for _, path, value, *_ in REFUSED
    ],
)
def test_a_record_beyond_use_is_refused_naming_field_value_and_what_is_allowed(
    fields, path, value, kind, field, got, allowed, form
):
    fault = refusal(form(changed(fields, path, value)))

    assert (fault.kind, fault.field) == (kind, field)
    assert got in str(fault)
    assert allowed in str(fault)


HUGE = 10**400
TIMES = [
    (GOOD, "start_s"),
    (GOOD, "end_s"),
    (GOOD, "logged_s"),
    (TICK, "time_s"),
    (CHANGE, "time_s"),
    (CHANGE, "until_s"),
    (GPUS, "time_s"),
]


@pytest.mark.parametrize("value", [HUGE, -HUGE], ids=["huge", "minus huge"])
@pytest.mark.parametrize(("fields", "path"), TIMES, ids=[path for _, path in TIMES])
def test_a_time_of_four_hundred_digits_is_refused(fields, path, value):
    fault = refusal(written(changed(fields, path, value)))

    assert (fault.kind, fault.field) == ("not_finite", path)
    assert "Unix seconds are needed" in str(fault)
    assert len(str(fault)) < 200


@pytest.mark.parametrize("path", ["source.seq", "requests.ttft_s", "requests.end_s"])
@pytest.mark.parametrize("value", [HUGE, -HUGE], ids=["huge", "minus huge"])
def test_a_number_or_column_of_four_hundred_digits_is_refused(path, value):
    fields = changed(GOOD, path, value if path == "source.seq" else [value, 1.0])

    assert refusal(written(fields)).kind in {"wrong_type", "not_finite"}


NO_WORDS = {"a number": 7, "a fraction": 1.5, "true": True, "bytes": b"x", "a list": (1, 2)}


@pytest.mark.parametrize("name", NO_WORDS.values(), ids=NO_WORDS)
@pytest.mark.parametrize("path", ["requests", "steps", "gauges", "gpus"])
def test_a_map_whose_names_are_no_words_is_refused(path, name):
    named = {name: 1.0}
    fields = GPUS | {"gpus": [named]} if path == "gpus" else GOOD | {path: named}

    fault = refusal(msgspec.msgpack.encode(fields))

    assert fault.kind == "wrong_type"
    assert fault.field == ("gpus[0]" if path == "gpus" else path)
    assert "names are words" in str(fault)


@pytest.mark.parametrize(("column", "length"), [("ttft_s", 3), ("ttft_s", 5), ("end_s", 4)])
def test_a_buffer_that_ends_inside_a_number_is_refused(column, length):
    fault = refusal(message(**{column: b"\0" * length}))

    assert (fault.kind, fault.field) == ("wrong_type", f"requests.{column}")
    assert f"{length} bytes" in str(fault)
    assert "little-endian float" in str(fault)


# Whatever comes


SENT = [
    encode(record)
    for record in by_time(story(calm(0.2), engines=("e1",)), [tick(T0), change("deploy", T0, "e1")])
    for encode in (encode_json, encode_msgpack)
] + [written(GOOD), written(GPUS), msgspec.msgpack.encode(GOOD)]


@st.composite
def mutated(draw):
    """A real message with some bytes changed, cut out, doubled or put in."""
    value = bytearray(draw(st.sampled_from(SENT)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(value) - 1)))
        length = draw(st.integers(0, 8))
        new = draw(st.binary(max_size=8))
        value[place : place + length] = new
    return bytes(value)


keys = st.sampled_from([*GOOD, *CHANGE, "gpus", "steps", "ttft_s", "model"]) | st.text(max_size=3)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from([T0, -1, MILLISECONDS, *(f["schema"] for f in (GOOD, TICK, CHANGE, GPUS))])
)
structures = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4)
)


def assert_decoded_or_refused(value):
    try:
        faults = decode(value).faults
    except MalformedRecord as fault:
        faults = (fault,)
    assert {fault.kind for fault in faults} <= set(FAULT_KINDS)


@settings(max_examples=600)
@given(value=mutated())
def test_a_damaged_message_is_read_or_refused_and_never_anything_else(value):
    assert_decoded_or_refused(value)


@settings(max_examples=300)
@given(value=st.binary(max_size=60))
def test_random_bytes_are_refused_and_never_anything_else(value):
    assert_decoded_or_refused(value)


odd_names = (
    st.text(max_size=3)
    | st.integers(-(2**63), 2**64 - 1)
    | st.booleans()
    | st.floats()
    | st.binary(max_size=3)
    | st.tuples(st.integers(0, 3))
)
odd_maps = st.recursive(
    scalars,
    lambda inner: st.dictionaries(odd_names, inner, max_size=3) | st.lists(inner),
    max_leaves=8,
)


@pytest.mark.parametrize("path", ["source", "requests", "steps", "gauges", "gpus"])
@settings(max_examples=60)
@given(data=st.data())
def test_maps_with_any_names_are_read_or_refused_and_never_anything_else(path, data):
    odd = data.draw(st.dictionaries(odd_names, odd_maps, max_size=3))
    fields = GPUS | {"gpus": [odd]} if path == "gpus" else GOOD | {path: odd}

    assert_decoded_or_refused(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize("fields", [GOOD, TICK, CHANGE, GPUS], ids=lambda f: f["schema"])
@settings(max_examples=150)
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused_and_never_anything_else(fields, data):
    paths = [
        *fields,
        *(f"{p}.{name}" for p, v in fields.items() if isinstance(v, dict) for name in v),
    ]
    path = data.draw(st.sampled_from(paths))
    value = changed(fields, path, data.draw(structures))

    assert_decoded_or_refused(msgspec.msgpack.encode(value))
    assert_decoded_or_refused(written(value))
