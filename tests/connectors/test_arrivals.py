import pytest

from connectors.arrivals import Arrival, read_arrivals
from connectors.recordings import write_recording
from daom.errors import SourceError
from tests.fleet import LIGHT

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:05.5000000,1,0
"""
MOONCAKE = """\
{"timestamp": 500, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}

{"timestamp": 3500, "input_length": 10, "output_length": 1, "hash_ids": [0]}
"""
BATCH = (
    b'{"schema": "TelemetryBatch/1", "source": {"model": "m"}, "requests": '
    b'{"end_s": [1000.0, 1001.0, 1002.0], "e2e_s": [4.0, 1.0, null], '
    b'"prompt_tokens": [7, 8, 9], "output_tokens": [1, null, 3]}}'
)


@pytest.fixture
def trace(tmp_path):
    def write(text):
        path = tmp_path / "trace"
        path.write_text(text)
        return path

    return write


def test_a_trace_of_azures_is_in_order_and_begins_at_zero(trace):
    first, second, third = read_arrivals(trace(AZURE))

    assert first == Arrival(0.0, 4808, 10)
    assert second == Arrival(pytest.approx(0.052, abs=1e-6), 3180, 8)
    assert third[1:] == (1, 1)


def test_a_trace_of_mooncakes_is_in_seconds(trace):
    assert read_arrivals(trace(MOONCAKE)) == [Arrival(0.0, 6758, 500), Arrival(3.0, 10, 1)]


def test_a_request_of_a_recording_came_when_it_began(tmp_path):
    path = tmp_path / "own.jsonl.gz"
    write_recording(path, [b'{"schema": "broken"}', BATCH])

    assert read_arrivals(path) == [Arrival(0.0, 7, 1), Arrival(6.0, 9, 3)]


def test_a_limit_takes_the_first(trace):
    whole = read_arrivals(trace(AZURE))

    assert read_arrivals(trace(AZURE), 2) == whole[:2]


def test_a_recording_that_does_not_tell_both_lengths_holds_no_arrivals():
    with pytest.raises(SourceError, match="a recording with prompt_tokens and output_tokens"):
        read_arrivals(LIGHT)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "got columns"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no arrivals"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,2\n", r":2: got 'noon', '1', '2'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,1\n", ":2: got"),
        ('{"timestamp": 1}\n', ":1: KeyError"),
        ('{"timestamp": 1, "input_length": null, "output_length": 1}\n', ":1: TypeError"),
        ("{\n", ":1: "),
    ],
)
def test_what_holds_no_arrivals_is_refused(trace, text, why):
    with pytest.raises(SourceError, match=why):
        read_arrivals(trace(text))


@pytest.mark.parametrize(
    ("arrival", "within", "fitting"),
    [
        ((4808, 10), None, (4808, 10)),
        ((4808, 10), 1024, (1014, 10)),
        ((10, 4808), 1024, (10, 512)),
        ((4808, 4808), 1024, (512, 512)),
        ((5, 5), 1024, (5, 5)),
        ((5, 5), 2, (1, 1)),
    ],
)
def test_a_request_is_cut_to_what_the_model_holds(arrival, within, fitting):
    assert Arrival(0.0, *arrival).within(within)[1:] == fitting
