"""Bucket counts: what they let a detector say, and what they do not."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.buckets import BucketPane, BucketState, BucketWatch, Resolution, measured_alike
from detectors.histogram import N_BINS, quantile
from detectors.kl import KlDetector
from detectors.panes import HistogramPane
from detectors.protocol import DriftScore
from detectors.saturation import SaturationWatch
from tests.detectors.feeding import PANE_S, lognormal

INF = math.inf
EDGES = np.array([0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, INF])
"""Much like those of vLLM's time to first token."""
BUCKETS = [*zip([0.0, *EDGES[:-1]], EDGES, strict=True)]

wide_edges = st.lists(st.floats(1.1, 4.0), min_size=1, max_size=12).map(
    lambda factors: np.array([*1e-3 * np.cumprod(factors), INF])
)


def bucketed(values, edges=EDGES):
    """Samples in each bucket; the last edge takes what is beyond all."""
    return np.bincount(np.searchsorted(edges, values), minlength=edges.size).astype(np.int64)


def new_pane():
    return BucketPane(HistogramPane(128.0))


def pane_of(counts, edges=EDGES):
    pane = new_pane()
    pane.add_buckets(edges, np.asarray(counts, np.int64))
    return pane


def binned(counts):
    dense = np.zeros(N_BINS)
    dense[counts.bins] = counts.counts
    return dense


def as_lists(pane):
    counts = pane.counts()
    return counts.cells.tolist(), counts.counts.tolist(), pane.buckets, pane.samples


# Panes


@given(edges=wide_edges, data=st.data())
def test_a_bucket_is_one_bin_that_no_other_shares(edges, data):
    """Unless buckets are narrower than bins, which are 3 % wide."""
    counts = data.draw(st.lists(st.integers(0, 9), min_size=edges.size, max_size=edges.size))

    pane = pane_of(counts, edges)

    assert pane.counts().counts.tolist() == [count for count in counts if count]


@given(edges=wide_edges, data=st.data())
def test_a_bucket_is_known_by_its_bin(edges, data):
    number = data.draw(st.integers(0, edges.size - 1))
    counts = np.zeros(edges.size, np.int64)
    counts[number] = data.draw(st.integers(1, 9))
    pane = pane_of(counts, edges)

    value_s = quantile(binned(pane.counts()), data.draw(st.floats(0.01, 1.0)))

    assert Resolution(pane.buckets, counts.tolist()).bucket(value_s) == pane.buckets[number]


def test_a_million_samples_cost_no_more_than_one():
    pane = pane_of([0] * 6 + [1_000_000, 2_000_000] + [0] * 4)

    assert pane.samples == 3_000_000
    assert pane.counts().counts.tolist() == [1e6, 2e6]


def test_counts_add_up_with_those_of_other_panes_and_with_rows():
    pane, other = pane_of(bucketed([0.3, 0.4, 0.6])), pane_of(bucketed([0.3]))
    other.add(np.array([0.3, np.nan], np.float32), np.zeros(2), None)

    pane.merge(other)

    assert pane.counts().total == 5
    assert (pane.samples, pane.bucketed) == (5, 4)
    assert pane.buckets == BUCKETS


def test_a_pane_comes_back_from_its_snapshot():
    pane = pane_of(bucketed([0.3, 0.6, 99.0]))
    restored = new_pane()

    restored.restore(pane.snapshot())

    assert as_lists(restored) == as_lists(pane)


# What may be said


def limited(values, **fields):
    """A score of ``values`` after the buckets have had their say."""
    counts = bucketed(values)
    p99_s = quantile(binned(pane_of(counts).counts()), 0.99)
    score = DriftScore(end_s=0.0, samples=len(values), drifting=False, p99_s=p99_s, **fields)
    return Resolution(BUCKETS, counts.tolist()).limit(score)


@given(values=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=200))
def test_p99_is_the_upper_edge_of_its_bucket_and_nothing_in_between(values):
    p99_s = float(np.quantile(values, 0.99, method="inverted_cdf"))

    score = limited(values)

    assert score.p99_s in EDGES
    low, high = score.evidence["bucket_from_s"], score.evidence["bucket_to_s"]
    assert low <= p99_s <= high == score.p99_s


def test_how_wide_its_bucket_is_stands_in_the_evidence():
    assert limited([0.6] * 100).evidence["bucket_ratio"] == 1.5
    assert "bucket_ratio" not in limited([0.0005] * 100).evidence


