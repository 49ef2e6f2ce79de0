from __future__ import annotations

import math

import numpy as np
import pytest

from detectors.kl import KlDetector

PANE_S = 10.0
CALM_PANES = 300
WINDOW_PANES = 6


def lognormal(rng, samples=50, factor=1.0):
    return factor * rng.lognormal(-1.0, 0.5, samples)


def prompts(rng, long_share, factor=1.0, samples=50):
    """Latencies in proportion to their prompts, and the prompts' tokens."""
    tokens = np.where(rng.random(samples) < long_share, 2_000.0, 100.0)
    return factor * tokens / 1_000.0 * rng.lognormal(0.0, 0.3, samples), tokens


def scores(detector, panes, state=None, start_s=0.0):
    """Feed ``panes``: arrays of values, or pairs of values and workload."""
    state = detector.initial() if state is None else state
    found = []
    for number, rows in enumerate(panes):
        values, workload = rows if isinstance(rows, tuple) else (rows, None)
        end_s = start_s + (number + 1) * PANE_S
        pane = detector.new_pane()
        pane.add(
            np.asarray(values, np.float32),
            np.full(len(values), end_s - 1.0),
            None if workload is None else np.asarray(workload, np.float32),
        )
        found.extend(detector.update(state, pane, end_s))
    return found


def drifting(found):
    return [number for number, score in enumerate(found) if score.drifting]


def numbers(score):
    fields = (getattr(score, name) for name in score.__slots__)
    return [v for v in (*fields, *score.evidence.values()) if isinstance(v, float)]


@pytest.mark.parametrize("samples", [20, 100])
@pytest.mark.parametrize("seed", range(4))
def test_a_stationary_stream_raises_nothing(seed, samples):
    rng = np.random.default_rng(seed)

    found = scores(KlDetector(), (lognormal(rng, samples) for _ in range(500)))

    assert drifting(found) == []
    assert all(score.drifting is False for score in found[-400:])
    assert {score.attribution for score in found} == {"none"}


@pytest.mark.parametrize("seed", range(5))
def test_half_slower_is_found_within_a_window_and_is_the_services_doing(seed):
    rng = np.random.default_rng(seed)
    calm = [lognormal(rng) for _ in range(CALM_PANES)]
    slow = [lognormal(rng, factor=1.5) for _ in range(20)]

    found = scores(KlDetector(), calm + slow)
    first = drifting(found)[0]

    assert CALM_PANES <= first < CALM_PANES + WINDOW_PANES
    assert {(s.direction, s.attribution) for s in found[first:]} == {("slower", "service")}
    assert found[-1].slowdown == pytest.approx(0.5, abs=0.25)
    assert found[-1].p99_s > 1.2 * found[-1].expected_p99_s
    assert found[-1].kl_nats > found[-1].workload_nats == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_an_improvement_is_faster(seed):
    rng = np.random.default_rng(seed)
    calm = [lognormal(rng) for _ in range(CALM_PANES)]

    found = scores(KlDetector(), calm + [lognormal(rng, factor=0.6) for _ in range(20)])

    assert drifting(found)[-1] == len(found) - 1
    assert (found[-1].direction, found[-1].attribution) == ("faster", "service")
    assert found[-1].slowdown < 0.0


@pytest.mark.parametrize("seed", range(3))
def test_a_tail_that_explodes_while_the_body_stays_is_slower(seed):
    rng = np.random.default_rng(seed)
    calm = [lognormal(rng) for _ in range(CALM_PANES)]
    tailed = [v * np.where(rng.random(50) < 0.1, 8.0, 1.0) for v in (lognormal(rng),) * 20]

    found = scores(KlDetector(), calm + tailed)

    assert drifting(found)[-1] == len(found) - 1
    assert found[-1].direction == "slower"
    assert found[-1].evidence["tail_share"] > 2.0 * found[-1].evidence["expected_tail_share"]


@pytest.mark.parametrize("seed", range(3))
def test_longer_prompts_are_the_traffics_doing(seed):
    rng = np.random.default_rng(seed)
    usual = [prompts(rng, 0.2) for _ in range(CALM_PANES)]
    longer = [prompts(rng, 0.6) for _ in range(30)]

    found = scores(KlDetector(strata_base=32.0), usual + longer)
    first = drifting(found)[0]

    assert CALM_PANES <= first < CALM_PANES + WINDOW_PANES
    assert {score.attribution for score in found[first:] if score.drifting} == {"workload"}
    assert found[-1].workload_nats > 10.0 * found[-1].service_nats
    assert found[-1].slowdown == pytest.approx(0.0, abs=0.2)


def test_the_same_prompts_served_slower_are_the_services_doing():
    rng = np.random.default_rng(1)
    usual = [prompts(rng, 0.2) for _ in range(CALM_PANES)]
    slower = [prompts(rng, 0.2, factor=1.5) for _ in range(30)]

    found = scores(KlDetector(strata_base=32.0), usual + slower)
    first = drifting(found)[0]

    assert CALM_PANES <= first < CALM_PANES + WINDOW_PANES
    assert {(s.direction, s.attribution) for s in found[first:]} == {("slower", "service")}


