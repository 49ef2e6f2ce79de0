"""Bytes to records: both forms say the same, and every fault is named."""

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daom.codec import (
    FAULT_KINDS,
    MAX_COLUMNS,
    decode,
    decode_output,
    encode_json,
    encode_msgpack,
    encode_output,
)
from daom.errors import MalformedRecord
from daom.events import Alert, GpuSample, Source, TelemetryBatch, digest
from tests.daom.stories import T0, by_time, change, plain, story, table, tick
from tests.daom.stories import calm as calm_minutes

FORMS = {"json": encode_json, "msgpack": encode_msgpack}
SLOW_DATA = settings(suppress_health_check=[HealthCheck.too_slow])

GOOD = {
    "schema": "TelemetryBatch/1",
    "source": {"model": "m", "engine": "e", "boot": "7f3c", "seq": 4711, "tenant": None},
    "start_s": T0,
    "end_s": T0 + 0.5,
    "requests": {
        "end_s": [T0 + 0.1, T0 + 0.2],
        "ttft_s": [0.068, None],
        "prompt_tokens": [812, 90],
        "finish_reason": ["stop", None],
    },
    "gauges": {"kv_usage": 0.41, "running": 24},
}
TICK = {"schema": "Tick/1", "source": {"model": "m"}, "time_s": T0}
CHANGE = {"schema": "ChangeEvent/1", "source": {"model": "m"}, "kind": "deploy", "time_s": T0}
GPUS = {"schema": "GpuSample/1", "source": {"model": "m"}, "time_s": T0, "gpus": [{"index": 0}]}
MISSING = object()


def written(fields):
    """The bytes of ``fields`` as JSON, NaN and all."""
    return json.dumps(fields).encode()


def changed(fields, path, value):
    """A copy of ``fields`` in which the field at ``path`` is ``value``, or missing."""
    copy = json.loads(json.dumps(fields))
    *parents, last = path.split(".")
    place = copy
    for parent in parents:
        place = place[parent]
    if value is MISSING:
        del place[last]
    else:
        place[last] = value
    return copy


def refusal(value, **how):
    """Why ``value`` cannot be used."""
    with pytest.raises(MalformedRecord) as caught:
        decode(value, **how)
    return caught.value


def buffer(*values, dtype="<f4"):
    return np.array(values, dtype).tobytes()


def message(**requests):
    """A MessagePack batch at T0 with these columns of requests."""
    batch = {"schema": "TelemetryBatch/1", "source": {"model": "m"}, "end_s": T0}
    return msgspec.msgpack.encode(batch | {"requests": requests})


# Records that are as they should be


@st.composite
def tables(draw, end_s):
    rows = draw(st.integers(0, 5))
    column = st.lists(
        st.one_of(st.none(), st.floats(0.0, 2.0**100, width=32)), min_size=rows, max_size=rows
    )
    names = draw(st.sets(st.sampled_from(["ttft_s", "prompt_tokens", "semantic_score"])))
    times = draw(st.lists(st.floats(end_s - 60.0, end_s), min_size=rows, max_size=rows))
    nan_for_none = [[math.nan if v is None else v for v in draw(column)] for _ in names]
    return table(times, **dict(zip(sorted(names), nan_for_none, strict=True)))


@st.composite
def batches(draw):
    words = st.text(min_size=1, max_size=10)
    end_s = draw(st.floats(61.0, 4e9))
    requests = draw(tables(end_s))
    lasts = [end_s, *requests.end_s.tolist()]
    return TelemetryBatch(
        source=Source(
            model=draw(words),
            engine=draw(st.none() | words),
            boot=draw(st.none() | words),
            seq=draw(st.none() | st.integers(0, 2**53)),
        ),
        start_s=min(lasts),
        end_s=end_s,
        requests=requests,
        gauges=draw(st.dictionaries(words, st.floats(0.0, 1e300), max_size=3)),
        logged_s=draw(st.none() | st.floats(0.0, 4e9)),
    )


@pytest.mark.parametrize("encode", FORMS.values(), ids=FORMS)
@SLOW_DATA
@given(batch=batches())
def test_a_batch_comes_back_as_it_was_sent(encode, batch):
    record, faults = decode(encode(batch))

    assert plain(record) == plain(batch)
    assert faults == ()


@SLOW_DATA
@given(batch=batches())
def test_json_and_messagepack_say_the_same(batch):
    from_json, from_msgpack = decode(encode_json(batch)), decode(encode_msgpack(batch))

    assert plain(from_json.record) == plain(from_msgpack.record)
    assert from_json.faults == from_msgpack.faults


