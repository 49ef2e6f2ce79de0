"""The standard error of a sum of terms that depend on one another."""

import math

import numpy as np
import pytest

from bench.comparison import autoregressive
from detectors.long_run import MIN_BLOCKS, LongRun, cosines_of, critical, long_run

BLOCKS = 400


def errors(correlation, draws=200):
    """Estimated errors of sums, by the true one."""
    truth = math.sqrt(BLOCKS * (1.0 + correlation) / (1.0 - correlation))
    draw = autoregressive(correlation)
    found = [draw(np.random.default_rng(seed), BLOCKS) for seed in range(draws)]
    return np.array([long_run(z - z.mean()).error for z in found]) / truth


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_error_is_right_on_average_however_much_neighbours_depend(correlation):
    squares = errors(correlation) ** 2

    assert squares.mean() == pytest.approx(1.0, abs=0.12)


def test_an_estimate_is_worth_as_many_squares_as_it_says():
    """Of B independent squares the mean has a variance of 2 / B."""
    squares = errors(0.0) ** 2

    assert squares.var() == pytest.approx(2.0 / cosines_of(BLOCKS, 0.0), rel=0.35)


def test_the_more_neighbours_depend_the_fewer_cosines_are_taken():
    taken = [cosines_of(BLOCKS, correlation) for correlation in (0.0, 0.5, 0.7, 0.9, 0.99)]

    assert taken == sorted(taken, reverse=True)
    assert taken[0] > taken[-2] > taken[-1] == 0


def test_a_term_that_never_changes_has_no_error():
    assert long_run(np.zeros(BLOCKS)) == LongRun(0.0, cosines_of(BLOCKS, 0.0))


def test_too_few_blocks_say_that_nothing_is_known():
    assert long_run(np.ones(MIN_BLOCKS - 1)).cosines == 0
    assert long_run(np.linspace(-1.0, 1.0, MIN_BLOCKS)).cosines == 0


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_neither_tiny_nor_huge_terms_overflow(size):
    terms = np.random.default_rng(0).standard_normal(BLOCKS)

    assert long_run(size * terms).error == pytest.approx(size * long_run(terms).error)


def test_limits_are_wider_the_less_the_error_is_known():
    assert critical(2, 0.95) == pytest.approx(4.30, abs=0.01)
    assert critical(1_000, 0.95) == pytest.approx(1.96, abs=0.01)
