"""Ranks among a reference: uniform if nothing has changed, whatever the distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.histogram import SparseCounts
from detectors.panes import HistogramPane
from detectors.partition import MIN_KNOWN_SAMPLES
from detectors.ranks import (
    ABOVE,
    BODY,
    EXPECTED,
    INSIDE,
    MIX,
    N_SCORES,
    SAMPLES,
    SPREAD,
    TAILS,
    rank_among,
)

FEW = settings(max_examples=40, derandomize=True, deadline=None)
BASE = 32.0

DISTRIBUTIONS = {
    "lognormal": lambda rng, n: rng.lognormal(-1.0, 0.5, n),
    "lognormal, wide": lambda rng, n: rng.lognormal(0.0, 2.0, n),
    "exponential": lambda rng, n: rng.exponential(0.02, n),
    "pareto": lambda rng, n: 0.01 * (1.0 + rng.pareto(1.1, n)),
    "bimodal": lambda rng, n: np.where(rng.random(n) < 0.5, 0.02, 2.0) * rng.lognormal(0, 0.3, n),
}
every_distribution = pytest.mark.parametrize("draw", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)


def counts_of(values, workload=None):
    pane = HistogramPane(BASE)
    tokens = np.full(len(values), 100.0) if workload is None else workload
    pane.add(np.asarray(values, np.float32), np.zeros(len(values)), np.asarray(tokens, np.float32))
    return pane.counts()


latencies = st.lists(st.floats(2.0**-20, 2.0**20, width=32), min_size=1, max_size=200)
tokens = st.sampled_from([1.0, 40.0, 100.0, 3_000.0])
references = st.lists(
    st.tuples(st.floats(2.0**-20, 2.0**20, width=32), tokens), min_size=40, max_size=400
).map(lambda rows: counts_of([row[0] for row in rows], [row[1] for row in rows]))


# The reference's own samples


@FEW
@given(reference=references)
def test_the_references_own_ranks_have_mean_zero(reference):
    row = rank_among(reference).scores(reference)

    assert row[BODY] == pytest.approx(0.0, abs=1e-3)
    assert row[SPREAD] == pytest.approx(0.0, abs=1e-3)


@FEW
@given(reference=references)
def test_a_tail_holds_what_is_expected_but_for_the_one_sample_to_come(reference):
    ranks = rank_among(reference)
    row = ranks.scores(reference)
    missing = row[EXPECTED] - row[ABOVE]

    assert (missing >= -1e-3).all()
    assert (missing <= ranks.known.sum() + 1e-3).all()


@every_distribution
def test_the_tails_begin_where_they_say(draw):
    reference = counts_of(draw(np.random.default_rng(0), 50_000))
    row = rank_among(reference).scores(reference)

    # To within the share of the bin that the tail begins in.
    widest = reference.counts.max() / 50_000
    np.testing.assert_allclose(row[ABOVE] / 50_000, TAILS, rtol=0.25, atol=0.1 * widest)


@every_distribution
def test_new_samples_of_the_reference_are_as_uniform_as_chance_allows(draw):
    rng = np.random.default_rng(1)
    ranks = rank_among(counts_of(draw(rng, 50_000)))
    n = 20_000

    row = ranks.scores(counts_of(draw(rng, n)))

    assert row[SAMPLES] == n
    assert abs(row[BODY]) < 4.0 * math.sqrt(1.4 * n * ranks.variances[0])
    assert abs(row[SPREAD]) < 4.0 * math.sqrt(1.4 * n * ranks.variances[1])
    assert (abs(row[ABOVE] - row[EXPECTED]) < 4.0 * np.sqrt(1.4 * row[EXPECTED])).all()
    assert row[INSIDE] == 0.0


@every_distribution
def test_body_and_spread_vary_as_those_of_a_uniform_rank(draw):
    ranks = rank_among(counts_of(draw(np.random.default_rng(2), 20_000)))

    assert ranks.variances == pytest.approx((1.0 / 12.0, 1.0 / 12.0), rel=0.02)


# What a change does


@FEW
@given(reference=references, values=latencies, exponent=st.integers(-8, 8))
def test_a_unit_that_is_a_power_of_two_larger_changes_no_score(reference, values, exponent):
    unit = 2.0**exponent
    shifted = SparseCounts(
        (reference.cells.astype(np.int64) + 32 * exponent).astype(np.uint32), reference.counts
    )

    usual = rank_among(reference).scores(counts_of(values))
    other = rank_among(shifted).scores(counts_of(np.array(values) * unit))

    np.testing.assert_array_equal(usual, other)


@FEW
@given(reference=references, values=latencies, factor=st.floats(1.0, 100.0))
def test_slower_samples_have_no_lower_rank_and_no_lighter_tail(reference, values, factor):
    ranks = rank_among(reference)

    usual, slower = (ranks.scores(counts_of(np.array(values) * f)) for f in (1.0, factor))

    assert slower[BODY] >= usual[BODY] - 1e-4
    assert (slower[ABOVE] >= usual[ABOVE]).all()
    np.testing.assert_array_equal(usual[EXPECTED], slower[EXPECTED])


def test_what_is_beyond_all_is_above_every_tail_and_half_a_rank_from_the_middle():
    ranks = rank_among(counts_of(np.random.default_rng(3).lognormal(-1.0, 0.5, 10_000)))

    slowest, fastest = ranks.scores(counts_of([1e6] * 7)), ranks.scores(counts_of([1e-6] * 7))

    assert (slowest[BODY], fastest[BODY]) == (3.5, -3.5)
    assert slowest[ABOVE].tolist() == [7.0] * len(TAILS)
    assert fastest[ABOVE].tolist() == [0.0] * len(TAILS)
    assert slowest[SPREAD] == fastest[SPREAD] == pytest.approx(3.5, abs=0.05)


@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.5])
def test_the_density_says_what_a_shift_of_the_mean_rank_is_worth(sigma):
    rng = np.random.default_rng(4)
    ranks = rank_among(counts_of(rng.lognormal(0.0, sigma, 20_000)))
    shift = 0.1 * sigma

    row = ranks.scores(counts_of(rng.lognormal(shift, sigma, 50_000)))

    assert ranks.density == pytest.approx(0.5 / (sigma * math.sqrt(math.pi)), rel=0.1)
    assert row[BODY] / row[SAMPLES] / ranks.density == pytest.approx(shift, rel=0.25)


@FEW
@given(reference=references, panes=st.lists(latencies, min_size=1, max_size=4))
def test_scores_add_over_panes_but_for_the_mix_which_is_of_pairs(reference, panes):
    ranks = rank_among(reference)
    counts = [counts_of(values) for values in panes]

    apart = np.sum([ranks.scores(pane) for pane in counts], axis=0)

    together = ranks.scores(SparseCounts.sum_of(counts))
    np.testing.assert_allclose(np.delete(together, MIX), np.delete(apart, MIX), atol=1e-3)


def test_an_empty_pane_scores_nothing():
    ranks = rank_among(counts_of([0.1, 0.2, 0.3] * 20))

    assert ranks.scores(SparseCounts.empty()).tolist() == [0.0] * N_SCORES


# Workload


def by_prompt(rng, tokens, samples):
    return counts_of(tokens / 1_000.0 * rng.lognormal(0.0, 0.3, samples), np.full(samples, tokens))


def test_longer_prompts_are_ranked_among_longer_prompts():
    rng = np.random.default_rng(5)
    reference = by_prompt(rng, 100.0, 2_000).plus(by_prompt(rng, 3_000.0, 200))
    n = 500

    longer = by_prompt(rng, 3_000.0, n)
    with_it = rank_among(reference).scores(longer)
    without = rank_among(reference, by_workload=False).scores(longer)

    assert abs(with_it[BODY]) < 4.0 * math.sqrt(n / 12.0 * (1.0 + n / 200.0))
    assert without[BODY] / n > 0.4


def test_a_mix_that_has_moved_to_what_the_reference_knows_little_of_weighs_more():
    rng = np.random.default_rng(5)
    reference = by_prompt(rng, 100.0, 2_000).plus(by_prompt(rng, 3_000.0, 100))
    ranks = rank_among(reference)

    usual, moved = (ranks.scores(by_prompt(rng, tokens, 200)) for tokens in (100.0, 3_000.0))

    assert ranks.scores(reference)[MIX] == pytest.approx(2_100.0, rel=0.01)
    assert usual[MIX] == pytest.approx(200.0 * 2_100.0 / 2_000.0, rel=0.01)
    assert moved[MIX] == pytest.approx(200.0 * 2_100.0 / 100.0, rel=0.01)


def test_strata_that_the_reference_does_not_know_are_left_out():
    rng = np.random.default_rng(6)
    few = MIN_KNOWN_SAMPLES - 1
    ranks = rank_among(by_prompt(rng, 100.0, 2_000).plus(by_prompt(rng, 3_000.0, few)))
    known = by_prompt(rng, 100.0, 50)

    never_seen, hardly_known = by_prompt(rng, 600.0, 40), by_prompt(rng, 3_000.0, 40)
    mixed = SparseCounts.sum_of([known, never_seen, hardly_known])

    assert ranks.scores(never_seen).tolist() == [0.0] * N_SCORES
    assert ranks.scores(hardly_known).tolist() == [0.0] * N_SCORES
    np.testing.assert_allclose(ranks.scores(mixed), ranks.scores(known), atol=1e-4)


def test_a_reference_that_knows_nothing_well_leaves_out_everything():
    ranks = rank_among(counts_of([0.1, 0.2]))

    assert ranks.scores(counts_of([0.1, 5.0])).tolist() == [0.0] * N_SCORES
    assert math.isfinite(ranks.density)


# Equal values


def test_equal_values_are_in_the_middle_and_any_other_is_a_surprise_but_a_finite_one():
    ranks = rank_among(counts_of([0.3] * 100))

    same, slower, faster = (ranks.scores(counts_of([v] * 4)) for v in (0.3, 0.33, 0.27))

    assert (same[BODY], slower[BODY], faster[BODY]) == (0.0, 2.0, -2.0)
    assert slower[ABOVE].tolist() == [4.0] * len(TAILS)
    assert min(ranks.variances) > 0.0


@pytest.mark.parametrize("values", [[0.0], [-1.0], [math.inf], [1e-9, 1e9]])
def test_whatever_the_reference_and_the_pane_hold_every_score_is_finite(values):
    ranks = rank_among(counts_of(values * 50))
    row = ranks.scores(counts_of([0.0, -1.0, math.inf, math.nan, 1e-9, 1e9, 0.3]))

    assert np.isfinite(row).all()
    assert row[SAMPLES] == 6.0
    assert np.isfinite([ranks.density, *ranks.variances]).all()