@pytest.mark.parametrize("encode", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "record",
    [
        tick(T0),
        change("deploy", T0, "e1", version="2", detail="new kernels"),
        change("maintenance", T0, until_s=T0 + 60.0, logged_s=T0 + 1.0),
        GpuSample(source=Source(model="m"), time_s=T0, gpus=({"uuid": "GPU-1", "power_w": 700.0},)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_the_other_records_come_back_as_they_were_sent(encode, record):
    assert decode(encode(record)) == (record, ())


def test_the_example_of_the_documentation_is_read_with_nothing_left_out():
    record, faults = decode(written(GOOD))

    assert plain(record)["requests"] == {
        "end_s": [T0 + 0.1, T0 + 0.2],
        "ttft_s": [float(np.float32(0.068)), None],
        "prompt_tokens": [812.0, 90.0],
        "finish_reason": ["stop", None],
    }
    assert record.source == Source(model="m", engine="e", boot="7f3c", seq=4711)
    assert record.gauges == {"kv_usage": 0.41, "running": 24.0}
    assert faults == ()


def test_times_keep_the_precision_of_float64():
    end_s = T0 + 0.123_456

    record, _ = decode(message(end_s=buffer(end_s, dtype="<f8"), ttft_s=buffer(0.1)))

    assert record.requests.end_s.tolist() == [end_s]


def test_fields_that_nobody_knows_are_ignored():
    strange = GOOD | {"colour": "red", "nested": [{"deeply": [1]}]}

    assert plain(decode(written(strange)).record) == plain(decode(written(GOOD)).record)


def test_a_column_that_nobody_knows_is_kept_to_be_monitored():
    fields = changed(GOOD, "requests.semantic_score", [0.9, 0.8])

    record, faults = decode(written(fields))

    assert record.requests.columns["semantic_score"].tolist() == pytest.approx([0.9, 0.8])
    assert faults == ()


def test_rows_without_times_happen_at_the_end_of_their_batch():
    record, _ = decode(written(changed(GOOD, "requests.end_s", MISSING)))

    assert record.requests.end_s.tolist() == [T0 + 0.5] * 2


def test_a_batch_without_rows_still_brings_its_gauges():
    empty = changed(GOOD, "requests", {"end_s": [], "ttft_s": []})

    record, faults = decode(written(empty))

    assert (record.requests.rows, record.gauges["kv_usage"], faults) == (0, 0.41, ())


def test_what_the_log_says_of_its_time_gives_way_to_what_the_record_says():
    assert decode(written(TICK), logged_s=7.0).record.logged_s == 7.0
    assert decode(written(TICK | {"logged_s": 8.0}), logged_s=7.0).record.logged_s == 8.0


def test_an_unknown_kind_of_change_is_kept_as_other_with_its_name():
    record, _ = decode(written(CHANGE | {"kind": "full moon", "detail": "again"}))

    assert (record.kind, record.detail) == ("other", "full moon: again")


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
TOO_MANY = {f"c{i}": [1.0] for i in range(MAX_COLUMNS + 1)}
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
    (GOOD | {"requests": {}}, "end_s", MISSING, "missing_field", "end_s", "", "Unix seconds"),
    (GOOD, "end_s", "now", "wrong_type", "end_s", "'now'", "Unix seconds"),
    (GOOD, "end_s", True, "wrong_type", "end_s", "True", "Unix seconds"),
    (GOOD, "end_s", -5.0, "negative", "end_s", "-5.0", "from 0 to"),
    (GOOD, "end_s", MILLISECONDS, "time_out_of_range", "end_s", "1766000000000.0", "year 3000"),
    (GOOD, "start_s", T0 + 1.0, "time_out_of_range", "start_s", f"{T0 + 1.0}", f"end_s {T0 + 0.5}"),
    (GOOD, "logged_s", -1.0, "negative", "logged_s", "-1.0", "from 0 to"),
    (GOOD, "requests", [1], "wrong_type", "requests", "[1]", "a map"),
    (GOOD, "requests", TOO_MANY, "too_large", "requests", "65 columns", "at most 64"),
    (GOOD, "requests.ttft_s", 0.1, "wrong_type", "requests.ttft_s", "0.1", "a list of numbers"),
    (GOOD, "requests.ttft_s", [0.1, "x"], "wrong_type", "requests.ttft_s", "'x'", "a number"),
    (GOOD, "requests.ttft_s", [0.1, [2]], "wrong_type", "requests.ttft_s", "[2]", "a number"),
    (GOOD, "requests.ttft_s", [0.1], "columns_unequal", "requests", "'ttft_s': 1", "one length"),
    (GOOD, "requests.end_s", [T0], "columns_unequal", "requests", "'end_s': 1", "one length"),
    (GOOD, "gauges", [0.4], "wrong_type", "gauges", "[0.4]", "a map from names"),
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


@pytest.mark.parametrize(("column", "length"), [("ttft_s", 3), ("ttft_s", 5), ("end_s", 4)])
def test_a_buffer_that_ends_inside_a_number_is_refused(column, length):
    fault = refusal(message(**{column: b"\0" * length}))

    assert (fault.kind, fault.field) == ("wrong_type", f"requests.{column}")
    assert f"{length} bytes" in str(fault)
    assert "little-endian float" in str(fault)


# Records of which some values cannot be used


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_costs_only_itself(value):
    record, [fault] = decode(message(ttft_s=buffer(0.5, value, 0.25)))

    assert plain(record)["requests"]["ttft_s"] == [0.5, None, 0.25]
    assert (fault.kind, fault.field) == ("not_finite", "requests.ttft_s[1]")
    assert f"got {value!r}" in str(fault)
    assert "null for 'not measured'" in str(fault)


@pytest.mark.parametrize("form", [written, msgspec.msgpack.encode], ids=["json", "msgpack"])
def test_a_negative_duration_costs_only_itself(form):
    record, [fault] = decode(form(changed(GOOD, "requests.ttft_s", [-0.5, 0.25])))

    assert plain(record)["requests"]["ttft_s"] == [None, 0.25]
    assert plain(record)["requests"]["prompt_tokens"] == [812.0, 90.0]
    assert (fault.kind, fault.field) == ("negative", "requests.ttft_s[0]")
    assert "got -0.5; 0 or more is allowed; 1 values left out" in str(fault)


def test_a_score_may_be_negative():
    fields = changed(GOOD, "requests.semantic_score", [-0.5, -1.0])

    record, faults = decode(written(fields))

    assert record.requests.columns["semantic_score"].tolist() == [-0.5, -1.0]
    assert faults == ()


@pytest.mark.parametrize("away_s", [-3_600.0, 61.0, 1e12])
def test_a_row_far_outside_its_batch_is_left_out(away_s):
    fields = changed(GOOD, "requests.end_s", [T0, T0 + 0.5 + away_s])

    record, [fault] = decode(written(fields))

    assert plain(record)["requests"]["prompt_tokens"] == [812.0]
    assert record.requests.text["finish_reason"] == ["stop"]
    assert (fault.kind, fault.field) == ("time_outside_batch", "requests.end_s[1]")
    assert "within 60 s" in str(fault)
    assert "1 rows left out" in str(fault)


@settings(max_examples=50)
@given(offsets=st.lists(st.floats(-200.0, 200.0), min_size=1, max_size=6))
def test_a_batch_always_spans_its_rows(offsets):
    times = [T0 + offset for offset in offsets]
    fields = GOOD | {"requests": {"end_s": times, "ttft_s": [0.1] * len(times)}}

    record, _ = decode(written(fields))

    kept = record.requests.end_s
    assert all(record.start_s <= time_s <= record.end_s for time_s in kept.tolist())
    assert kept.size == sum(-60.0 <= offset <= 60.5 for offset in offsets)


BAD_GAUGES = {
    "words": ("many", "wrong_type"),
    "a list": ([1], "wrong_type"),
    "negative": (-1.0, "negative"),
    "not finite": (math.nan, "not_finite"),
}


@pytest.mark.parametrize(("value", "kind"), BAD_GAUGES.values(), ids=BAD_GAUGES)
def test_a_gauge_that_is_no_measurement_costs_only_itself(value, kind):
    record, [fault] = decode(msgspec.msgpack.encode(changed(GOOD, "gauges.running", value)))

    assert record.gauges == {"kv_usage": 0.41}
    assert (fault.kind, fault.field) == (kind, "gauges.running")
    assert f"got {value!r}" in str(fault)


def test_a_gpus_bad_reading_costs_only_itself():
    value = msgspec.msgpack.encode(GPUS | {"gpus": [{"power_w": math.inf, "uuid": "GPU-1"}]})

    record, [fault] = decode(value)

    assert record.gpus == ({"uuid": "GPU-1"},)
    assert (fault.kind, fault.field) == ("not_finite", "gpus[0].power_w")


# Whatever comes


SENT = [
    encode(record)
    for record in by_time(
        story(calm_minutes(0.2), engines=("e1",)), [tick(T0), change("deploy", T0, "e1")]
    )
    for encode in FORMS.values()
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


# What a cell says


def test_an_output_comes_back_as_it_was_sent():
    alert = Alert(
        id=digest("a", 1.5),
        event_time_s=T0,
        cell="m",
        fingerprint="f",
        name="LatencyDrift",
        labels={"alertname": "LatencyDrift"},
        state="firing",
        started_s=T0 - 60.0,
        annotations={"summary": "slow"},
    )

    assert decode_output(encode_output(alert)) == alert


@pytest.mark.parametrize("value", [b"", b"{}", b'{"type":"alert"}', b'{"type":"poem"}'])
def test_what_is_no_output_is_refused(value):
    with pytest.raises(MalformedRecord, match="not an output of DAOM") as caught:
        decode_output(value)

    assert caught.value.kind == "not_decodable"
