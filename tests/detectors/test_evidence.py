"""Evidence of a shift: how windows of each length vary, and what a window of it is worth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr

from detectors.evidence import (
    MEMORY_PANES,
    Evidence,
    begin_anew,
    lean_on_shorter,
    learn,
    learn_reference,
    mark_learned,
    scan,
    settle,
    standardised,
)
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
from detectors.scan_formulas import LENGTHS, N_STATISTICS
from tests.detectors.feeding import ar1, counts_of

FEW = settings(max_examples=40, derandomize=True, deadline=None)
PANE_SAMPLES = 25
SEEDS = range(4)
SHORT = slice(0, int(np.searchsorted(LENGTHS, 24)))
"""Lengths of which a thousand panes show enough windows."""
COMMON = slice(0, 4)
"""Body, spread, and the two tails that are not rare."""


def stream(seed, panes, rho=0.0):
    """Latencies whose logarithm is AR(1), shape ``(panes, PANE_SAMPLES)``."""
    path = ar1(np.random.default_rng(seed), rho, panes * PANE_SAMPLES)
    return np.exp(0.5 * path).reshape(panes, PANE_SAMPLES)


def rows_of(ranks, panes):
    return np.array([ranks.scores(counts_of(values)) for values in panes])


def watched(seed, rho=0.0, reference_panes=500, panes=1_000):
    """What calm panes after a reference have taught."""
    values = stream(seed, reference_panes + panes, rho)
    ranks = rank_among(counts_of(values[:reference_panes].ravel()))
    evidence = Evidence()
    for row in rows_of(ranks, values[reference_panes:]):
        evidence.take(row)
        learn(evidence, scan(evidence, ranks))
    return evidence


def of_the_reference(seed, rho=0.0):
    """What the reference's own panes have taught."""
    values = stream(seed, MEMORY_PANES, rho)
    ranks = rank_among(counts_of(values.ravel()))
    evidence = Evidence(rows=rows_of(ranks, values))
    evidence.rows[:, INSIDE] = evidence.rows[:, SAMPLES]
    learn_reference(evidence, ranks)
    return evidence


def mean_squares(teach, **how):
    return np.mean([teach(seed, **how).squares for seed in SEEDS], axis=0)[SHORT, COMMON]


def variance_ratio(rho, n):
    """How much more the mean rank of ``n`` samples of an AR(1) varies than of independent ones.

    The correlation of the ranks of two normal variables is 6/pi asin(r/2) (Pearson 1907).
    """
    lags = np.arange(1, n)
    correlation = 6.0 / math.pi * np.arcsin(0.5 * rho**lags)
    return 1.0 + 2.0 * float(np.sum((1.0 - lags / n) * correlation))


# How windows vary while nothing has changed


@pytest.mark.parametrize("teach", [watched, of_the_reference])
def test_windows_of_independent_samples_vary_as_expected_whatever_their_length(teach):
    np.testing.assert_allclose(mean_squares(teach), 1.0, atol=0.25)


def test_a_small_reference_is_wrong_by_itself_and_that_is_allowed_for():
    # As many samples as the longest of these windows.
    squares = np.mean(
        [watched(seed, reference_panes=24, panes=24).squares for seed in range(60)], axis=0
    )

    np.testing.assert_allclose(squares[SHORT, :2], 1.0, atol=0.35)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_windows_of_correlated_samples_vary_as_theory_says(rho):
    expected = [variance_ratio(rho, PANE_SAMPLES * length) for length in LENGTHS[SHORT].tolist()]

    np.testing.assert_allclose(mean_squares(watched, rho=rho)[:, 0], expected, rtol=0.2)


def test_the_references_own_windows_say_the_same_of_correlated_samples():
    expected = [variance_ratio(0.9, PANE_SAMPLES * length) for length in LENGTHS[SHORT].tolist()]

    np.testing.assert_allclose(mean_squares(of_the_reference, rho=0.9)[:, 0], expected, rtol=0.25)


def test_what_is_usual_is_what_was_seen_once_much_was_seen_and_one_before():
    evidence = watched(0, rho=0.9, panes=1_500)

    lean_on_shorter(evidence)

    assert (Evidence().usual == 1.0).all()
    np.testing.assert_allclose(evidence.usual[:4, 0], evidence.squares[:4, 0], rtol=0.1)


def test_a_length_that_was_never_seen_is_held_to_vary_like_the_shorter_ones():
    evidence = watched(0, rho=0.9, panes=100)

    lean_on_shorter(evidence)

    assert evidence.windows[-1] == 0.0
    assert evidence.usual[-1, 0] == evidence.usual[-2, 0] > 5.0


# Inside and outside the reference


def sums(n=100.0, body=0.0, above=None, inside=0.0):
    """Scores of a window of ``n`` samples; by default as expected."""
    row = np.zeros(N_SCORES)
    row[SAMPLES], row[BODY], row[INSIDE] = n, body, inside
    row[EXPECTED], row[MIX] = n * np.array(TAILS), n
    row[ABOVE] = row[EXPECTED] if above is None else above
    return row


RANKS = rank_among(counts_of(stream(7, 80).ravel()))


