"""The Numenta Anomaly Benchmark: its scorer, the published score that it gives back, and DAOM's."""

from __future__ import annotations

import numpy as np
import pytest

from bench.nab.__main__ import main
from bench.nab.corpus import (
    Profile,
    Stream,
    Window,
    nab_folder,
    read_corpus,
    read_profiles,
    read_published,
)
from bench.nab.daom_detector import ALERT_NATS, alerts, best_threshold, evidence_nats, halves
from bench.nab.published import relative_entropy, windowed_gaussian
from bench.nab.scorer import Outcome, learning_rows, outcome, total
from bench.nab.scores import evenly, reproduced
from bench.nab.seasonal import SeasonalDetector, surprise_nats

STANDARD = Profile(found=1.0, missed=1.0, false_alarm=0.11)
TARGET = 60.0
DAY_ROWS = 288

needs_corpus = pytest.mark.skipif(
    not (nab_folder() / "labels").is_dir(),
    reason=f"the corpus of NAB is not in {nab_folder()}; DAOM_DATA says where data lie",
)


def stream_of(values, *windows, name="made up"):
    """A value each five minutes."""
    values = np.asarray(values, float)
    return Stream(name, 300.0 * np.arange(values.size), values, tuple(windows))


TWO_ANOMALIES = stream_of(np.zeros(1_000), Window(400, 449), Window(700, 749))


def score_of(*rows, stream=TWO_ANOMALIES, profile=STANDARD):
    fires = np.zeros(stream.values.size, bool)
    fires[list(rows)] = True
    return outcome(stream, fires).score(profile)


def days(count, rng, noise=1.0):
    """A daily wave with a steep morning, and noise."""
    hour = np.arange(count * DAY_ROWS) / DAY_ROWS * 24.0 % 24.0
    return 100.0 + 50.0 * (hour >= 8.0) + rng.normal(0.0, noise, hour.size)


def evidence_of(values):
    return evidence_nats(stream_of(values))


class TestScorer:
    def test_silence_scores_0(self):
        assert score_of() == 0.0

    def test_an_alert_on_the_first_row_of_every_anomaly_scores_100(self):
        assert score_of(400, 700) == pytest.approx(100.0)

    def test_half_of_the_anomalies_at_once_score_50(self):
        assert score_of(400) == pytest.approx(50.0)

    def test_a_late_alert_earns_less_and_one_on_the_last_row_still_more_than_silence(self):
        by_delay = [score_of(400 + delay) for delay in (0, 10, 25, 40, 49)]

        assert by_delay == sorted(by_delay, reverse=True)
        assert len(set(by_delay)) == len(by_delay)
        assert by_delay[-1] > 0.0

    def test_only_the_best_alert_of_an_anomaly_counts(self):
        assert score_of(410) == score_of(410, 411, 430, 449)

    def test_an_alert_far_from_every_anomaly_costs_its_weight(self):
        perfect_less_silence = 4.0

        assert score_of(300) == pytest.approx(-100.0 * 0.11 / perfect_less_silence)

    def test_an_alert_just_behind_an_anomaly_costs_less_than_one_far_behind(self):
        just, near, far = (score_of(row) for row in (450, 480, 699))

        assert 0.0 > just > near > far

    def test_rows_for_learning_count_nothing(self):
        assert learning_rows(1_000) == 150
        assert score_of(0, 149) == 0.0
        assert score_of(150) < 0.0

    def test_no_more_than_750_rows_are_for_learning(self):
        assert learning_rows(20_000) == 750

    def test_who_fears_misses_gains_more_by_a_late_alert(self):
        fears_misses = Profile(found=1.0, missed=2.0, false_alarm=0.11)

        assert score_of(449, profile=fears_misses) > score_of(449)

    def test_outcomes_of_streams_add_up(self):
        quiet = stream_of(np.zeros(1_000), name="no anomaly")
        fires = {TWO_ANOMALIES.name: np.zeros(1_000, bool), quiet.name: np.zeros(1_000, bool)}
        fires[TWO_ANOMALIES.name][[400, 700]] = True
        fires[quiet.name][500] = True

        both = total([TWO_ANOMALIES, quiet], fires)

        assert (both.windows, both.found, both.false_alarms) == (2, 2, 1)
        assert both.score(STANDARD) == pytest.approx(100.0 + score_of(300))

    def test_a_score_without_anomalies_is_refused(self):
        with pytest.raises(ValueError, match="at least one anomaly"):
            Outcome(false_alarms=3, wasted=3.0).score(STANDARD)

    def test_alerts_of_another_length_are_refused(self):
        with pytest.raises(ValueError, match=r"shape \(3,\)"):
            outcome(TWO_ANOMALIES, np.zeros(3, bool))


