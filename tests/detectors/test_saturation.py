"""Caps: what hides a P99, and what only looks as if it did."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.panes import HistogramPane, ValuesPane
from detectors.protocol import DriftScore
from detectors.saturation import SaturationWatch, Top, TopPane

values = st.lists(st.sampled_from([0.1, 0.2, 0.5, 1.0, 2.0, float("nan")]), max_size=12)


def column(numbers):
    return np.array(numbers, np.float32)


def rows_of(numbers):
    return column(numbers), np.zeros(len(numbers)), None


def expected_top(numbers):
    measured = column(numbers)[~np.isnan(column(numbers))]
    found, counts = np.unique(measured, return_counts=True)
    pairs = [x for pair in zip(found[::-1][:2], counts[::-1][:2], strict=True) for x in pair]
    return Top(measured.size, *map(float, pairs))


@given(numbers=values)
def test_the_top_is_the_two_largest_values_and_how_often_each_occurs(numbers):
    assert Top.of(column(numbers)) == expected_top(numbers)


@given(parts=st.lists(values, max_size=5))
def test_the_top_of_parts_is_that_of_all_of_them(parts):
    together = Top.of_all([Top.of(column(part)) for part in parts])

    assert together == expected_top([value for part in parts for value in part])


CAPS = {
    # samples, value, equal, below, below_equal
    "a cap": (Top(1_000, 60.0, 50, 59.7, 1), True),
    "a hundredth": (Top(1_000, 60.0, 10, 59.7, 1), True),
    "less than a hundredth": (Top(1_000, 60.0, 9, 59.7, 1), False),
    "too few": (Top(100, 60.0, 3, 59.7, 1), False),
    "a coarse clock": (Top(1_000, 0.031, 20, 0.030, 25), False),
    "whole cycles": (Top(900, 0.3, 300, 0.2, 300), False),
    "a constant": (Top(1_000, 1.0, 1_000), False),
    "nothing": (Top(), False),
}


@pytest.mark.parametrize(("top", "is_cap"), CAPS.values(), ids=CAPS)
def test_a_cap_is_a_largest_value_that_many_share_and_that_stands_out(top, is_cap):
    assert top.is_cap == is_cap


@given(parts=st.lists(values, max_size=5), cut=st.integers(0, 5))
def test_a_pane_that_is_checkpointed_half_full_knows_the_same_top(parts, cut):
    pane = TopPane(HistogramPane())
    for part in parts[:cut]:
        pane.add(*rows_of(part))
    restored = TopPane(HistogramPane())
    restored.restore(msgspec.convert(pane.snapshot(), tuple))
    for part in parts[cut:]:
        restored.add(*rows_of(part))

    assert restored.top() == expected_top([value for part in parts for value in part])


def test_panes_merge():
    one, other = TopPane(ValuesPane()), TopPane(ValuesPane())
    one.add(*rows_of([1.0, 2.0]))
    other.add(*rows_of([2.0, 0.5]))

    one.merge(other)

    assert (one.top(), one.samples, one.inner.samples) == (Top(4, 2.0, 2, 1.0, 1), 4, 4)


@given(numbers=values, parts=st.integers(1, 5))
def test_a_pane_is_at_its_top_whatever_batches_its_samples_came_in(numbers, parts):
    pane = TopPane(ValuesPane())
    for part in np.array_split(column(numbers), parts):
        pane.add(*rows_of(part))

    assert pane.top() == expected_top(numbers)


class Always:
    """A detector that finds the same whatever it sees, of as many samples as it is told."""

    state_type = int
    kind = "always"

    def __init__(self, samples=0):
        self._samples = samples

    def initial(self):
        return self._samples

    def new_pane(self):
        return HistogramPane()

    def update(self, state, pane, end_s):
        assert isinstance(pane, HistogramPane)
        return [DriftScore(end_s=end_s, samples=state, drifting=False, evidence={"a": 1.0})]


def watched(panes, samples=0):
    """The scores of ``panes``, and how many tops are kept in the end."""
    watch = SaturationWatch(Always(samples))
    state, found = watch.initial(), []
    for number, numbers in enumerate(panes):
        pane = watch.new_pane()
        pane.add(*rows_of(numbers))
        found += watch.update(state, pane, 10.0 * number)
    return found, len(state.tops)


def smooth(seed, rows=100):
    return np.random.default_rng(seed).lognormal(0.0, 1.0, rows)


def test_scores_say_where_a_cap_hides_the_tail_and_are_else_as_they_were():
    clear = [smooth(seed) for seed in range(10)]
    clipped = [np.minimum(smooth(seed), 4.0) for seed in range(10)]

    calm, _ = watched(clear)
    [*_, last], _ = watched(clipped)

    assert all(score.evidence == {"a": 1.0} for score in calm)
    assert last.evidence["saturated_at_s"] == 4.0
    assert last.evidence["saturated_share"] == pytest.approx(0.08, abs=0.03)
    assert (last.drifting, last.evidence["a"]) == (False, 1.0)


def test_a_cap_is_forgotten_with_the_samples_that_showed_it():
    clipped = [np.minimum(smooth(seed), 4.0) for seed in range(10)]
    higher = [np.minimum(smooth(seed), 3.9) * 0.5 + smooth(seed, 100) * 1e-3 for seed in range(30)]

    found, kept = watched([*clipped, *higher])

    assert "saturated_share" in found[9].evidence
    assert "saturated_share" not in found[-1].evidence
    assert kept == 5


def test_as_many_samples_are_asked_as_the_score_is_about():
    _, kept = watched([smooth(seed) for seed in range(40)], samples=3_000)

    assert kept == 30