def z_of(row, ranks=RANKS):
    """The statistics of one window, standardised."""
    return standardised(row[None, :], ranks)[0]


@pytest.mark.parametrize(("inside", "factor"), [(0.0, 1.0 + 500.0 / 2_000.0), (500.0, 0.75)])
def test_a_window_outside_the_reference_varies_more_than_a_part_of_it(inside, factor):
    z = z_of(sums(n=500.0, body=10.0, inside=inside))

    assert RANKS.m == 2_000.0
    assert z[0] == pytest.approx(10.0 / math.sqrt(500.0 * RANKS.variances[0] * factor))


@FEW
@given(n=st.floats(1.0, 1e5), body=st.floats(-0.5, 0.5), share=st.floats(0.0, 1.0))
def test_the_same_sum_is_the_more_surprising_the_more_of_it_is_in_the_reference(n, body, share):
    inside = share * min(n, RANKS.m)

    outside, partly = (abs(z_of(sums(n=n, body=n * body, inside=i))[0]) for i in (0.0, inside))

    assert partly >= outside


def test_panes_that_were_learned_are_inside_from_then_on():
    evidence = Evidence(rows=np.tile(sums().astype(np.float32), (20, 1)))

    mark_learned(evidence, newest=6, learned=3)
    mark_learned(evidence, newest=6, learned=0)

    assert np.flatnonzero(evidence.rows[:, INSIDE]).tolist() == [11, 12, 13]


# Evidence


def nats_of(row, usual=1.0, windows=1e9, ranks=RANKS):
    evidence = Evidence(
        rows=row[None, :].astype(np.float32),
        windows=np.full(LENGTHS.size, windows),
        usual=np.full((LENGTHS.size, N_STATISTICS), usual),
        reach=1,
    )
    return scan(evidence, ranks).nats[0]


@FEW
@given(
    n=st.floats(1.0, 1e4),
    shift=st.floats(0.0, 0.5),
    more=st.floats(0.0, 0.5),
    sign=st.sampled_from([-1.0, 1.0]),
    windows=st.sampled_from([0.0, 30.0, 8_640.0]),
)
def test_evidence_grows_with_the_shift_of_the_body_whichever_way(n, shift, more, sign, windows):
    smaller, larger, mirrored = (
        nats_of(sums(n=n, body=n * by), windows=windows)[0]
        for by in (sign * shift, sign * (shift + more), -sign * shift)
    )

    assert 0.0 <= smaller <= larger
    assert smaller == pytest.approx(mirrored)


@FEW
@given(body=st.floats(-0.5, 0.5), usual=st.floats(1.0, 50.0), more=st.floats(1.0, 10.0))
def test_the_more_calm_windows_vary_the_less_a_window_is_worth(body, usual, more):
    row = sums(body=100.0 * body)

    assert nats_of(row, usual * more)[0] <= nats_of(row, usual)[0]


def test_where_little_is_known_of_how_much_windows_vary_a_large_shift_is_worth_less():
    row = sums(body=25.0)

    assert nats_of(row, windows=0.0)[0] < 0.7 * nats_of(row)[0]


def test_with_everything_known_it_is_half_the_squared_standardised_sum():
    row = sums(body=5.0)

    assert nats_of(row)[0] == pytest.approx(0.5 * z_of(row)[0] ** 2, rel=1e-6)


# Tails: numbers of clumps


ENDLESS = replace(RANKS, m=1e12)
"""A reference whose own number is known for sure."""


def tails_of(row, usual=1.0, ranks=ENDLESS):
    """Evidence of each tail."""
    return nats_of(row, usual, ranks=ranks)[2:]


def tail_of(above, expected, usual, ranks=ENDLESS):
    """Evidence of ``above`` samples where ``expected`` are, among very many."""
    row = sums(n=1e5)
    row[EXPECTED], row[ABOVE] = expected, above
    return float(tails_of(row, usual, ranks)[0])


numbers_above = st.tuples(st.floats(10.0, 1e4), st.floats(1.0, 50.0)).map(
    lambda pair: sums(n=pair[0], above=np.minimum(pair[0], pair[0] * pair[1] * np.array(TAILS)))
)


@pytest.mark.parametrize("ranks", [RANKS, ENDLESS], ids=["2,000 samples", "endless"])
@FEW
@given(row=numbers_above, usual=st.floats(1.0, 20.0), more=st.floats(0.0, 50.0))
def test_evidence_grows_with_what_is_in_the_tail(ranks, row, usual, more):
    larger = row.copy()
    larger[ABOVE] += more

    assert (tails_of(row, usual, ranks) >= -1e-6).all()
    assert (tails_of(row, usual, ranks) <= tails_of(larger, usual, ranks) + 1e-6).all()


@FEW
@given(row=numbers_above, usual=st.floats(1.0, 50.0), more=st.floats(1.0, 10.0))
def test_the_larger_the_clumps_the_less_a_tail_is_worth(row, usual, more):
    assert (tails_of(row, usual * more) <= tails_of(row, usual) + 1e-6).all()


