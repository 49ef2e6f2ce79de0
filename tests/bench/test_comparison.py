"""What ``daom compare`` promises, on data with a known truth.

A share of draws that is promised to be ``p`` is held against its lower limit: what it falls below
by chance once in a thousand times.
"""

import pytest
from scipy.stats import binom

from bench.comparison import STREAMS, at_the_limit, coverage, needed

NAMES = [stream.name for stream in STREAMS]
SEED = 50_000


def least(share, draws):
    return binom.ppf(0.001, draws, share) / draws


def most(share, draws):
    return binom.ppf(0.999, draws, share) / draws


@pytest.mark.parametrize("stream", STREAMS, ids=NAMES)
def test_intervals_hold_the_truth_as_often_as_they_say(stream):
    draws = 60
    found = coverage(stream, range(SEED, SEED + draws), 4_000, other_draws=40)

    assert (found.covered >= least(0.95, draws)).all()
    assert found.beyond <= most(0.05, draws)


@pytest.mark.parametrize("stream", STREAMS, ids=NAMES)
def test_a_difference_of_just_the_tolerance_is_seldom_judged(stream):
    draws = 60
    within, beyond = at_the_limit(stream, range(SEED, SEED + draws), 4_000)

    assert max(within, beyond) <= most(0.05, draws)


def test_as_many_samples_as_are_said_to_be_needed_find_a_difference():
    found = needed(STREAMS[0], range(SEED, SEED + 40), 1_200)

    assert found.asked >= 30
    assert min(found.beyond, found.within) >= least(0.9, found.asked)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stream", STREAMS, ids=NAMES)
def test_two_halves_are_within_in_95_percent_of_200_draws(stream):
    draws = 200
    n = 20_000 if stream.shared == 1 else 8_000
    found = coverage(stream, range(SEED, SEED + draws), n, other_draws=150)

    assert (found.covered >= least(0.95, draws)).all()
    assert found.within >= 0.95
    assert found.beyond <= most(0.05, draws)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_as_many_samples_as_are_said_to_be_needed_find_it_however_dependent():
    found = needed(STREAMS[2], range(SEED, SEED + 25), 1_200)

    assert found.asked >= 20
    assert min(found.beyond, found.within) >= least(0.9, found.asked)
