"""What a scan found, what it is worth, and when an alarm is over."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.evidence import MEMORY_PANES, Evidence, lean_on_shorter, learn, scan
from detectors.findings import alarm_of, find, has_recovered
from detectors.ranks import rank_among
from tests.detectors.feeding import counts_of

PANE_SAMPLES = 200
CALM_PANES = 200
SHOWN_PANES = 24
SHIFTED_PANES = 120
WINDOW_PANES = 6
MIN_NATS = 0.005
ALARMING_NATS = 20.0
WELL_KNOWN_NATS = 60.0
SHIFTS = {
    "20 % slower": lambda rng, n: 1.2 * rng.lognormal(-1.0, 0.5, n),
    "half slower": lambda rng, n: 1.5 * rng.lognormal(-1.0, 0.5, n),
    "20 % faster": lambda rng, n: rng.lognormal(-1.0, 0.5, n) / 1.2,
    "wider": lambda rng, n: rng.lognormal(-1.0, 0.8, n),
    "narrower": lambda rng, n: rng.lognormal(-1.0, 0.3, n),
    "a heavier tail": lambda rng, n: (
        rng.lognormal(-1.0, 0.5, n) * np.where(rng.random(n) < 0.05, 8.0, 1.0)
    ),
}
every_shift = pytest.mark.parametrize("shifted", SHIFTS.values(), ids=SHIFTS)


class Watch:
    """A series after its reference was learned."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.ranks = rank_among(counts_of(self.calm(self.rng, 400_000)))
        self.evidence = Evidence()
        for _ in range(CALM_PANES):
            self.take(self.calm)
            learn(self.evidence, scan(self.evidence, self.ranks))
        lean_on_shorter(self.evidence)

    @staticmethod
    def calm(rng, n):
        return rng.lognormal(-1.0, 0.5, n)

    def take(self, draw, samples=PANE_SAMPLES):
        self.evidence.take(self.ranks.scores(counts_of(draw(self.rng, samples))))

    def find(self, steady_panes=MEMORY_PANES):
        return find(scan(self.evidence, self.ranks), self.ranks, MIN_NATS, steady_panes)

    def alarmed(self, shifted):
        """Feed panes of ``shifted``; return the alarm that they raise."""
        for _ in range(SHOWN_PANES):
            self.take(shifted)
        finding = self.find()
        assert finding.nats > ALARMING_NATS
        return alarm_of(finding, self.evidence, self.ranks)

    def recovers(self, alarm, draw, panes):
        """Return for each of ``panes`` whether the alarm was over by then."""
        over = []
        for _ in range(panes):
            self.take(draw)
            over.append(has_recovered(alarm, self.evidence, WINDOW_PANES))
        return over


@every_shift
@pytest.mark.parametrize("seed", range(3))
def test_an_alarm_lasts_as_long_as_its_shift_and_is_over_soon_after(shifted, seed):
    watch = Watch(seed)
    alarm = watch.alarmed(shifted)

    meanwhile = watch.recovers(alarm, shifted, SHIFTED_PANES)
    after = watch.recovers(alarm, watch.calm, 2 * WINDOW_PANES)

    assert not any(meanwhile)
    assert after[-1]


def test_a_shift_that_has_gone_back_by_a_quarter_is_not_over():
    watch = Watch()
    alarm = watch.alarmed(SHIFTS["half slower"])

    less = watch.recovers(alarm, lambda rng, n: 1.35 * watch.calm(rng, n), SHIFTED_PANES)

    assert not any(less)


def test_a_shift_that_grows_is_not_over():
    watch = Watch()
    alarm = watch.alarmed(SHIFTS["20 % slower"])

    assert not any(watch.recovers(alarm, lambda rng, n: 4.0 * watch.calm(rng, n), 60))


def test_a_shift_that_has_turned_the_other_way_is_over():
    watch = Watch()
    alarm = watch.alarmed(SHIFTS["half slower"])

    assert watch.recovers(alarm, SHIFTS["20 % faster"], WINDOW_PANES)[-1]


def test_panes_without_samples_end_no_alarm():
    watch = Watch()
    alarm = watch.alarmed(SHIFTS["half slower"])
    over = []
    for _ in range(WINDOW_PANES - 1):
        watch.take(watch.calm, samples=0)
        over.append(has_recovered(alarm, watch.evidence, WINDOW_PANES))

    assert not any(over)


@pytest.mark.parametrize("seed", range(3))
def test_a_calm_stream_is_worth_little(seed):
    finding = Watch(seed).find()

    assert finding.nats <= finding.hint_nats < 10.0
    assert abs(finding.body_shift) < 0.2


def test_evidence_of_a_shift_says_which_statistic_how_much_and_since_when():
    watch = Watch()
    for _ in range(12):
        watch.take(SHIFTS["half slower"])

    finding = watch.find()

    assert finding.nats >= finding.body_nats > WELL_KNOWN_NATS
    assert finding.body_shift == pytest.approx(0.22, abs=0.04)
    assert 6 <= finding.panes <= 16


def test_a_heavier_tail_is_told_by_the_share_of_samples_in_it():
    watch = Watch()
    for _ in range(24):
        watch.take(SHIFTS["a heavier tail"])

    finding = watch.find()

    assert finding.tail_nats > ALARMING_NATS > finding.body_nats
    assert finding.tail_share > 2.0 * finding.expected_tail_share


def test_a_wider_distribution_at_the_same_median_is_told_by_its_spread():
    watch = Watch()
    for _ in range(12):
        watch.take(SHIFTS["wider"])

    assert watch.find().spread_nats > ALARMING_NATS > watch.find().body_nats


@pytest.mark.parametrize(
    ("factor", "is_suspected", "is_worth_a_word"),
    # A tenth of a standard deviation is worth a word, seven hundredths a suspicion.
    [(1.025, False, False), (1.043, True, False), (1.1, True, True)],
)
def test_however_significant_a_small_shift_is_not_worth_a_word(
    factor, is_suspected, is_worth_a_word
):
    watch = Watch()
    for _ in range(128):
        watch.take(lambda rng, n: factor * watch.calm(rng, n), samples=8_000)

    finding = watch.find()

    assert finding.body_nats > ALARMING_NATS
    assert (finding.hint_nats > ALARMING_NATS) is is_suspected
    assert (finding.nats > ALARMING_NATS) is is_worth_a_word


@pytest.mark.parametrize(("factor", "is_worth_a_word"), [(1.07, False), (1.5, True)])
def test_while_the_workload_moves_a_shift_that_it_may_explain_is_not_worth_a_word(
    factor, is_worth_a_word
):
    watch = Watch()
    for _ in range(24):
        watch.take(lambda rng, n: factor * watch.calm(rng, n), samples=8_000)

    assert watch.find().nats > ALARMING_NATS
    assert (watch.find(steady_panes=0).nats > ALARMING_NATS) is is_worth_a_word


def test_windows_that_begin_after_the_workload_has_come_to_rest_are_judged_as_usual():
    watch = Watch()
    for _ in range(24):
        watch.take(lambda rng, n: 1.07 * watch.calm(rng, n), samples=8_000)

    finding = watch.find(steady_panes=12)

    assert finding.nats > ALARMING_NATS
    assert finding.panes <= 12
