"""What so many alerts, misses and delays can prove."""

import numpy as np
import pytest

from daom.heard import Heard
from daom.report.rates import WEEK_S, median_interval, observed_s, rate
from tests.report_outputs import T0, verdict

DRAWS = 400


def test_limits_of_a_rate_are_garwoods():
    """Of the table of Poisson limits: 4 events are compatible with 1.09 to 10.24."""
    found = rate(4, 2.0 * WEEK_S)

    assert found is not None
    assert found == pytest.approx((2.0, 1.09 / 2.0, 10.24 / 2.0), rel=0.01)


def test_a_quiet_week_proves_no_more_than_3_7_alerts():
    assert rate(0, WEEK_S) == pytest.approx((0.0, 0.0, 3.69), rel=0.01)


def test_of_nothing_observed_there_is_no_rate():
    assert rate(0, 0.0) is None


def test_fewer_than_six_delays_have_no_limits_of_their_median():
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert median_interval([]) is None


@pytest.mark.parametrize("n", [6, 9, 25])
def test_limits_of_the_median_hold_it_in_95_percent_of_draws(n):
    rng = np.random.default_rng(n)
    draws = rng.exponential(1.0, (DRAWS, n))

    held = sum(
        least <= np.log(2.0) <= most
        for least, most in (median_interval(draw.tolist()) for draw in draws)
    )

    assert held / DRAWS >= 0.93


def test_the_time_observed_is_when_any_series_was_judged_without_the_silences():
    heard = Heard()
    for time_s in (0.0, 100.0, 400.0):
        heard.note(verdict(T0 + time_s))

    assert observed_s(heard, {}) == 400.0
    assert observed_s(heard, {"m": [(T0 + 100.0, T0 + 150.0)]}) == 350.0
    assert observed_s(heard, {"other": [(T0 + 100.0, T0 + 150.0)]}) == 400.0