class TestSeasonalDetector:
    def test_a_stream_that_only_follows_the_hour_alarms_less_than_twice_a_week(self):
        nats = evidence_of(days(70, np.random.default_rng(1)))

        assert np.count_nonzero(alerts(nats)) < 20

    def test_a_value_of_the_day_at_night_is_one(self):
        values = days(10, np.random.default_rng(1))
        night = 9 * DAY_ROWS + 36
        values[night] += 50.0

        assert evidence_of(values)[night] > ALERT_NATS

    def test_a_lasting_shift_as_large_as_the_noise_is_seen_within_three_hours(self):
        values = days(10, np.random.default_rng(2))
        since = 8 * DAY_ROWS
        values[since:] += 1.0

        assert evidence_of(values)[since : since + 36].max() > ALERT_NATS

    def test_a_drop_surprises_like_a_rise(self):
        values = days(8, np.random.default_rng(3))

        assert evidence_of(values) == pytest.approx(evidence_of(-values))

    def test_nothing_is_known_of_what_is_to_come(self):
        values = days(8, np.random.default_rng(4))
        other = values.copy()
        other[7 * DAY_ROWS :] *= 3.0

        np.testing.assert_array_equal(
            evidence_of(values)[: 7 * DAY_ROWS], evidence_of(other)[: 7 * DAY_ROWS]
        )

    def test_a_stream_that_has_never_moved_surprises_when_it_does(self):
        values = np.full(2_000, 7.0)
        values[1_900] = 7.5
        nats = evidence_of(values)

        assert nats[:1_900].max() < 0.1
        assert nats[1_900] > ALERT_NATS

    def test_of_values_seen_before_the_share_at_least_as_large_is_counted(self):
        counts = np.zeros(1_920, np.int64)
        counts[900], counts[1_000] = 970, 30

        assert surprise_nats(counts, 1_000, 0.05) <= np.log(1_001 / 30)
        assert surprise_nats(counts, 900, 0.05) == pytest.approx(np.log(1_001 / 1_000))

    def test_beyond_the_largest_value_evidence_grows_with_the_distance(self):
        counts = np.zeros(1_920, np.int64)
        counts[900], counts[950], counts[1_000] = 960, 30, 10
        at, beyond, far = (surprise_nats(counts, bin_, 0.05) for bin_ in (1_000, 1_010, 1_020))

        assert at < beyond < far

    def test_there_is_no_evidence_before_the_tail_is_known(self):
        detector = SeasonalDetector()
        state = detector.initial()
        nats = [detector.update(state, float(n == 150), 300.0 * n) for n in range(160)]

        assert max(nats) == 0.0


class TestAlerts:
    def test_an_alert_fires_once_until_all_has_long_been_quiet(self):
        nats = np.zeros(300)
        nats[[20, 21, 60, 200]] = 9.0

        assert np.flatnonzero(alerts(nats, quiet_samples=50)).tolist() == [20, 200]

    def test_even_alerts_are_as_many_as_those_that_they_are_compared_with(self):
        fires = np.zeros(1_000, bool)
        fires[[200, 300, 400, 500, 600]] = True

        even = evenly([TWO_ANOMALIES], {TWO_ANOMALIES.name: fires})[TWO_ANOMALIES.name]

        assert np.flatnonzero(even).tolist() == [319, 489, 659, 829, 999]


class TestPublishedDetectors:
    def test_a_window_like_none_before_is_an_anomaly_once(self):
        values = np.r_[np.tile([0.0, 1.0], 100), np.full(100, 10.0), np.tile([0.0, 1.0], 100)]
        scores = relative_entropy(values)

        assert scores[:200].max() == 0.0
        assert scores[200:300].max() == 1.0
        assert scores[352:].max() == 0.0

    def test_a_flat_stream_has_no_anomaly(self):
        assert relative_entropy(np.ones(200)).max() == 0.0

    def test_a_value_far_from_the_window_is_certainly_improbable(self):
        values = np.random.default_rng(5).normal(0.0, 1.0, 500)
        values[400] = 9.0

        assert windowed_gaussian(values)[400] == 1.0
        assert windowed_gaussian(values)[401:].max() < 1.0


def test_a_missing_corpus_is_said_with_how_to_name_another_folder(tmp_path, capsys):
    assert main(["--data", str(tmp_path)]) == 2
    assert f"no corpus in {tmp_path}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def corpus():
    return read_corpus(nab_folder())


@pytest.fixture(scope="module")
def corpus_nats(corpus):
    return {stream.name: evidence_nats(stream) for stream in corpus}


@needs_corpus
def test_the_corpus_is_the_one_that_scores_were_published_for(corpus):
    assert len(corpus) == 58
    assert sum(len(stream.windows) for stream in corpus) == 116


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("name", ["relativeEntropy", "windowedGaussian"])
def test_a_published_detector_made_anew_gets_its_published_scores(name, corpus):
    published = read_published(nab_folder())[name]

    assert reproduced(name, nab_folder(), corpus) == pytest.approx(published, abs=0.05)


@needs_corpus
@pytest.mark.slow
def test_daom_scores_above_60_on_all_streams_and_on_those_held_out(corpus, corpus_nats):
    standard = read_profiles(nab_folder())["standard"]
    fires = {name: alerts(nats) for name, nats in corpus_nats.items()}
    _, held_out = halves(corpus)

    assert total(corpus, fires).score(standard) > TARGET
    assert total(held_out, fires).score(standard) > TARGET


@needs_corpus
@pytest.mark.slow
def test_the_threshold_is_the_best_one_for_the_streams_it_was_tuned_on(corpus, corpus_nats):
    tuned_on, _ = halves(corpus)

    assert best_threshold(tuned_on, corpus_nats, read_profiles(nab_folder())["standard"]) == (
        ALERT_NATS
    )
