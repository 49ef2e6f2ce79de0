"""Which combinations are replayed."""

import math

import pytest

from daom.tuning.search import ROUND, search
from daom.tuning.space import parse_space

GRID = "detector.confirm_panes: [1, 2, 3]\npreset: [default, adwin]"
LARGE = (
    "detector.false_alarm_interval_s: {from: 1d, to: 90d, log: true}\n"
    "detector.confirm_panes: {from: 1, to: 8}\n"
    "preset: [default, adwin]"
)


def carried_out(text, trials, judge, seed=1):
    """Return every setting that was proposed, judged by ``judge``."""
    searched, at_most = search(parse_space(text, "space"), trials, seed)
    proposed = list(next(searched))
    answers = list(map(judge, proposed))
    try:
        while True:
            more = searched.send(answers)
            answers = list(map(judge, more))
            proposed.extend(more)
    except StopIteration:
        assert len(proposed) == at_most
        return proposed


def test_a_small_space_is_tried_in_full_and_without_the_optimiser():
    proposed = carried_out(GRID, 6, lambda _: 0.0)

    assert len(proposed) == 6
    assert {tuple(setting.values()) for setting in proposed} == {
        (panes, preset) for panes in (1, 2, 3) for preset in ("default", "adwin")
    }


def missed(setting):
    """Return how far a setting is from the one that is best."""
    interval_s = setting["detector.false_alarm_interval_s"]
    away = abs(math.log(interval_s / (20 * 86_400.0))) + abs(setting["detector.confirm_panes"] - 3)
    return away + (setting["preset"] == "adwin")


def test_of_a_large_space_the_optimiser_proposes_better_settings_as_it_learns():
    pytest.importorskip("optuna")

    proposed = carried_out(LARGE, 6 * ROUND, missed)

    first, last = (
        sum(map(missed, part)) / len(part) for part in (proposed[:ROUND], proposed[-2 * ROUND :])
    )
    assert last < 0.6 * first
    assert all(86_400.0 <= s["detector.false_alarm_interval_s"] <= 90 * 86_400 for s in proposed)
    assert all(isinstance(setting["detector.confirm_panes"], int) for setting in proposed)


def test_the_same_answers_lead_to_the_same_proposals_which_is_how_a_search_goes_on():
    pytest.importorskip("optuna")

    first, again = (carried_out(LARGE, 3 * ROUND, missed) for _ in range(2))
    other = carried_out(LARGE, 3 * ROUND, missed, seed=2)

    assert first == again != other


def test_a_setting_that_could_not_be_tried_does_not_stop_the_search():
    pytest.importorskip("optuna")

    proposed = carried_out(LARGE, 2 * ROUND, lambda _: math.nan)

    assert len(proposed) == 2 * ROUND
