"""A record of a log in a recording: a replay hears the same, and refuses the same."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.codec import decode, encode_json, encode_msgpack
from daom.config import Config
from daom.fold import Fold
from daom.logged import line_of, read_line
from daom.presets import cell_settings
from daom.replay import Sourced
from tests.bad_lines import with_bad_lines
from tests.daom.messages import CHANGE, GOOD, GPUS, TICK, buffer, changed, message, written
from tests.daom.stories import MODEL, T0, calm, plain, story

MAX_BYTES = 2**20
LOGGED_S = T0 + 1.25


def again(sourced):
    """What a recording of ``sourced`` holds."""
    line = line_of(sourced, MAX_BYTES)
    assert b"\n" not in line
    assert line.strip()
    return read_line("w", line)


def folded(sourced):
    """What a cell hears of it, or why it does not."""
    fold = Fold(cell_settings(Config()), MAX_BYTES)
    done = fold.take(sourced.value, sourced.key, sourced.logged_s)
    heard = plain(done.record)
    if isinstance(heard, dict):
        heard |= {"source": None}
    return heard, [(f.kind, str(f)) for f in done.faults], list(fold.cells)


@pytest.mark.parametrize("key", ["m", "m/3", "m/x", "other", "", "m/٣"])
@pytest.mark.parametrize(
    "value",
    [
        written(GOOD),
        written(GOOD).replace(b"{", b"\n {\n", 1),
        written(changed(GOOD, "requests.ttft_s", [-1.0, 0.5])),
        written(changed(GOOD, "schema", "TelemetryBatch/2")),
        written(changed(GOOD, "requests.ttft_s", [0.1])),
        message(end_s=buffer(T0, dtype="<f8"), ttft_s=buffer(0.25)),
        message(end_s=buffer(T0, dtype="<f8"), ttft_s=buffer(float("nan"))),
        b"junk",
        b"\xff\xfe",
        b"",
        b" ",
        None,
        b"x" * (MAX_BYTES + 1),
    ],
)
def test_a_recording_says_what_the_log_says_whatever_it_is(key, value):
    sourced = Sourced("w", value, key, LOGGED_S)

    assert folded(again(sourced)) == folded(sourced)


@given(value=st.binary(), key=st.text(), logged_ms=st.integers(-1, 2**45))
def test_any_bytes_under_any_key_come_back(value, key, logged_ms):
    sourced = Sourced("w", value, key, logged_ms / 1_000.0)

    assert folded(again(sourced)) == folded(sourced)


def test_what_can_be_used_is_written_as_the_contract_has_it():
    record = story(calm(1))[0]

    line = line_of(Sourced("w", encode_msgpack(record), f"{MODEL}/2", LOGGED_S), MAX_BYTES)

    fields = msgspec.json.decode(line)
    assert fields["schema"] == "TelemetryBatch/1"
    assert fields["logged_s"] == LOGGED_S
    assert fields["source"]["cell"] == f"{MODEL}/2"
    assert fields["requests"] == msgspec.json.decode(encode_json(record))["requests"]


def test_a_log_time_that_the_record_says_itself_wins():
    value = written(GOOD | {"logged_s": T0})

    assert decode(line_of(Sourced("w", value, "m", LOGGED_S), MAX_BYTES)).record.logged_s == T0


@pytest.mark.parametrize("fields", [TICK, CHANGE, GPUS])
def test_every_kind_of_record_comes_back(fields):
    sourced = Sourced("w", written(fields), "m", LOGGED_S)

    assert folded(again(sourced)) == folded(sourced)
    assert folded(sourced)[0] is not None


def test_a_record_that_would_be_too_long_as_json_stays_as_it_came():
    packed = encode_msgpack(story(calm(1))[0])
    sourced = Sourced("w", packed, MODEL, LOGGED_S)

    line = line_of(sourced, len(packed))

    assert read_line("w", line) == sourced
    assert decode(read_line("w", line).value, max_bytes=len(packed)).faults == ()


def test_lines_of_a_recording_stay_as_they_are():
    for line, _ in with_bad_lines():
        assert line_of(read_line("w", line.value), MAX_BYTES) == line.value


@pytest.mark.parametrize("rest", [b'"base64":"?"}', b'"cell":7}', b""])
def test_a_raw_line_that_is_none_is_for_the_codec_to_refuse(rest):
    line = b'{"schema":"Raw/1",' + rest

    assert read_line("w", line) == Sourced("w", line)