def test_longer_prompts_served_slower_are_both():
    rng = np.random.default_rng(2)
    usual = [prompts(rng, 0.2) for _ in range(CALM_PANES)]
    both = [prompts(rng, 0.6, factor=1.5) for _ in range(30)]

    last = scores(KlDetector(strata_base=32.0), usual + both)[-1]

    assert last.direction == "slower"
    assert last.attribution in {"mixed", "service"}
    assert min(last.workload_nats, last.service_nats) > 0.1


def test_the_first_panes_say_what_is_missing():
    rng = np.random.default_rng(0)

    found = scores(KlDetector(), [lognormal(rng, 20) for _ in range(64)])

    assert all(score.drifting is None and score.kl_nats is None for score in found[:-1])
    assert [score.why for score in found[:3]] == ["warming up"] * 3
    assert "20 of 300 samples" in found[3].why
    assert [score.learned for score in found if score.learned] == ["learned"]


def test_a_stream_that_has_become_too_thin_is_insufficient_not_calm():
    rng = np.random.default_rng(0)
    busy = [lognormal(rng) for _ in range(CALM_PANES)]
    thin = [lognormal(rng, 1 if pane % 10 == 0 else 0) for pane in range(200)]

    last = scores(KlDetector(), busy + thin)[-1]

    assert last.drifting is None
    assert "18 of 60 samples" in last.why


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="nothing"),
        pytest.param([0.1, 0.2], id="two samples"),
        pytest.param([0.3] * 20, id="all equal"),
        pytest.param([1e-9, 1e9] * 10, id="eighteen orders of magnitude"),
        pytest.param([0.0] * 20, id="zero"),
        pytest.param([-1.0] * 20, id="negative"),
        pytest.param([math.inf] * 20, id="infinite"),
        pytest.param([math.nan] * 20, id="not measured"),
    ],
)
def test_odd_constant_streams_raise_nothing_and_yield_no_nan(values):
    found = scores(KlDetector(), [values] * 400)

    assert drifting(found) == []
    assert all(math.isfinite(number) for score in found for number in numbers(score))


@pytest.mark.parametrize("value", [0.32, 0.6, 1e9, math.inf])
def test_a_change_from_one_constant_to_a_larger_is_found_in_its_first_window(value):
    found = scores(KlDetector(), [[0.3] * 20] * CALM_PANES + [[value] * 20] * 10)

    assert CALM_PANES <= drifting(found)[0] < CALM_PANES + WINDOW_PANES
    assert found[-1].direction == "slower"
    assert all(math.isfinite(number) for score in found for number in numbers(score))


def test_the_reference_does_not_learn_while_drift_is_suspected():
    rng = np.random.default_rng(4)
    detector = KlDetector()
    state = detector.initial()
    scores(detector, [lognormal(rng) for _ in range(CALM_PANES)], state)
    slow = [lognormal(rng, factor=1.5) for _ in range(100)]
    found = scores(detector, slow[:WINDOW_PANES], state, 3_000.0)
    before = state.baseline.counts

    found += scores(detector, slow[WINDOW_PANES:], state, 3_060.0)

    assert all(score.suspected for score in found[WINDOW_PANES:])
    np.testing.assert_array_equal(before.cells, state.baseline.counts.cells)
    np.testing.assert_array_equal(before.counts, state.baseline.counts.counts)


def test_the_reference_goes_on_learning_while_all_is_calm():
    rng = np.random.default_rng(4)
    detector = KlDetector()
    state = detector.initial()
    scores(detector, [lognormal(rng) for _ in range(100)], state)
    learned = state.baseline.counts.total + state.baseline.fresh.total

    scores(detector, [lognormal(rng) for _ in range(100)], state, 1_000.0)

    now = state.baseline.counts.total + state.baseline.fresh.total
    assert now == pytest.approx(learned + 100 * 50)
    assert state.baseline.fresh.total < 6 * 50


def test_a_drift_that_lasts_is_adopted_as_the_new_normal():
    rng = np.random.default_rng(5)
    detector = KlDetector(adopt_after_s=900.0)
    calm = [lognormal(rng) for _ in range(CALM_PANES)]
    slow = [lognormal(rng, factor=1.5) for _ in range(200)]
    back = [lognormal(rng) for _ in range(20)]

    found = scores(detector, calm + slow + back)
    adopted = next(n for n, score in enumerate(found) if score.learned == "adopted")
    after = found[adopted + WINDOW_PANES : CALM_PANES + len(slow)]

    assert adopted - drifting(found)[0] == pytest.approx(90, abs=3)
    assert found[adopted].why == "new normal adopted after 900 s of drift"
    assert [score.drifting for score in after] == [False] * len(after)
    assert after[-1].expected_p99_s == pytest.approx(1.5 * found[250].expected_p99_s, rel=0.1)
    assert (found[-1].drifting, found[-1].direction) == (True, "faster")


