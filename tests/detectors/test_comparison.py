"""Differences of mean and quantiles, raw and at equal workload."""

import math

import numpy as np
import pytest

from detectors.blocks import Blocks
from detectors.comparison import contrasts
from detectors.two_samples import divergence

START_S = 1_764_000_000.0
LEVELS = (0.5, 0.95, 0.99)


def counted(values, workload=None, rate=10.0):
    blocks = Blocks(None if workload is None else 128.0)
    times = START_S + np.arange(len(values)) / rate
    column = None if workload is None else np.asarray(workload, np.float32)
    blocks.add(np.asarray(values, np.float32), times, column)
    return blocks.counted()


def normal(seed, n=3_000):
    return np.random.default_rng(seed).lognormal(-3.0, 0.4, n)


def all_of(found):
    return [found.mean, *found.quantiles]


def served(seed, longer=1.0, slower=1.0, n=6_000):
    """Latency in proportion to the prompt."""
    rng = np.random.default_rng(seed)
    prompt = longer * rng.lognormal(6.5, 0.8, n)
    values = slower * (0.02 + 1e-4 * prompt * rng.lognormal(0.0, 0.2, n))
    return counted(values, prompt)


def at_equal_workload(a, b):
    return contrasts(a, b, LEVELS, divergence(a, b).groups)


def test_values_are_those_of_the_samples():
    values = normal(0)

    found = contrasts(counted(values), counted(2.0 * values), LEVELS)

    assert found.mean.a.value == pytest.approx(values.mean(), rel=1e-6)
    assert found.mean.difference == pytest.approx(values.mean(), rel=1e-6)
    for contrast, level in zip(found.quantiles, LEVELS, strict=True):
        assert contrast.a.value == pytest.approx(np.quantile(values, level), rel=2e-3)


def test_a_against_itself_differs_by_nothing():
    for contrast in all_of(contrasts(counted(normal(0)), counted(normal(0)), LEVELS)):
        low, high = contrast.interval(0.95)

        assert contrast.difference == 0.0
        assert low < 0.0 < high


def test_b_minus_a_is_the_opposite_of_a_minus_b():
    a, b = counted(normal(0)), counted(1.1 * normal(1))
    for there, back in zip(
        all_of(contrasts(a, b, LEVELS)), all_of(contrasts(b, a, LEVELS)), strict=True
    ):
        low, high = there.interval(0.95)

        assert there.difference == pytest.approx(-back.difference)
        assert back.interval(0.95) == pytest.approx((-high, -low), rel=0.02)


def test_the_surer_one_wants_to_be_the_wider_the_interval():
    for contrast in all_of(contrasts(counted(normal(0)), counted(normal(1)), LEVELS)):
        narrow, wide = contrast.interval(0.8), contrast.interval(0.99)

        assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_tokens_that_share_a_step_do_not_make_an_interval_narrower():
    steps = normal(0), normal(1)
    once = contrasts(*(counted(s) for s in steps), LEVELS)
    tokens = contrasts(*(counted(np.repeat(s, 20), rate=200.0) for s in steps), LEVELS)

    for one, many in zip(all_of(once), all_of(tokens), strict=True):
        assert many.interval(0.95) == pytest.approx(one.interval(0.95), rel=0.02)


def test_a_quantile_of_too_few_samples_has_no_upper_limit():
    found = contrasts(counted(normal(0, 200)), counted(normal(1, 200)), LEVELS)

    assert all(math.isfinite(end) for end in found.quantiles[0].interval(0.95))
    assert found.quantiles[2].interval(0.95) == (-math.inf, math.inf)


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_what_is_tiny_or_huge_is_compared_like_anything_else(size):
    found = contrasts(counted(size * normal(0)), counted(1.1 * size * normal(1)), LEVELS)
    usual = contrasts(counted(normal(0)), counted(1.1 * normal(1)), LEVELS)

    for contrast, expected in zip(all_of(found), all_of(usual), strict=True):
        scaled = [end / size for end in contrast.interval(0.95)]
        assert scaled == pytest.approx(expected.interval(0.95), rel=0.02)


def test_constants_differ_by_what_they_differ():
    a, b = (counted([value] * 100, rate=1.0) for value in (0.02, 0.03))
    for contrast in all_of(contrasts(a, b, LEVELS)):
        low, high = contrast.interval(0.95)

        assert low == pytest.approx(0.01, abs=1e-4)
        assert high == pytest.approx(0.01, abs=1e-4)
        assert contrast.difference == pytest.approx(0.01, abs=1e-4)


def test_negative_scores_are_compared_too():
    scores = np.random.default_rng(0).normal(-0.2, 0.5, 2_000)

    found = contrasts(counted(scores), counted(scores - 0.3), LEVELS)

    assert found.quantiles[0].difference == pytest.approx(-0.3, abs=0.002)
    assert found.mean.difference == pytest.approx(-0.3, abs=1e-5)


def test_longer_prompts_are_the_workload_s():
    a, b = served(0), served(1, longer=1.5)
    raw, equal, kl = contrasts(a, b, LEVELS), at_equal_workload(a, b), divergence(a, b)

    assert raw.mean.interval(0.95)[0] > 0.0
    assert abs(equal.mean.difference) < 0.05 * raw.mean.difference
    assert kl.workload_changed
    assert not kl.service_changed
    assert kl.workload_nats > 10.0 * kl.service_nats


def test_prompts_twice_as_long_leave_little_to_the_service():
    """Within a stratum the mix still moves: that is all that is left of a difference of 80 %."""
    for seed in range(0, 10, 2):
        equal = at_equal_workload(served(seed), served(seed + 1, longer=2.0))

        assert abs(equal.mean.difference) < 0.03 * equal.mean.a.value


def test_the_same_prompts_served_slower_are_the_service_s():
    a, b = served(0), served(1, slower=1.2)
    equal, kl = at_equal_workload(a, b), divergence(a, b)

    for contrast in all_of(equal)[:3]:
        assert contrast.interval(0.95)[0] > 0.0
        assert contrast.difference == pytest.approx(0.2 * contrast.a.value, rel=0.2)
    assert kl.service_changed
    assert not kl.workload_changed


def test_equal_workload_is_known_better_since_the_mix_of_prompts_is_no_error_of_it():
    a, b = served(0), served(1)
    raw, equal = contrasts(a, b, LEVELS), at_equal_workload(a, b)

    widths = [np.diff(each.mean.interval(0.95)) for each in (raw, equal)]
    assert widths[1] < 0.6 * widths[0]


def test_workloads_that_have_nothing_in_common_are_not_compared():
    short, long = served(0), served(1, longer=10_000.0)

    assert contrasts(short, long, LEVELS, divergence(short, long).groups) is None
    assert divergence(short, long).judged_share == 0.0


def test_kl_of_too_few_samples_is_not_told():
    assert divergence(counted(normal(0, 59)), counted(normal(1))) is None


def test_kl_of_two_halves_of_one_stream_is_nearly_nothing():
    found = [divergence(counted(normal(seed)), counted(normal(1_000 + seed))) for seed in range(20)]

    assert np.mean([kl.latency_nats for kl in found]) < 0.002
    assert sum(kl.latency_changed for kl in found) <= 4
