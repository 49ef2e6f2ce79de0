"""Within, beyond or undecided; and what it takes to decide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.blocks import Blocks
from detectors.comparison import contrasts
from detectors.decision import Decision, Tolerance, decide

MEAN, P50, P95, P99 = range(4)


def pair(larger=0.0, n=3_000, seed=0, rate=10.0):
    """Contrasts of two streams, the second ``larger`` by a share."""
    rng = np.random.default_rng(seed)
    sides = []
    for factor in (1.0, 1.0 + larger):
        blocks = Blocks()
        values = factor * rng.lognormal(-3.0, 0.4, n)
        blocks.add(values.astype(np.float32), 1.7e9 + np.arange(n) / rate, None)
        sides.append(blocks.counted())
    found = contrasts(*sides, (0.5, 0.95, 0.99))
    return [found.mean, *found.quantiles]


def verdict(contrast, tolerance, **settings):
    return decide([(contrast, tolerance)], **settings)[0].verdict


def up(by):
    return Tolerance(by, None, relative=True)


def both(by):
    return Tolerance(by, by, relative=True)


def test_a_difference_is_within_beyond_or_neither():
    slower = pair(larger=0.2)[P95]

    assert verdict(slower, up(0.4)) == "within"
    assert verdict(slower, up(0.05)) == "beyond"
    assert verdict(slower, up(0.2)) == "undecided"


def test_what_is_faster_is_within_where_only_slower_counts():
    faster = pair(larger=-0.2)[P95]

    assert verdict(faster, up(0.05)) == "within"
    assert verdict(faster, both(0.05)) == "beyond"
    assert verdict(faster, Tolerance(None, 0.05, relative=True)) == "beyond"
    assert verdict(faster, Tolerance(None, 0.5, relative=True)) == "within"


def test_a_share_is_that_of_a_and_a_number_is_in_its_unit():
    contrast = pair(larger=0.2)[MEAN]
    by = contrast.a.value

    for share, expected in ((0.4, "within"), (0.05, "beyond")):
        assert verdict(contrast, up(share)) == expected
        assert verdict(contrast, Tolerance(share * by, None)) == expected


def test_a_share_of_more_than_everything_may_be_lost():
    assert verdict(pair(larger=-0.9)[MEAN], Tolerance(None, 1.5, relative=True)) == "within"
    assert verdict(pair(larger=-0.9)[P95], Tolerance(None, 1.0, relative=True)) == "within"


def test_among_many_one_must_be_surer_to_be_beyond_but_not_to_be_within():
    calm = pair(seed=1)
    contrast = pair(larger=0.2)[MEAN]
    limits = [contrast.interval(level, 1.0)[0] / contrast.a.value for level in (0.95, 0.998)]
    doubtful = up(sum(limits) / 2.0)
    others = [(calm[MEAN], up(0.5))] * 24

    assert verdict(contrast, doubtful) == "beyond"
    assert decide([(contrast, doubtful), *others])[0].verdict == "undecided"
    assert {d.verdict for d in decide([(contrast, up(0.5)), *others])} == {"within"}


def test_by_holm_s_steps_what_is_surely_beyond_leaves_room_for_the_rest():
    contrast = pair(larger=0.2)[MEAN]
    level = [contrast.interval(1.0 - 0.05 / m)[0] / contrast.a.value for m in (1, 2)]
    doubtful = up(sum(level) / 2.0)

    surely = decide([(contrast, doubtful), (contrast, up(0.01))])

    assert [d.verdict for d in surely] == ["beyond", "beyond"]


def test_what_is_undecided_says_how_much_more_it_takes():
    """A tolerance half as wide takes four times as much."""
    factors = [verdict_of(pair(n=600)[P95], up(by)).factor for by in (0.03, 0.015)]

    assert factors[0] > 1.0
    assert factors[1] == pytest.approx(4.0 * factors[0], rel=0.25)


def verdict_of(contrast, tolerance):
    return decide([(contrast, tolerance)])[0]


def test_a_quantile_of_too_few_samples_says_how_many_it_takes():
    assert verdict_of(pair(n=200)[P99], up(0.1)).factor > 5.0


def test_a_difference_next_to_the_tolerance_is_told_by_much_more():
    contrast = pair(n=20_000)[MEAN]
    at = contrast.difference / contrast.a.value
    found = verdict_of(pair(larger=0.1, n=20_000)[MEAN], up(0.1 + at + 0.001))

    assert found.verdict == "undecided"
    assert found.factor is None
    assert found.seeming is None or found.seeming > 50.0


def test_a_difference_that_seems_far_beyond_seems_to_take_less():
    found = verdict_of(pair(larger=0.08, n=300)[P95], up(0.002))

    assert found.verdict == "undecided"
    assert found.seeming < 100.0 < found.factor


def test_a_tolerance_finer_than_a_bin_says_so():
    assert verdict_of(pair(n=600)[P95], up(1e-5)) == Decision("undecided", too_fine=True)


def test_too_few_blocks_are_undecided_and_nothing_is_known():
    assert verdict_of(pair(n=2)[P95], up(0.5)) == Decision("undecided", known=False)


@given(
    larger=st.sampled_from([-0.5, 0.0, 0.03, 1.0]),
    n=st.sampled_from([1, 30, 700]),
    statistic=st.integers(0, 3),
    increase=st.sampled_from([None, 1e-9, 0.02, 5.0]),
    decrease=st.sampled_from([None, 1e-9, 0.02, 1.0]),
    relative=st.booleans(),
)
def test_whatever_is_asked_there_is_an_answer(larger, n, statistic, increase, decrease, relative):
    found = verdict_of(pair(larger, n)[statistic], Tolerance(increase, decrease, relative))

    assert found.verdict in {"within", "beyond", "undecided"}
    assert all(factor is None or factor >= 1.0 for factor in (found.factor, found.seeming))
