from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from detectors.divergence import (
    kl_bias_nats,
    kl_by_chain_rule,
    kl_divergence,
    log_probabilities,
    smoothed,
)

FEW = settings(max_examples=100, derandomize=True, deadline=None)

counts = arrays(np.float64, 12, elements=st.integers(0, 10_000))
some_counts = counts.filter(np.any)
densities = counts.map(smoothed)


def split(current, reference, group_starts):
    return kl_by_chain_rule(current, *log_probabilities(reference, group_starts), group_starts)


starts = st.sets(st.integers(1, 11)).map(lambda inner: np.array([0, *sorted(inner)]))


@FEW
@given(p=densities, q=densities)
def test_kl_is_never_negative(p, q):
    """Gibbs' inequality, up to rounding."""
    assert kl_divergence(p, q) >= -1e-12


@FEW
@given(p=densities)
def test_kl_of_a_distribution_with_itself_is_exactly_zero(p):
    assert kl_divergence(p, p) == 0.0


def test_kl_by_hand():
    p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])

    # 0.5 ln(5/9) + 0.5 ln 5, and the other way 0.9 ln(9/5) + 0.1 ln(1/5).
    assert kl_divergence(p, q) == pytest.approx(0.510826, abs=1e-6)
    assert kl_divergence(q, p) == pytest.approx(0.368064, abs=1e-6)


def test_a_bin_that_is_empty_now_adds_nothing():
    assert kl_divergence(np.array([1.0, 0.0]), np.array([0.25, 0.75])) == pytest.approx(np.log(4.0))


@pytest.mark.parametrize(
    ("p", "q"), [([1.0, 0.0], [1.0, 0.0]), ([1.5, -0.5], [0.5, 0.5]), ([0.5, 0.5], [1.5, -0.5])]
)
def test_kl_of_what_is_no_pair_of_distributions_is_refused(p, q):
    with pytest.raises(ValueError, match="q must be positive and p not negative"):
        kl_divergence(np.array(p), np.array(q))


def test_kl_of_different_shapes_is_refused():
    with pytest.raises(ValueError, match=r"p has shape \(2,\) but q has shape \(3,\)"):
        kl_divergence(np.full(2, 0.5), np.full(3, 1 / 3))


@FEW
@given(n=counts)
def test_smoothing_leaves_no_bin_empty_and_adds_half_a_value_to_each(n):
    p = smoothed(n)

    assert p.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(n + 0.5, p * (n.sum() + 6.0), atol=1e-9)


@FEW
@given(current=some_counts, reference=counts, group_starts=starts)
def test_workload_and_service_add_up_to_the_kl_of_both_together(current, reference, group_starts):
    """The chain rule is exact, empty bins and empty groups included."""
    parts = split(current, reference, group_starts)
    joint = kl_divergence(current / current.sum(), smoothed(reference))

    assert parts.workload_nats + parts.service_nats == pytest.approx(joint, abs=1e-9)
    assert parts.workload_nats >= -1e-12
    assert parts.service_nats >= -1e-12


def test_another_mix_of_the_same_service_is_all_workload():
    short, long = np.array([60.0, 30.0, 10.0]), np.array([10.0, 30.0, 60.0])
    reference = np.concatenate([9_000 * short, 1_000 * long])
    current = np.concatenate([1_000 * short, 9_000 * long])

    parts = split(current, reference, np.array([0, 3]))

    # 0.1 ln(1/9) + 0.9 ln 9.
    assert parts.workload_nats == pytest.approx(1.757780, abs=1e-4)
    assert parts.service_nats == pytest.approx(0.0, abs=1e-4)


def test_the_same_mix_served_slower_is_all_service():
    short, long = np.array([60.0, 30.0, 10.0]), np.array([10.0, 30.0, 60.0])
    reference = 1_000 * np.concatenate([short, long])
    current = 1_000 * np.concatenate([short[::-1], long])

    parts = split(current, reference, np.array([0, 3]))

    # Half the rows: 0.1 ln(1/6) + 0.6 ln 6.
    assert parts.workload_nats == pytest.approx(0.0, abs=1e-4)
    assert parts.service_nats == pytest.approx(0.5 * 0.5 * np.log(6.0), abs=1e-4)


@pytest.mark.parametrize(
    ("bins", "n", "m"), [(5, 300, 1_500), (10, 300, 1_500), (20, 1_000, 1_000), (20, 2_000, 20_000)]
)
def test_the_bias_is_what_two_samples_of_one_distribution_differ_by(bins, n, m):
    rng = np.random.default_rng(bins)
    truth = rng.dirichlet(np.full(bins, 20.0))
    current = rng.multinomial(n, truth, 2_000) / n
    reference = rng.multinomial(m, truth, 2_000) / m
    simulated = np.mean([kl_divergence(p, q) for p, q in zip(current, reference, strict=True)])

    assert kl_bias_nats(bins - 1, n, m) == pytest.approx(simulated, rel=0.06)


def test_the_bias_shrinks_with_either_sample():
    assert kl_bias_nats(19, 300, 1_500) == pytest.approx(0.038)
    assert kl_bias_nats(19, 600, 3_000) == pytest.approx(0.019)
    assert kl_bias_nats(0, 300, 1_500) == 0.0
