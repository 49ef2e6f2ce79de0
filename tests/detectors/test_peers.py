"""Engines of a model beside one another: no history, and a cost that is linear in them."""

import numpy as np
import pytest

from detectors.histogram import SparseCounts
from detectors.peers import MIN_ENGINES, Peers, PeersState
from tests.detectors.feeding import PANE_S, counts_of, lognormal

FIVE = ("a", "b", "c", "d", "e")
HOUR_PANES = 360


def compare(panes, peers=None, state=None):
    """Feed panes, each a dictionary of the engines' values; return the scores of each."""
    peers = Peers(pane_s=PANE_S) if peers is None else peers
    state = PeersState() if state is None else state
    found = []
    for number, values in enumerate(panes, start=1):
        counts = {name: counts_of(v) for name, v in values.items()}
        together = SparseCounts.sum_of(list(counts.values()))
        found.append(peers.update(state, counts, together, number * PANE_S))
    return found


def fleet(seed, panes, engines=FIVE, samples=20, **factors):
    """Panes of engines that are alike, but for those with a factor of their own."""
    rng = np.random.default_rng(seed)
    return [
        {name: lognormal(rng, samples, factors.get(name, 1.0)) for name in engines}
        for _ in range(panes)
    ]


def apart(found):
    """The engines that were called apart in any pane, with the direction."""
    return {
        (name, "slower" if score.shift > 0.0 else "faster")
        for scores in found
        for name, score in scores.items()
        if score.apart
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("factor", "direction"), [(1.3, "slower"), (1 / 1.3, "faster")])
def test_an_odd_engine_is_found_in_minutes_whichever_way_it_is_odd(seed, factor, direction):
    assert apart(compare(fleet(seed, 60, b=factor))) == {("b", direction)}


def test_the_slowdown_against_the_median_is_told_about_right():
    *_, last = compare(fleet(3, 60, samples=100, c=1.4))

    assert last["c"].slowdown == pytest.approx(0.4, abs=0.1)
    assert abs(last["a"].slowdown) < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_engines_that_are_alike_are_not_called_apart_in_half_a_day(seed):
    peers = Peers(pane_s=PANE_S, false_alarm_interval_s=7 * 86_400.0, min_slowdown=0.0)

    assert apart(compare(fleet(seed, 12 * HOUR_PANES, samples=8), peers)) == set()


@pytest.mark.parametrize("engines", [("a",), ("a", "b")])
def test_one_or_two_engines_have_no_peers(engines):
    assert compare(fleet(1, 30, engines, a=3.0)) == [{}] * 30


def test_an_engine_that_goes_leaves_no_trace():
    state, peers = PeersState(), Peers(pane_s=PANE_S)
    compare(fleet(1, 10), peers, state)

    found = compare(fleet(2, 10, FIVE[:MIN_ENGINES]), peers, state)

    assert set(state.peers) == set(FIVE[:MIN_ENGINES]) == set(found[-1])


def test_what_stands_apart_for_good_is_its_usual_place():
    peers = Peers(pane_s=PANE_S, adopt_after_s=HOUR_PANES * PANE_S)
    found = compare(fleet(5, 3 * HOUR_PANES, d=1.4), peers)

    assert ("d", "slower") in apart(found[:HOUR_PANES])
    assert apart(found[2 * HOUR_PANES :]) == set()


@pytest.mark.parametrize("value", [1e-9, 0.25, 1e9])
def test_engines_that_all_show_one_value_are_alike(value):
    panes = [dict.fromkeys(FIVE, [value] * 10)] * 30

    found = compare(panes)

    assert apart(found) == set()
    numbers = [n for scores in found for score in scores.values() for n in score[:3]]
    assert np.isfinite(numbers).all()


@pytest.mark.parametrize("slow", [1e-9, 1e9])
def test_one_that_shows_another_value_than_all_others_has_finite_scores(slow):
    panes = [dict.fromkeys(FIVE, [0.25] * 10) | {"b": [slow] * 10}] * 30

    found = compare(panes)

    assert {name for name, _ in apart(found)} == {"b"}
    numbers = [n for scores in found for score in scores.values() for n in score[:3]]
    assert np.isfinite(numbers).all()


def test_engines_that_fall_silent_are_not_judged_by_what_they_were():
    panes = fleet(1, 30)
    silent = [dict.fromkeys(FIVE, ())] * 40

    assert compare(panes + silent)[-1] == {}
