"""When a statistic is beyond what its stream shows while nothing is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from detectors.baseline import Dispersions, Sample, compare, learn_baseline, yardstick
from detectors.dispersion import Dispersion, Statistic
from detectors.ranks import rank_among
from tests.detectors.feeding import ar1, counts_of

FEW = settings(max_examples=100, derandomize=True, deadline=None)
LEVELS = [1e-2, 1e-3, 1e-5, 5.8e-7]
DEGREES = [1, 2, 5, 12, 40]

ratios = st.lists(st.floats(0.0, 20.0), max_size=70)
degrees_of = st.sampled_from(DEGREES)
levels = st.sampled_from(LEVELS)
values = st.floats(0.0, 1e4)


def learned(ratios, degrees=5):
    """What blocks whose statistic was so many times its degrees of freedom have taught."""
    dispersion = Dispersion()
    for ratio in ratios:
        dispersion.learn(Statistic(ratio * degrees, degrees, 0.1))
    return dispersion


def exceeds(dispersion, value, degrees, level):
    return dispersion.exceeds(Statistic(value, degrees, 0.1), level)


def limit(dispersion, degrees, level):
    """The value from which on a statistic exceeds, by bisection."""
    low, high = 0.0, 1e9
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if exceeds(dispersion, middle, degrees, level) else (middle, high)
    return high


# What is exceeded


@FEW
@given(ratios=ratios, value=values, more=values, degrees=degrees_of, level=levels)
def test_what_is_larger_than_something_that_exceeds_exceeds_too(
    ratios, value, more, degrees, level
):
    dispersion = learned(ratios)

    assert exceeds(dispersion, value, degrees, level) <= exceeds(
        dispersion, value + more, degrees, level
    )


@FEW
@given(ratios=ratios, value=values, degrees=degrees_of)
def test_what_exceeds_a_rarer_level_exceeds_a_more_frequent_one(ratios, value, degrees):
    dispersion = learned(ratios)

    exceeded = [exceeds(dispersion, value, degrees, level) for level in LEVELS]
    assert exceeded == sorted(exceeded, reverse=True)


@FEW
@given(ratios=ratios, value=values, degrees=degrees_of, level=levels)
def test_no_stream_is_held_to_vary_less_than_independent_samples_do(ratios, value, degrees, level):
    if exceeds(learned(ratios), value, degrees, level):
        assert value > chi2.isf(level, degrees)


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("level", LEVELS)
def test_without_blocks_it_is_chi_square_with_mean_and_variance_at_their_limits_for_one(
    degrees, level
):
    mean = 1.0 + 1.5 * math.sqrt(2.0 / degrees)
    kurtosis = 12.0 / degrees / mean**2
    variance = 2.0 / degrees * (1.0 + 1.5 * math.sqrt(2.0 + kurtosis))
    scaled = chi2(2.0 * mean**2 / variance, scale=0.5 * variance / mean)

    assert limit(Dispersion(), degrees, level) == pytest.approx(degrees * scaled.isf(level))


@pytest.mark.parametrize("level", LEVELS)
def test_many_blocks_of_independent_samples_come_near_to_chi_square(level):
    rng = np.random.default_rng(1)
    drawn = rng.chisquare(5, 60) / 5.0

    assert limit(learned(drawn), 5, level) == pytest.approx(chi2.isf(level, 5), rel=0.5)


def test_what_has_nothing_to_compare_exceeds_nothing_and_teaches_nothing():
    dispersion = learned([2.0, 3.0])
    before = (dispersion.mean, dispersion.square, dispersion.blocks)
    nothing = Statistic(1e9, 0, 0.0)

    dispersion.learn(nothing)

    assert not dispersion.exceeds(nothing, 1e-3)
    assert (dispersion.mean, dispersion.square, dispersion.blocks) == before


# More dispersion


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("degrees", DEGREES)
def test_the_larger_the_statistics_of_calm_blocks_the_higher_the_limit(degrees, level):
    rng = np.random.default_rng(2)
    drawn = rng.chisquare(5, 20) / 5.0

    limits = [limit(learned(drawn * times), degrees, level) for times in (1.0, 2.0, 5.0, 20.0)]

    assert limits == sorted(limits)
    assert limits[-1] > 4.0 * limits[0]


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("degrees", DEGREES)
def test_the_more_calm_blocks_differ_about_the_same_mean_the_higher_the_limit(degrees, level):
    spreads = (0.0, 0.5, 1.0, 2.0, 4.0)
    blocks = [[5.0 - spread, 5.0 + spread] * 15 for spread in spreads]

    limits = [limit(learned(ratios), degrees, level) for ratios in blocks]

    assert limits == sorted(limits)


@pytest.mark.parametrize("level", LEVELS)
def test_the_more_blocks_are_known_the_nearer_the_limit_is_to_what_they_show(level):
    limits = [limit(learned([1.0] * blocks), 5, level) for blocks in (1, 4, 10, 30, 60)]

    assert limits == sorted(limits, reverse=True)
    assert limits[-1] >= chi2.isf(level, 5)


@FEW
@given(ratios=ratios)
def test_the_inflation_is_the_mean_of_what_was_learned_but_never_below_one(ratios):
    expected = max(1.0, float(np.mean(ratios[:60]))) if ratios else 1.0

    if len(ratios) <= 60:
        assert learned(ratios).inflation == pytest.approx(min(expected, 50.0))
    assert 1.0 <= learned(ratios).inflation <= 50.0


# Streams whose samples depend on one another


def correlated(rho, seed, samples):
    """Stationary latencies whose logarithm is AR(1)."""
    return np.exp(0.3 * ar1(np.random.default_rng(seed), rho, samples)).astype(np.float32)


def excesses(rho, seed, blocks=300, level=1e-3):
    """Of how many calm blocks a statistic exceeds: by plain chi-square, and by dispersion."""
    cut = correlated(rho, seed, 120 * (10 + blocks)).reshape(-1, 120)
    counts = [counts_of(block) for block in cut]
    baseline = learn_baseline(counts[:10])
    ranks = rank_among(baseline.counts)
    reference = yardstick(baseline.counts, baseline.by_workload, baseline.overall, ranks)
    plain = dispersed = 0
    for block in counts[10:]:
        compared = compare(reference, Dispersions(), Sample.of([block]))
        pairs = [
            (getattr(baseline.dispersions, name), getattr(compared, name))
            for name in ("service", "latency")
        ]
        plain += any(s.value > chi2.isf(level, s.degrees) for _, s in pairs if s.degrees)
        dispersed += any(usual.exceeds(s, level) for usual, s in pairs)
    return plain, dispersed


@pytest.mark.parametrize("seed", range(3))
def test_correlated_samples_exceed_far_less_often_than_plain_chi_square_says(seed):
    plain, dispersed = excesses(rho=0.9, seed=seed)

    assert plain > 100
    assert dispersed < 0.3 * plain


def test_independent_samples_hardly_ever_exceed():
    _, dispersed = excesses(rho=0.0, seed=1)

    assert dispersed <= 3
