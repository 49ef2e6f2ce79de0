import gzip
import io
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.recordings import (
    Line,
    merge_by_time,
    read_csv,
    read_json,
    read_lines,
    record_time_s,
    write_recording,
)
from daom.codec import decode, encode_json
from daom.errors import MalformedRecord, MissingExtra, SinkError, SourceError
from daom.events import Source, TelemetryBatch, Tick

SUFFIXES = ["", ".gz", ".zst"]
NUMBERS = [b'{"n": %d}' % n for n in range(2000)]

lines = st.binary(min_size=1).filter(lambda value: b"\n" not in value and value.strip())


def values(path):
    return [line.value for line in read_lines(path)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recordings")


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(deadline=None)  # A disk that is busy is no fault.
@given(written=st.lists(lines))
def test_what_was_written_is_read_again(folder, suffix, written):
    path = folder / f"round-trip.jsonl{suffix}"

    count = write_recording(path, written)

    assert len(written) == count
    assert [Line(i, value) for i, value in enumerate(written, start=1)] == list(read_lines(path))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_records_give_the_same_bytes_under_any_name_and_at_any_time(tmp_path, suffix):
    first, second = tmp_path / f"first.jsonl{suffix}", tmp_path / f"second.jsonl{suffix}"

    write_recording(first, NUMBERS)
    write_recording(second, NUMBERS)

    assert first.read_bytes() == second.read_bytes()


def test_a_gzip_header_holds_no_name_and_no_time(tmp_path):
    path = tmp_path / "numbers.jsonl.gz"

    write_recording(path, NUMBERS)

    flags, modified_s = path.read_bytes()[3], path.read_bytes()[4:8]
    assert (flags, modified_s) == (0, b"\0\0\0\0")


def test_blank_lines_are_counted_but_skipped(tmp_path):
    path = tmp_path / "blank.jsonl"
    path.write_bytes(b"\n{}\n \t\r\n\n[]")

    assert [Line(2, b"{}"), Line(5, b"[]")] == list(read_lines(path))


def test_an_empty_recording_has_no_lines(tmp_path):
    path = tmp_path / "empty.jsonl"
    path.touch()

    assert list(read_lines(path)) == []


def test_a_dash_reads_the_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n[]\n")))

    assert values("-") == [b"{}", b"[]"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_members_appended_to_a_packed_recording_are_read_too(tmp_path, suffix):
    path = tmp_path / f"numbers.jsonl{suffix}"
    write_recording(path, NUMBERS)
    path.write_bytes(path.read_bytes() * 2)

    assert values(path) == NUMBERS * 2


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("missing_bytes", [1, 4, 500])
def test_a_cut_packed_recording_yields_its_whole_lines_and_then_says_so(
    tmp_path, suffix, missing_bytes
):
    path = tmp_path / f"cut.jsonl{suffix}"
    write_recording(path, [b"%d" % (n * 7919**3 % 2**40) for n in range(50_000)])
    whole = values(path)
    path.write_bytes(path.read_bytes()[:-missing_bytes])
    read = []

    with pytest.raises(SourceError, match=r"cut\.jsonl.*ends too early, after \d+ whole lines"):
        read.extend(line.value for line in read_lines(path))

    assert read
    assert whole[: len(read)] == read


def test_a_cut_plain_recording_yields_its_last_line_for_the_codec_to_judge(tmp_path):
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": ')

    assert values(path) == [b'{"n": 1}', b'{"n": ']


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_recording_that_is_not_packed_as_its_name_says_is_a_source_error(tmp_path, suffix):
    path = tmp_path / f"plain.jsonl{suffix}"
    path.write_bytes(b'{"n": 1}\n')

    with pytest.raises(SourceError, match=r"plain\.jsonl.*corrupt"):
        values(path)


def test_a_gzip_with_damaged_bytes_is_a_source_error(tmp_path):
    path = tmp_path / "damaged.jsonl.gz"
    packed = bytearray(gzip.compress(b"\n".join(NUMBERS)))
    packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(packed)

    with pytest.raises(SourceError, match=r"damaged\.jsonl\.gz: corrupt gzip"):
        values(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_recording_is_a_source_error(tmp_path, suffix):
    with pytest.raises(SourceError, match=r"absent\.jsonl.*No such file"):
        values(tmp_path / f"absent.jsonl{suffix}")


def test_a_folder_is_no_recording(tmp_path):
    with pytest.raises(SourceError, match="directory"):
        values(tmp_path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_line_beyond_the_limit_is_cut_and_its_rest_skipped(tmp_path, suffix):
    path = tmp_path / f"long.jsonl{suffix}"
    write_recording(path, [b"a" * 8, b"b" * 9, b"c" * 17, b"d" * 18, b"e" * 30, b"f"])

    read = list(read_lines(path, max_line_bytes=8))

    expected = [b"a" * 8, b"b" * 8, b"c" * 8, b"d" * 8, b"e" * 8, b"f"]
    assert list(map(Line, range(1, 7), expected)) == read


def test_the_codec_refuses_a_cut_line_by_its_size(tmp_path):
    path = tmp_path / "long.jsonl.gz"
    write_recording(path, [b'{"schema": "' + b"x" * 17 * 2**20 + b'"}', b"{}"])

    (_, cut), (number, _) = read_lines(path)

    assert number == 2
    with pytest.raises(MalformedRecord, match="bytes") as refused:
        decode(cut)
    assert refused.value.kind == "too_large"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_write_that_fails_leaves_the_old_recording_and_nothing_beside_it(tmp_path, suffix):
    path = tmp_path / f"kept.jsonl{suffix}"
    write_recording(path, [b"old"])

    def failing():
        yield b"new"
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_recording(path, failing())

    assert values(path) == [b"old"]
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [b"", b" \t", b"a\nb"])
def test_a_value_that_is_no_line_is_refused(tmp_path, value):
    with pytest.raises(ValueError, match="neither blank nor broken"):
        write_recording(tmp_path / "bad.jsonl", [value])


def test_a_folder_that_is_not_there_cannot_be_written_to(tmp_path):
    with pytest.raises(SinkError, match=r"x\.jsonl: No such file"):
        write_recording(tmp_path / "absent" / "x.jsonl", [b"{}"])


@pytest.mark.parametrize("use", [values, lambda path: write_recording(path, [b"{}"])])
def test_without_zstandard_the_extra_is_named(tmp_path, monkeypatch, use):
    path = tmp_path / "x.jsonl.zst"
    path.touch()
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(MissingExtra, match=r"daom\[cli\]"):
        use(path)


def test_streams_are_merged_by_the_time_their_records_were_complete():
    source = Source(model="m")
    ticks = [Tick(source=source, time_s=time_s) for time_s in (1.0, 3.0, 4.0)]
    batches = [TelemetryBatch(source=source, start_s=0.0, end_s=end_s) for end_s in (2.0, 3.0)]

    merged = list(merge_by_time([batches, ticks]))

    assert [record_time_s(record) for record in merged] == [1.0, 2.0, 3.0, 3.0, 4.0]
    assert batches[1] is merged[2]


def test_records_survive_a_recording(tmp_path):
    path = tmp_path / "ticks.jsonl.gz"
    ticks = [Tick(source=Source(model="m"), time_s=float(n)) for n in range(5)]

    write_recording(path, map(encode_json, ticks))

    assert ticks == [decode(value).record for value in values(path)]


@pytest.mark.parametrize("read", [read_json, read_csv])
@pytest.mark.parametrize("content", [None, b"", b"a,b\n1,x\n", b"a,b\n1\n"])
def test_a_foreign_log_that_cannot_be_read_is_a_source_error(tmp_path, read, content):
    path = tmp_path / "foreign.log"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(SourceError, match=r"foreign\.log: "):
        read(path)
