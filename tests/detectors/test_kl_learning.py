"""How the default detector comes to its reference, keeps it, and changes it."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.kl import KlDetector
from tests.detectors.feeding import (
    PANE_S,
    WINDOW_PANES,
    drifting,
    lognormal,
    scores,
    steady,
)

CALM_PANES = 150
BLOCK_PANES = 60
"""Of ten blocks, each as long as a window."""
ADOPT_AFTER_S = 1_200.0


def learned(found):
    """Return the cycles in which a reference was made."""
    return [number for number, score in enumerate(found) if score.learned is not None]


def test_the_first_panes_say_what_is_missing():
    rng = np.random.default_rng(0)

    found = scores(KlDetector(), [lognormal(rng, 20) for _ in range(64)])

    assert all(score.drifting is None and score.kl_nats is None for score in found[:-1])
    assert [score.why for score in found[:3]] == ["warming up"] * 3
    assert "20 of 300 samples" in found[3].why
    assert [score.learned for score in found if score.learned] == ["learned"]


def test_the_reference_does_not_learn_while_drift_is_suspected():
    rng = np.random.default_rng(4)
    detector = KlDetector()
    state = detector.initial()
    scores(detector, steady(rng, CALM_PANES), state)
    slow = steady(rng, 100, factor=1.5)
    found = scores(detector, slow[:WINDOW_PANES], state, CALM_PANES * PANE_S)
    before = state.baseline.counts

    found += scores(detector, slow[WINDOW_PANES:], state, (CALM_PANES + WINDOW_PANES) * PANE_S)

    assert all(score.suspected for score in found[WINDOW_PANES:])
    np.testing.assert_array_equal(before.cells, state.baseline.counts.cells)
    np.testing.assert_array_equal(before.counts, state.baseline.counts.counts)


def samples_learned(state):
    return sum(part.total for part in (state.baseline.counts, *state.baseline.fresh))


def test_the_reference_goes_on_learning_while_all_is_calm():
    rng = np.random.default_rng(4)
    detector = KlDetector()
    state = detector.initial()
    scores(detector, steady(rng, 100), state)
    learned = samples_learned(state)

    scores(detector, steady(rng, 100), state, 1_000.0)

    now = samples_learned(state)
    assert now == pytest.approx(learned + 100 * 50)


def test_a_reference_of_one_block_is_refused_since_there_is_nothing_to_compare_it_with():
    with pytest.raises(ValueError, match="reference_blocks=1"):
        KlDetector(reference_blocks=1)


# Slow change


def test_a_creep_of_one_percent_an_hour_is_followed():
    rng = np.random.default_rng(1)
    hours, panes_an_hour = 24, 360
    factors = 1.01 ** (np.arange(hours * panes_an_hour) / panes_an_hour)

    found = scores(KlDetector(), [lognormal(rng, 20, factor) for factor in factors])

    assert drifting(found) == []
    assert len(learned(found)) == 1
    early, late = (found[n].expected_p99_s for n in (2 * panes_an_hour, -1))
    assert late > 1.08 * early


# A drift that lasts


def test_a_drift_that_lasts_is_adopted_as_the_new_normal():
    rng = np.random.default_rng(5)
    detector = KlDetector(adopt_after_s=ADOPT_AFTER_S)
    slow = steady(rng, 200, factor=1.5)

    found = scores(detector, steady(rng, CALM_PANES) + slow + steady(rng, 20))
    _, adopted = learned(found)
    after = found[adopted + WINDOW_PANES : CALM_PANES + len(slow)]

    assert adopted - drifting(found)[0] == pytest.approx(ADOPT_AFTER_S / PANE_S, abs=3)
    assert found[adopted].learned == "new normal adopted after 1200 s of drift"
    assert "P99 of the reference" in found[adopted].why
    assert {score.drifting for score in after} == {False}
    assert after[-1].expected_p99_s == pytest.approx(
        1.5 * found[CALM_PANES - 1].expected_p99_s, rel=0.1
    )
    assert (found[-1].drifting, found[-1].direction) == (True, "faster")


def test_a_drift_that_ends_before_it_is_adopted_leaves_the_old_normal():
    rng = np.random.default_rng(6)
    detector = KlDetector(adopt_after_s=ADOPT_AFTER_S)
    calm, slow, back = steady(rng, CALM_PANES), steady(rng, 60, factor=1.5), steady(rng, 200)

    found = scores(detector, calm + slow + back)

    assert len(learned(found)) == 1
    assert {score.drifting for score in found[-180:]} == {False}
    assert found[-1].expected_p99_s == pytest.approx(found[CALM_PANES].expected_p99_s, rel=0.1)


def test_what_came_before_the_drift_is_no_part_of_the_new_normal():
    rng = np.random.default_rng(7)
    detector = KlDetector(adopt_after_s=ADOPT_AFTER_S)

    found = scores(detector, steady(rng, CALM_PANES) + steady(rng, 150, factor=3.0))
    evidence = found[learned(found)[-1]].evidence

    for name in ("p50_s", "p90_s", "p99_s"):
        assert evidence[f"expected_{name}"] == pytest.approx(
            3.0 * evidence[f"previous_{name}"], rel=0.15
        )


# A renewal


def renewed(factor, *, accepted=False, panes=200, seed=3):
    """Return the scores from a renewal on, after which all is ``factor`` times as slow."""
    rng = np.random.default_rng(seed)
    detector = KlDetector(adopt_after_s=ADOPT_AFTER_S)
    state = detector.initial()
    before = scores(detector, steady(rng, CALM_PANES), state)[-1]
    detector.renew(state, "version 2", accepted=accepted)
    slower = steady(rng, panes, factor=factor)
    return before, scores(detector, slower, state, CALM_PANES * PANE_S)


@pytest.mark.parametrize("factor", [0.6, 1.0])
def test_a_deployment_that_made_nothing_slower_is_adopted_as_soon_as_it_is_known(factor):
    before, found = renewed(factor)

    (adopted,) = learned(found)
    assert adopted == pytest.approx(BLOCK_PANES, abs=2 * WINDOW_PANES)
    assert found[adopted].learned == "version 2"
    assert found[-1].expected_p99_s == pytest.approx(factor * before.expected_p99_s, rel=0.1)
    assert {score.drifting for score in found[adopted + WINDOW_PANES :]} == {False}


def test_meanwhile_it_is_judged_by_the_old_reference():
    _, better = renewed(0.6, panes=BLOCK_PANES - WINDOW_PANES)
    _, worse = renewed(1.5, panes=BLOCK_PANES - WINDOW_PANES)
    _, equal = renewed(1.0, panes=BLOCK_PANES - WINDOW_PANES)

    assert {score.direction for score in better if score.drifting} == {"faster"}
    assert {score.direction for score in worse if score.drifting} == {"slower"}
    assert {score.drifting for score in equal} == {False}
    assert drifting(better)[0] < 4 > drifting(worse)[0]


def test_a_slower_deployment_drifts_until_it_has_lasted():
    _, found = renewed(1.5)

    (adopted,) = learned(found)
    assert adopted * PANE_S == pytest.approx(ADOPT_AFTER_S, abs=3 * PANE_S)
    assert set(drifting(found)) == set(range(drifting(found)[0], adopted))
    assert "new normal" in found[adopted].learned


@pytest.mark.parametrize("factor", [0.6, 1.5, 4.0])
def test_what_is_accepted_is_adopted_slower_or_not(factor):
    before, found = renewed(factor, accepted=True)

    (adopted,) = learned(found)
    assert adopted == pytest.approx(BLOCK_PANES, abs=2 * WINDOW_PANES)
    assert found[adopted].learned == "version 2"
    assert found[-1].drifting is False
    assert found[-1].expected_p99_s == pytest.approx(factor * before.expected_p99_s, rel=0.1)


def test_an_adoption_reports_both_references():
    before, found = renewed(0.6)
    score = found[learned(found)[0]]

    assert score.drifting is None
    assert score.evidence["previous_p99_s"] == pytest.approx(before.expected_p99_s, rel=0.05)
    assert score.evidence["expected_p99_s"] == score.expected_p99_s
    assert score.evidence["expected_p99_s"] == pytest.approx(
        0.6 * score.evidence["previous_p99_s"], rel=0.1
    )
    assert score.service_nats > 0.3
    assert (score.direction, score.attribution) == ("none", "none")


def test_a_drift_that_has_lasted_long_enough_is_accepted_at_once():
    rng = np.random.default_rng(8)
    detector = KlDetector()
    state = detector.initial()
    scores(detector, steady(rng, CALM_PANES) + steady(rng, 100, factor=1.5), state)

    detector.renew(state, "the operator accepts it", accepted=True)
    found = scores(detector, steady(rng, 20, factor=1.5), state, 2_500.0)

    assert learned(found)[0] < WINDOW_PANES
    assert {score.drifting for score in found[2 * WINDOW_PANES :]} == {False}


def test_a_renewal_while_learning_begins_to_learn_anew_as_if_nothing_had_been():
    rng = np.random.default_rng(9)
    detector = KlDetector(warmup_panes=0)
    state = detector.initial()
    scores(detector, steady(rng, 40), state)
    slower = steady(rng, 100, factor=4.0)

    detector.renew(state, "version 2")

    assert scores(detector, slower, state) == scores(KlDetector(warmup_panes=0), slower)


def test_what_is_accepted_while_learning_changes_nothing():
    rng = np.random.default_rng(10)
    panes = steady(rng, 100)
    expected = scores(KlDetector(), panes)
    detector = KlDetector()
    state = detector.initial()

    found = scores(detector, panes[:40], state)
    detector.renew(state, "accepted", accepted=True)
    found += scores(detector, panes[40:], state, 40 * PANE_S)

    assert expected == found


def test_a_new_reference_judges_as_the_old_one_did():
    rng = np.random.default_rng(11)
    detector = KlDetector()
    state = detector.initial()
    scores(detector, steady(rng, CALM_PANES), state)
    detector.renew(state, "version 2")
    scores(detector, steady(rng, 100), state, CALM_PANES * PANE_S)

    after = (CALM_PANES + 100) * PANE_S
    found = scores(detector, steady(rng, 60) + steady(rng, 10, factor=1.5), state, after)

    assert 60 <= drifting(found)[0] < 60 + WINDOW_PANES