@pytest.mark.parametrize("ranks", [RANKS, ENDLESS], ids=["2,000 samples", "endless"])
@FEW
@given(row=numbers_above, usual=st.floats(1.0, 20.0))
def test_a_tail_is_worth_no_more_than_if_its_number_were_normal(ranks, row, usual):
    normal = 0.5 * z_of(row, ranks)[2:] ** 2 / usual

    assert (tails_of(row, usual, ranks) <= normal * (1.0 + 1e-6) + 1e-6).all()


def test_a_lighter_tail_is_no_evidence():
    lighter = sums(n=1_000.0, above=np.zeros(len(TAILS)))

    assert tails_of(lighter).tolist() == nats_of(lighter)[2:].tolist() == [0.0] * len(TAILS)


@FEW
@given(expected=st.floats(0.5, 500.0), times=st.floats(1.01, 20.0))
def test_the_evidence_of_single_samples_is_the_poisson_rate(expected, times):
    above = times * expected

    poisson = rel_entr(above, expected) - above + expected
    assert tail_of(above, expected, 1.0) == pytest.approx(poisson, rel=1e-3, abs=1e-4)


def chance_of_at_least(above, expected, usual):
    """The chance of ``above`` samples or more, in clumps of geometric size, their number Poisson.

    By Panjer's recursion; the variance is ``usual`` times the mean.
    """
    q = (usual - 1.0) / (usual + 1.0)
    clumps = expected * (1.0 - q)
    sizes = (1.0 - q) * q ** np.arange(above + 30 * math.ceil(usual))
    chances = [math.exp(-clumps)]
    for n in range(1, above + 30 * math.ceil(usual)):
        j = np.arange(1, n + 1)
        chances.append(clumps / n * float(np.sum(j * sizes[j - 1] * np.array(chances)[n - j])))
    # Summed from above, since what is left of one would be lost.
    return math.fsum(chances[above:])


@pytest.mark.parametrize("usual", [1.0, 1.5, 3.0, 8.0])
@pytest.mark.parametrize("expected", [0.5, 4.0, 20.0])
@pytest.mark.parametrize("times", [2, 3, 5])
def test_no_number_of_clumps_is_more_likely_than_its_evidence_says_nor_much_less(
    expected, usual, times
):
    above = math.ceil(times * expected + usual)
    chance = chance_of_at_least(above, expected, usual)

    bound = math.exp(-tail_of(above, expected, usual))

    assert chance <= bound * (1.0 + 1e-6)
    assert chance > 0.02 * bound


def test_a_tail_of_which_the_reference_has_hardly_a_clump_is_not_judged():
    few = replace(RANKS, m=1e5)

    assert tail_of(500.0, 20.0, 30.0, few) == 0.0
    assert tail_of(500.0, 20.0, 2.0, few) > 50.0


def test_the_references_own_tail_may_be_light_by_chance():
    small, large = replace(RANKS, m=1e5), replace(RANKS, m=1e8)

    assert tail_of(60.0, 20.0, 1.0, small) < 0.7 * tail_of(60.0, 20.0, 1.0, large)


# What is scanned


def test_a_scan_asks_the_newest_panes_of_every_length_within_reach():
    rows = rows_of(RANKS, stream(1, 50))
    evidence = Evidence()
    for row in rows:
        evidence.take(row)

    found = scan(evidence, RANKS)

    within = LENGTHS[LENGTHS <= 50]
    expected = [rows[-length:].sum(axis=0) for length in within.tolist()]
    np.testing.assert_allclose(found.sums, expected, atol=1e-3)
    np.testing.assert_allclose(found.z, standardised(np.array(expected), RANKS), atol=1e-3)


def test_no_more_rows_are_kept_than_are_needed():
    evidence = Evidence()
    for number in range(MEMORY_PANES + 50):
        evidence.take(np.full(N_SCORES, number, np.float32))

    assert evidence.rows.shape == (MEMORY_PANES, N_SCORES)
    assert evidence.rows[[0, -1], 0].tolist() == [50.0, MEMORY_PANES + 49.0]
    assert evidence.reach == MEMORY_PANES


def test_after_a_new_beginning_nothing_old_is_scanned_but_how_much_windows_vary_is_kept():
    evidence = watched(0, rho=0.9)
    squares = evidence.squares.copy()

    begin_anew(evidence)
    evidence.take(sums().astype(np.float32))

    assert scan(evidence, RANKS).sums.shape[0] == 1
    np.testing.assert_array_equal(squares, evidence.squares)


def test_rows_ranked_by_a_draft_become_those_of_the_references_own_panes():
    values = stream(3, 200)
    draft = rank_among(counts_of(values[:60].ravel()))
    evidence = Evidence(rows=rows_of(draft, values))

    settle(evidence)

    total = evidence.rows.sum(axis=0, dtype=np.float64)
    assert total[[BODY, SPREAD]] == pytest.approx([0.0, 0.0], abs=0.05)
    np.testing.assert_allclose(total[EXPECTED], total[ABOVE], rtol=0.01, atol=1.0)
    np.testing.assert_array_equal(evidence.rows[:, SAMPLES], evidence.rows[:, INSIDE])
