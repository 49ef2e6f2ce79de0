"""Bucket counts on the wire: both forms, and every fault by name."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.codec import decode, encode_json, encode_msgpack
from daom.events import Histogram, TelemetryBatch
from tests.daom.messages import GOOD, changed, refusal, written
from tests.daom.stories import T0, source

FORMS = {"json": encode_json, "msgpack": encode_msgpack}
TTFT = {"le_s": [0.1, 0.5, None], "counts": [3, 0, 1]}
COUNTED = GOOD | {"histograms": {"ttft_s": TTFT}}


@st.composite
def histograms(draw):
    edges = sorted(draw(st.sets(st.floats(1e-6, 1e6), min_size=1, max_size=8)))
    edges += draw(st.sampled_from([[], [math.inf]]))
    counts = st.lists(st.integers(0, 2**53), min_size=len(edges), max_size=len(edges))
    return Histogram(le_s=np.array(edges), counts=np.array(draw(counts), np.int64))


def batch(**found):
    return TelemetryBatch(source=source("e1", 1), start_s=T0, end_s=T0 + 10.0, histograms=found)


def as_lists(histogram):
    return histogram.le_s.tolist(), histogram.counts.tolist()


@pytest.mark.parametrize("encode", FORMS.values(), ids=FORMS)
@given(histogram=histograms())
def test_a_histogram_comes_back_as_it_was_sent(encode, histogram):
    record, faults = decode(encode(batch(ttft_s=histogram)))

    assert as_lists(record.histograms["ttft_s"]) == as_lists(histogram)
    assert faults == ()


@pytest.mark.parametrize("encode", FORMS.values(), ids=FORMS)
def test_a_batch_without_histograms_is_the_same_bytes_as_ever(encode):
    assert b"histograms" not in encode(batch())


def test_json_has_null_for_the_open_edge():
    histogram = Histogram(le_s=np.array([0.1, math.inf]), counts=np.array([2, 1]))

    sent = msgspec.json.decode(encode_json(batch(ttft_s=histogram)))

    assert sent["histograms"] == {"ttft_s": {"le_s": [0.1, None], "counts": [2, 1]}}


def test_the_example_of_the_documentation_is_read():
    record, faults = decode(written(COUNTED))

    assert as_lists(record.histograms["ttft_s"]) == ([0.1, 0.5, math.inf], [3, 0, 1])
    assert record.histograms["ttft_s"].total == 4
    assert faults == ()


LEFT_OUT = {
    "a negative count": ("counts", [3, -1, 1], "negative", "counts[1]"),
    "a part of a sample": ("counts", [3, 0.5, 1], "not_whole", "counts[1]"),
    "a count that is not measured": ("counts", [3, None, 1], "not_finite", "counts[1]"),
    "more than JSON can count": ("counts", [3, 2**60, 1], "not_finite", "counts[1]"),
    "edges that descend": ("le_s", [0.5, 0.1, None], "not_ascending", "le_s[1]"),
    "an edge twice": ("le_s", [0.5, 0.5, None], "not_ascending", "le_s[1]"),
    "an open edge in between": ("le_s", [0.1, None, 0.5], "not_finite", "le_s[1]"),
    "no edge": ("le_s", [0.0, 0.5, None], "negative", "le_s[0]"),
    "a negative edge": ("le_s", [-0.1, 0.5, None], "negative", "le_s[0]"),
}


@pytest.mark.parametrize(("column", "values", "kind", "field"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_value_that_cannot_be_costs_its_histogram_and_nothing_else(column, values, kind, field):
    sent = COUNTED | {"histograms": {"ttft_s": TTFT | {column: values}, "itl_s": TTFT}}

    record, (fault,) = decode(written(sent))

    assert (fault.kind, fault.field) == (kind, f"histograms.ttft_s.{field}")
    assert "left out" in str(fault)
    assert list(record.histograms) == ["itl_s"]
    assert record.requests.rows == 2


def test_buckets_without_a_finite_edge_say_nothing():
    _, (fault,) = decode(written(COUNTED | {"histograms": {"x": {"le_s": [None], "counts": [1]}}}))

    assert (fault.kind, fault.field) == ("not_finite", "histograms.x.le_s")


REFUSED = {
    "no map": ("histograms", [1], "wrong_type"),
    "a list": ("histograms.ttft_s", [1, 2], "wrong_type"),
    "no edges": ("histograms.ttft_s.le_s", None, "missing_field"),
    "no list": ("histograms.ttft_s.counts", 7, "wrong_type"),
    "words": ("histograms.ttft_s.counts", [3, "0", 1], "wrong_type"),
    "unequal lengths": ("histograms.ttft_s.counts", [3, 0], "columns_unequal"),
    "too many": ("histograms.ttft_s", {"le_s": [1] * 600, "counts": [1] * 600}, "too_large"),
}


@pytest.mark.parametrize(("path", "value", "kind"), REFUSED.values(), ids=REFUSED)
def test_a_histogram_of_another_form_condemns_its_message(path, value, kind):
    fault = refusal(written(changed(COUNTED, path, value)))

    assert fault.kind == kind
    assert fault.field.startswith("histograms")
