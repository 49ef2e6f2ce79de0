"""Bytes to records: both forms say the same, and a bad value costs only itself."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daom.codec import (
    MAX_BATCH_SPAN_S,
    decode,
    decode_output,
    encode_json,
    encode_msgpack,
    encode_output,
)
from daom.errors import MalformedRecord
from daom.events import Alert, GpuSample, Source, TelemetryBatch, digest
from tests.daom.messages import (
    CHANGE,
    GOOD,
    GPUS,
    MISSING,
    TICK,
    buffer,
    changed,
    message,
    refusal,
    written,
)
from tests.daom.stories import T0, change, plain, table, tick

FORMS = {"json": encode_json, "msgpack": encode_msgpack}
SLOW_DATA = settings(suppress_health_check=[HealthCheck.too_slow])

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
        gauges=draw(st.dictionaries(words, st.floats(0.0, 1e30), max_size=3)),
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


# Records of which some values cannot be used


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
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


@pytest.mark.parametrize("back_s", [MAX_BATCH_SPAN_S + 1.0, 86_400.0, T0])
def test_a_start_far_before_the_end_is_left_out(back_s):
    record, [fault] = decode(written(changed(GOOD, "start_s", T0 + 0.5 - back_s)))

    assert (record.start_s, record.end_s) == (T0 + 0.1, T0 + 0.5)
    assert record.requests.rows == 2
    assert (fault.kind, fault.field) == ("time_out_of_range", "start_s")
    assert f"{back_s:.0f} s before end_s; at most 600 s are allowed; left out" in str(fault)


def test_a_start_as_far_before_the_end_as_is_allowed_is_kept():
    record, faults = decode(written(changed(GOOD, "start_s", T0 + 0.5 - MAX_BATCH_SPAN_S)))

    assert record.start_s == T0 + 0.5 - MAX_BATCH_SPAN_S
    assert faults == ()


def timed_by_rows(*times):
    """A batch that names no time of its own, in MessagePack."""
    rows = {"end_s": list(times), "ttft_s": [0.1] * len(times)}
    fields = {"schema": "TelemetryBatch/1", "source": {"model": "m"}, "requests": rows}
    return msgspec.msgpack.encode(fields)


IMPOSSIBLE_TIMES = [None, math.nan, math.inf, -math.inf, 1e300, -5.0, 1_000.0 * T0]


@pytest.mark.parametrize("time_s", IMPOSSIBLE_TIMES)
def test_rows_without_a_batchs_time_tell_it_whatever_one_of_them_claims(time_s):
    record, [fault] = decode(timed_by_rows(T0, time_s, T0 + 1.0))

    assert (record.start_s, record.end_s) == (T0, T0 + 1.0)
    assert record.requests.end_s.tolist() == [T0, T0 + 1.0]
    assert (fault.kind, fault.field) == ("time_outside_batch", "requests.end_s[1]")
    assert "1 rows left out" in str(fault)


@pytest.mark.parametrize("time_s", IMPOSSIBLE_TIMES)
def test_rows_of_which_no_time_is_possible_tell_none(time_s):
    fault = refusal(timed_by_rows(time_s, time_s))

    assert (fault.kind, fault.field) == ("missing_field", "end_s")


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


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e31])
def test_a_gauge_beyond_measure_costs_only_itself(value):
    record, [fault] = decode(written(changed(GOOD, "gauges.running", value)))

    assert record.gauges == {"kv_usage": 0.41}
    assert (fault.kind, fault.field) == ("not_finite", "gauges.running")
    assert "a number up to 1e+30 is needed" in str(fault)


def test_a_gpus_reading_beyond_measure_costs_only_itself():
    record, [fault] = decode(written(GPUS | {"gpus": [{"power_w": 10**400, "uuid": "GPU-1"}]}))

    assert record.gpus == ({"uuid": "GPU-1"},)
    assert (fault.kind, fault.field) == ("not_finite", "gpus[0].power_w")


def test_a_gpus_bad_reading_costs_only_itself():
    value = msgspec.msgpack.encode(GPUS | {"gpus": [{"power_w": math.inf, "uuid": "GPU-1"}]})

    record, [fault] = decode(value)

    assert record.gpus == ({"uuid": "GPU-1"},)
    assert (fault.kind, fault.field) == ("not_finite", "gpus[0].power_w")


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