def test_beyond_the_last_edge_p99_is_that_or_more():
    score = limited([0.3] * 95 + [60.0] * 5)

    assert score.p99_s == 5.0
    assert score.evidence["saturated_at_s"] == 5.0
    assert score.evidence["saturated_share"] == pytest.approx(0.05)
    assert "bucket_to_s" not in score.evidence


def test_a_shift_within_one_bucket_cannot_be_seen():
    assert limited([0.51] * 100) == limited([0.74] * 100)


def test_what_buckets_cannot_tell_from_a_workload_is_mixed():
    assert limited([0.3], attribution="service").attribution == "mixed"
    assert limited([0.3], attribution="none").attribution == "none"


# A stream


def quick():
    return BucketWatch(
        SaturationWatch(KlDetector(strata_base=128.0, pane_s=PANE_S, false_alarm_interval_s=1e6))
    )


def said(panes, detector=None, state=None):
    """What a detector says of panes."""
    detector = detector or quick()
    state = detector.initial() if state is None else state
    scores = []
    for number, pane in enumerate(panes):
        scores += detector.update(state, pane(detector), (number + 1) * PANE_S)
    return scores, state


def counted(rng, panes, factor=1.0, edges=EDGES):
    def pane(detector):
        made = detector.new_pane()
        made.add_buckets(edges, bucketed(lognormal(rng, 60, factor), edges))
        return made

    return [pane] * panes


def in_rows(rng, panes):
    def pane(detector):
        made = detector.new_pane()
        made.add(lognormal(rng).astype(np.float32), np.zeros(50), None)
        return made

    return [pane] * panes


def test_forty_percent_are_seen_and_a_stationary_stream_is_calm():
    rng = np.random.default_rng(5)

    scores, _ = said(counted(rng, 200) + counted(rng, 40, 1.4))

    before, after = scores[:200], scores[200:]
    assert not any(score.drifting for score in before)
    assert after[-1].drifting
    assert after[-1].direction == "slower"
    assert 0.2 < after[-1].slowdown < 0.8


def test_many_samples_in_one_bucket_are_no_cap():
    scores, _ = said(counted(np.random.default_rng(5), 100))

    assert not any("saturated_share" in score.evidence for score in scores)


def test_other_buckets_or_rows_begin_anew():
    rng = np.random.default_rng(5)
    finer = np.array([*np.geomspace(0.01, 10.0, 40), INF])
    first, state = said(counted(rng, 100))

    then, state = said(counted(rng, 100, edges=finer), state=state)
    at_last, state = said(in_rows(rng, 100), state=state)

    assert first[-1].drifting is False
    for scores in (then, at_last):
        assert scores[0].why == "warming up"
        assert not any(score.drifting for score in scores)
        assert scores[-1].drifting is False
    assert state.has_rows
    assert len(state.buckets) == len(EDGES) + len(finer)


def test_rows_are_judged_as_without_the_watch():
    plain = SaturationWatch(KlDetector(strata_base=128.0, false_alarm_interval_s=1e6))

    watched, _ = said(in_rows(np.random.default_rng(3), 90))
    alone, _ = said(in_rows(np.random.default_rng(3), 90), detector=plain)

    assert watched == alone


def test_a_state_comes_back_from_plain_data():
    _, state = said(counted(np.random.default_rng(5), 5))
    bare = BucketState(None, state.buckets, state.weights, state.has_rows)

    sent = msgspec.msgpack.encode(bare)

    assert msgspec.msgpack.decode(sent, type=BucketState[None]) == bare


def test_only_series_that_are_measured_alike_are_compared():
    rows, same = BucketState(None), BucketState(None, BUCKETS)
    other = BucketState(None, BUCKETS[:4])

    assert measured_alike({"a": same, "b": same}) == {"a", "b"}
    assert measured_alike({"a": rows, "b": rows, "c": same}) == {"a", "b"}
    assert measured_alike({"a": same, "b": other}) == set()
    assert measured_alike({"a": object(), "b": object()}) == {"a", "b"}


def test_edges_that_are_others_in_every_batch_do_not_pile_up():
    """In one pane, nor from pane to pane."""
    watch = BucketWatch(KlDetector())
    state, pane = watch.initial(), watch.new_pane()
    for number in range(20):
        edges = np.arange(1.0, 513.0) + number / 32.0
        pane.add_buckets(edges, np.ones(512, np.int64))
        only = watch.new_pane()
        only.add_buckets(edges, np.ones(512, np.int64))
        watch.update(state, only, 10.0 * number, series=1)

    assert (len(pane.buckets), len(state.buckets)) == (4_096, 4_096)
    assert pane.samples == 20 * 512, "samples are not forgotten"
