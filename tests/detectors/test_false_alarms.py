"""Stationary streams: how often the default detector calls one drifting."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.kl import KlDetector
from tests.detectors.feeding import PANE_S, ar1, drifting, lognormal, onsets, scores

SAMPLES = 20


def independent(rng, panes):
    return [lognormal(rng, SAMPLES) for _ in range(panes)]


def correlated(rng, panes):
    """AR(1) of the logarithm, from sample to sample."""
    return list(np.exp(-1.0 + 0.5 * ar1(rng, 0.9, panes * SAMPLES)).reshape(panes, SAMPLES))


def step_shared(rng, panes):
    """Tokens, eight of which share the duration of a step."""
    return [np.repeat(lognormal(rng, 5), 8) for _ in range(panes)]


STREAMS = {"independent": independent, "AR(1)": correlated, "step-shared": step_shared}
every_stream = pytest.mark.parametrize("draw", STREAMS.values(), ids=STREAMS)


@every_stream
def test_half_a_day_of_a_stationary_stream_raises_nothing(draw):
    found = scores(KlDetector(), draw(np.random.default_rng(1), 2_000))

    judged = [score for score in found if score.drifting is not None]
    assert len(judged) > 1_900
    assert drifting(found) == []


@every_stream
def test_drifts_are_about_as_rare_as_was_asked_for(draw):
    interval_s, panes, seeds = 3_600.0, 2_000, 2
    counted = 0
    for seed in range(seeds):
        detector = KlDetector(false_alarm_interval_s=interval_s, adopt_after_s=1e9)
        counted += len(onsets(scores(detector, draw(np.random.default_rng(seed), panes))))

    # A new reference is rough, and an alarm that comes back is counted again.
    assert counted < 3.0 * seeds * panes * PANE_S / interval_s
