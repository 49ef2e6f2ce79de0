"""What users of other detectors reported, put to the default one as the configuration makes it."""

import numpy as np
import pytest

from daom.config import Config
from daom.presets import cell_settings

PANE_S = 10.0


def default_detector(signal="ttft_s"):
    return next(s.detector for s in cell_settings(Config()).signals if s.name == signal)


def scores(panes):
    """What the default says of ``panes``, each an array of values."""
    detector = default_detector()
    state, found = detector.initial(), []
    for number, values in enumerate(panes):
        end_s = PANE_S * (number + 1)
        pane = detector.new_pane()
        rows = np.asarray(values, np.float32)
        pane.add(rows, np.full(rows.size, end_s - 1.0), np.full(rows.size, 100.0, np.float32))
        found.extend(detector.update(state, pane, end_s))
    return found


def spread(values, every_s):
    """Panes of ``values`` of which one comes ``every_s``."""
    times = every_s * np.arange(len(values))
    numbers = np.floor_divide(times, PANE_S).astype(int)
    return [np.asarray(values)[numbers == number] for number in range(numbers[-1] + 1)]


def onsets(found):
    """The panes in which a drift begins."""
    drifting = [score.drifting is True for score in found]
    return [n for n, now in enumerate(drifting) if now and not drifting[n - 1]]


def latencies(seed, panes, samples, factor=1.0):
    rng = np.random.default_rng(seed)
    return [factor * rng.lognormal(-1.0, 0.5, samples) for _ in range(panes)]


# Three levels, a thousand samples each: fired again and again at each change.


@pytest.mark.parametrize("seed", [42, 1, 2])
def test_two_changes_are_two_drifts(seed):
    rng = np.random.default_rng(seed)
    levels = [(0.8, 0.05), (0.4, 0.02), (0.6, 0.1)]
    values = np.concatenate([rng.normal(mean, sd, 1_000) for mean, sd in levels])
    # Each level lasts for five hours: long enough to become the new normal.
    every_s = 18.0

    began_s = [PANE_S * pane for pane in onsets(scores(spread(values, every_s)))]

    assert len(began_s) == 2
    for began, changed in zip(began_s, (1_000 * every_s, 2_000 * every_s), strict=True):
        assert changed <= began <= changed + 60 * every_s


# Ones, and nothing but ones: a detector fired on them.


@pytest.mark.parametrize("value", [1.0, 0.02, 60.0])
def test_a_stream_of_one_value_never_fires(value):
    found = scores([np.full(20, value)] * 400)

    assert {score.drifting for score in found[-200:]} == {False}
    assert onsets(found) == []


# A change at 1,000 was found at 1,007, and at 1,023 where the detector looked only now and then.


@pytest.mark.parametrize("samples", [7, 20, 32, 500])
def test_three_times_as_slow_is_found_within_two_panes_however_many_samples_they_hold(samples):
    calm = 6_000 // samples + 100

    found = scores([*latencies(1, calm, samples), *latencies(2, 6, samples, factor=3.0)])

    assert found[calm - 1].drifting is False
    assert calm <= onsets(found)[0] < calm + max(2, -(-40 // samples))


# The same distribution, a thousand samples against ten, and a divergence of 0.429 between them.


def test_ten_samples_against_a_thousand_are_insufficient_and_have_no_divergence():
    rng = np.random.default_rng(3)
    known = [1.0 + rng.normal(0.0, 0.1, 20) for _ in range(100)]
    # So long an absence that the window holds nothing else.
    few = [[]] * 400 + [1.0 + rng.normal(0.0, 0.1, 10)]

    last = scores([*known, *few])[-1]

    assert (last.drifting, last.kl_nats) == (None, None)
    assert "samples" in last.why


# The verdict on a twentieth of the data and that on all of it were opposite.


@pytest.mark.parametrize(
    ("factor", "drifting"), [(1.0, False), (1.03, False), (1.5, True), (0.6, True)]
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_verdict_on_a_twentieth_of_the_data_is_that_on_all_of_it(factor, drifting, seed):
    panes = [*latencies(seed, 120, 1_000), *latencies(seed + 10, 20, 1_000, factor)]

    full = scores(panes)[-1]
    twentieth = scores([values[::20] for values in panes])[-1]

    assert (full.drifting, twentieth.drifting) == (drifting, drifting)
    assert not drifting or full.direction == twentieth.direction
