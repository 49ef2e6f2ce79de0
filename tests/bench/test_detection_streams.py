"""The detection benchmark's streams have the properties that they claim."""

import math

import numpy as np
import pytest

from bench.detection.streams import (
    CREEP,
    HOUR_S,
    SHIFTS,
    SIGMA,
    START_S,
    ar1,
    daily,
    effective_share,
    heavy_tailed,
    kl_nats,
    moving_workload,
    normal_density,
    shifted,
    slower_by,
    stationary,
    step_shared,
)

DOUBLED = slower_by(1.0)


def rng():
    return np.random.default_rng(7)


def correlation(values, lag=1):
    return float(np.corrcoef(values[lag:], values[:-lag])[0, 1])


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_ar1_has_the_correlation_and_the_variance_it_claims(phi):
    values = ar1(rng(), 200_000, phi)

    assert correlation(values) == pytest.approx(phi, abs=0.01)
    assert correlation(values, lag=2) == pytest.approx(phi**2, abs=0.015)
    assert values.std() == pytest.approx(1.0, abs=0.03)


def test_an_ar1_stream_begins_in_its_stationary_distribution():
    firsts = [ar1(np.random.default_rng(seed), 1, 0.9)[0] for seed in range(2_000)]

    assert np.std(firsts) == pytest.approx(1.0, abs=0.05)


def test_the_effective_share_is_what_the_mean_of_ar1_shows():
    """The variance of a mean of n correlated values is that of a mean of share * n others."""
    means = ar1(rng(), 2_000_000, 0.9).reshape(-1, 2_000).mean(axis=1)

    assert 1.0 / (2_000 * means.var()) == pytest.approx(effective_share(0.9), rel=0.1)


@pytest.mark.parametrize("name", stationary(1.0))
def test_a_seed_repeats_its_stream_and_another_gives_another(name):
    make = stationary(0.2, 0.2)[name]

    first, again, other = make(3), make(3), make(4)

    assert np.array_equal(first.values_s, again.values_s)
    assert np.array_equal(first.times_s, again.times_s)
    assert not np.array_equal(first.values_s[:50], other.values_s[:50])


@pytest.mark.parametrize("name", stationary(1.0))
def test_a_stationary_stream_is_in_order_positive_and_never_changes(name):
    stream = stationary(0.5, 0.5)[name](1)

    assert stream.onset_s is None
    assert (np.diff(stream.times_s) >= 0.0).all()
    assert stream.times_s[0] >= START_S
    assert stream.times_s[-1] < stream.end_s
    assert (stream.values_s > 0.0).all()


def test_tokens_of_a_step_share_their_duration_and_their_time():
    stream = step_shared(2.0)(1)
    begins = np.flatnonzero(np.diff(stream.times_s, prepend=0.0))
    tokens = np.diff(begins)

    assert (tokens.min(), tokens.max()) == (8, 24)
    assert set(np.flatnonzero(np.diff(stream.values_s)) + 1) == set(begins[1:])


def test_the_heavy_tail_is_a_tenth_of_paretos():
    """P(X > x) of a Pareto of index 2.2 is (x / median)**-2.2; the lognormal is nearly gone."""
    relative = heavy_tailed(200.0)(1).values_s / 0.3

    assert np.mean(relative > 10.0) == pytest.approx(0.1 * 10.0**-2.2, rel=0.1)


def test_a_day_moves_load_and_prompts_and_only_if_told_so_the_service():
    quiet, swinging = daily(24.0)(1), daily(24.0, 0.10)(1)
    hours = ((quiet.times_s - START_S) // HOUR_S).astype(int)
    arrivals = np.bincount(hours)

    def spread(stream):
        unexplained = np.log(stream.values_s / (0.05 + 0.0004 * stream.workload))
        return np.ptp([np.median(unexplained[hours == hour]) for hour in range(24)])

    assert arrivals.max() > 5 * arrivals.min()
    assert spread(quiet) < 0.03
    assert 0.15 < spread(swinging) < 0.25


# What a sample tells of a shift


def test_the_integral_gives_the_divergence_of_normals_that_the_formula_gives():
    mean, before, after = 0.3, 0.5, 0.75
    exact = math.log(before / after) + (after**2 + mean**2) / (2 * before**2) - 0.5

    found = kl_nats(normal_density(mean, after), normal_density(0.0, before))

    assert found == pytest.approx(exact, rel=1e-6)


def test_the_divergence_of_a_slowdown_is_half_its_squared_size_in_deviations():
    assert slower_by(0.2).kl_nats() == pytest.approx((math.log(1.2) / SIGMA) ** 2 / 2, rel=1e-6)


@pytest.mark.parametrize("shift", SHIFTS, ids=lambda shift: shift.name)
def test_a_shifts_density_is_that_of_its_samples(shift):
    """Twice: it integrates to one, and it tells of the samples what the samples tell of it."""
    x = np.linspace(-8.0, 8.0, 64_001)
    samples = shift.move(rng(), SIGMA * rng().normal(size=400_000), np.zeros(400_000))
    gained = np.log(shift.density(samples) / normal_density(0.0, SIGMA)(samples))

    assert np.trapezoid(shift.density(x), x) == pytest.approx(1.0, abs=1e-6)
    assert gained.mean() == pytest.approx(shift.kl_nats(), rel=0.05)


def test_a_creep_arrives_in_a_day_and_goes_no_further():
    ages_s = np.array([0.0, 43_200.0, 86_400.0, 172_800.0])

    assert np.exp(CREEP.move(rng(), np.zeros(4), ages_s)) == pytest.approx([1.0, 1.1, 1.2, 1.2])


def test_a_shift_begins_at_its_onset_and_at_another_time_for_each_seed():
    make = shifted(DOUBLED, 0.0, 10.0)
    stream = make(1)
    after = stream.times_s >= stream.onset_s

    assert np.median(stream.values_s[after]) / np.median(stream.values_s[~after]) == pytest.approx(
        2.0, rel=0.03
    )
    assert len({make(seed).onset_s for seed in range(5)}) == 5


def test_prompts_move_and_the_service_given_them_does_not():
    stream = moving_workload("x2", 0.0)(1)
    after = stream.times_s >= stream.onset_s
    unexplained = stream.values_s / (0.05 + 0.0004 * stream.workload)

    assert np.median(stream.workload[after]) > 1.8 * np.median(stream.workload[~after])
    assert np.median(unexplained[after]) == pytest.approx(np.median(unexplained[~after]), rel=0.02)


def test_an_unknown_change_of_the_prompts_is_refused():
    with pytest.raises(ValueError, match="got 'x3'"):
        moving_workload("x3", 0.0)(1)