def test_a_drift_that_ends_before_it_is_adopted_leaves_the_old_normal():
    rng = np.random.default_rng(6)
    detector = KlDetector(adopt_after_s=900.0)
    calm = [lognormal(rng) for _ in range(CALM_PANES)]
    slow = [lognormal(rng, factor=1.5) for _ in range(60)]
    back = [lognormal(rng) for _ in range(150)]

    found = scores(detector, calm + slow + back)

    assert [score.learned for score in found if score.learned] == ["learned"]
    assert all(score.drifting is False for score in found[-140:])


def rows(rng, count, tokens):
    """Latency in proportion to the prompt: the service never changes here."""
    tokens = np.full(count, tokens) if np.isscalar(tokens) else rng.choice(tokens, count)
    values = tokens / 1_000.0 * rng.lognormal(-1.0, 0.3, count)
    return values.astype(np.float32), tokens.astype(np.float32)


def judge_mixes(detector, mixes, seed=7):
    """Score panes of 20 rows whose prompts come from ``mixes``, one mix a pane."""
    rng, state, scores = np.random.default_rng(seed), detector.initial(), []
    for number, mix in enumerate(mixes):
        pane = detector.new_pane()
        values, tokens = rows(rng, 20, mix)
        pane.add(values, np.zeros(20), tokens)
        scores += detector.update(state, pane, 10.0 * (number + 1))
    return scores


def test_prompts_longer_than_any_before_are_a_change_of_the_workload():
    short, mixed = np.array([100]), np.array([100, 2_000])

    scores = judge_mixes(KlDetector(strata_base=32.0), [short] * 200 + [mixed] * 40)

    drifting = [score for score in scores[200:] if score.drifting]
    assert drifting
    assert {score.attribution for score in drifting} == {"workload"}


def test_prompts_that_return_after_a_long_night_are_a_change_of_the_workload():
    day, night = np.array([100, 2_000]), np.array([100])

    scores = judge_mixes(KlDetector(strata_base=32.0), [day] * 300 + [night] * 1_200 + [day] * 60)

    blamed = [score for score in scores[1_500:] if score.attribution in {"service", "mixed"}]
    assert not blamed


def test_an_improvement_of_a_narrow_stream_is_seen():
    detector, state, scores = KlDetector(), None, []
    state = detector.initial()
    for number in range(250):
        pane = detector.new_pane()
        value = 0.30 if number < 200 else 0.15
        pane.add(np.full(20, value, np.float32), np.zeros(20), None)
        scores += detector.update(state, pane, 10.0 * (number + 1))

    assert scores[-1].drifting
    assert scores[-1].direction == "faster"


def test_a_reference_of_one_block_is_refused_since_there_is_nothing_to_compare_it_with():
    with pytest.raises(ValueError, match="reference_blocks=1"):
        KlDetector(reference_blocks=1)


# Streams that end, and streams that were always thin


@pytest.mark.parametrize("samples", [1, 5, 50])
def test_a_stream_that_has_ended_is_soon_insufficient_and_not_judged_by_what_it_was(samples):
    rng = np.random.default_rng(8)
    usual = [lognormal(rng, samples) for _ in range(4 * CALM_PANES)]

    found = scores(KlDetector(), [*usual, *[[]] * 200])

    assert found[len(usual) - 1].drifting is False
    after = [score.drifting for score in found[len(usual) :]]
    first = after.index(None)
    assert first <= 10
    assert set(after[first:]) == {None}
    assert found[len(usual) + first].why == f"no sample in the last {first + 1} panes"


def test_a_stream_that_goes_on_after_a_pause_is_judged_again_at_once():
    rng = np.random.default_rng(9)
    usual = [lognormal(rng, 20) for _ in range(CALM_PANES)]

    found = scores(KlDetector(), [*usual, *[[]] * 20, *usual[:20]])

    assert found[CALM_PANES + 19].drifting is None
    assert [score.drifting for score in found[CALM_PANES + 20 :]] == [False] * 20


def test_a_drift_of_a_stream_that_has_ended_is_no_drift_any_more():
    rng = np.random.default_rng(10)
    calm = [lognormal(rng) for _ in range(CALM_PANES)]
    slow = [lognormal(rng, factor=1.5) for _ in range(20)]

    found = scores(KlDetector(), [*calm, *slow, *[[]] * 60])

    assert found[CALM_PANES + 19].drifting is True
    assert {score.drifting for score in found[-50:]} == {None}


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_of_one_sample_in_two_panes_is_judged_all_the_time(seed):
    rng = np.random.default_rng(seed)

    found = scores(KlDetector(), (lognormal(rng, rng.poisson(0.5)) for _ in range(3_000)))

    first = next(number for number, score in enumerate(found) if score.drifting is not None)
    judged = [score.drifting for score in found[first:]]
    assert first < 1_700
    assert judged.count(False) > 0.99 * len(judged)
