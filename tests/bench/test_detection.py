"""The detection benchmark: streams are what they claim, and what is obvious is found."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bench.detection.alarms import Alarm, Watched, joined
from bench.detection.calibrate import Tunable, calibrated
from bench.detection.experiments import Plan, attribution_figures, stationary_cases
from bench.detection.kswin import KswinLaw, kswin, p_value
from bench.detection.measure import (
    Delays,
    FalseAlarms,
    delay_s,
    delays,
    false_alarms,
    lorden_bound_s,
)
from bench.detection.ours import Daom, Sits2026, daom_detector, scores
from bench.detection.peers import DriftFdr, EveryN, adwin, page_hinkley, pane_means
from bench.detection.report import (
    Row,
    duration,
    merged,
    read_json,
    shown,
    write_json,
    write_markdown,
)
from bench.detection.streams import (
    HOUR_S,
    START_S,
    Stream,
    autocorrelated,
    moving_workload,
    shifted,
    slower_by,
)
from detectors.river_adapters import RiverDetector

MONTH_S = 30 * 86_400.0
DOUBLED = slower_by(1.0)


def rng():
    return np.random.default_rng(7)


# Alarms, intervals, delays


def at(*times_s):
    return [Alarm(START_S + t, START_S + t) for t in times_s]


def test_firings_within_five_minutes_are_one_alarm():
    alarms = joined(at(0.0, 300.0, 600.0, 901.0))

    assert [(a.begin_s - START_S, a.end_s - START_S) for a in alarms] == [(0, 600), (901, 901)]


def test_time_in_alarm_is_no_calm():
    watched = Watched.of_firings(3_600.0, at(0.0, 200.0, 400.0, 1_000.0))

    assert (watched.at_risk_s, len(watched.alarms)) == (3_200.0, 2)


def test_the_interval_is_time_at_risk_over_alarms_with_exact_limits():
    """Garwood: 4 events have a 95 % interval of 1.0899 to 10.2416."""
    found = FalseAlarms(alarms=4, at_risk_s=4_000.0)

    assert found.interval_s == 1_000.0
    assert found.limits_s == pytest.approx((4_000 / 10.2416, 4_000 / 1.0899), rel=1e-4)


def test_a_delay_is_that_of_the_first_alarm_that_begins_after_the_onset():
    watched = Watched.of_firings(5_000.0, at(100.0, 2_000.0, 4_000.0))

    assert delay_s(watched, START_S + 1_500.0, START_S + 5_000.0) == 500.0
    assert delay_s(watched, START_S + 4_500.0, START_S + 5_000.0) == math.inf


def test_missed_runs_count_as_infinitely_late():
    found = Delays((10.0, 20.0, math.inf, math.inf, 30.0), in_alarm=0)

    assert (found.median_s, found.missed) == (30.0, 0.4)


def test_lordens_bound_is_the_log_of_the_interval_over_the_information():
    assert lorden_bound_s(10.0 * math.e**3, 0.5) == pytest.approx(6.0)


def test_a_stream_that_does_not_change_has_no_delay():
    with pytest.raises(ValueError, match="seed 1 does not change"):
        delays(EveryN(HOUR_S), autocorrelated(0.0, 1.0), [1])


# Detectors


def test_an_alarm_every_n_comes_every_n_and_begins_anywhere():
    watched = [EveryN(interval_s=HOUR_S).watch(autocorrelated(0.0, 10.0)(n)) for n in (1, 2)]
    begins_s = [[alarm.begin_s for alarm in one.alarms] for one in watched]

    assert [len(one) for one in begins_s] == [10, 10]
    assert np.diff(begins_s) == pytest.approx(np.full((2, 9), HOUR_S))
    assert begins_s[0][0] != begins_s[1][0]


@pytest.mark.parametrize(
    "column",
    [Daom("daom", MONTH_S), Sits2026(), adwin(), page_hinkley(), kswin()],
    ids=lambda column: column.name,
)
def test_every_detector_finds_latency_doubled(column):
    found = delays(column, shifted(DOUBLED, 0.0, 2.0), [1, 2])

    assert len(found.delays_s) + found.in_alarm == 2
    assert max(found.delays_s, default=0.0) < 600.0


def test_driftfdr_finds_latency_doubled_and_takes_an_empty_pane_for_the_one_before():
    pytest.importorskip("driftfdr", reason="driftfdr comes with the extra 'bench'")
    gap = Stream(
        times_s=START_S + np.array([1.0, 2.0, 25.0]), values_s=np.ones(3), end_s=START_S + 30.0
    )

    found = delays(DriftFdr(MONTH_S), shifted(DOUBLED, 0.0, 2.0), [1])

    assert found.delays_s[0] < 600.0
    assert pane_means(gap).tolist() == [0.0, 0.0, 0.0]


def test_the_default_detector_is_built_with_the_interval_that_is_asked_for():
    """Nothing else of it is set here, so what is measured is what is shipped."""
    stream = autocorrelated(0.0, 0.5)(1)
    detector = daom_detector(workload=False, false_alarm_interval_s=MONTH_S)

    said = list(scores(detector, stream))

    assert len(said) == 180
    assert said[0].drifting is None
    assert said[-1].drifting is False


def test_the_workload_is_told_and_a_longer_prompt_is_not_put_down_to_the_service():
    figures = attribution_figures(
        Daom("daom", MONTH_S), moving_workload("x2", 0.0), range(1, 4), lambda: None
    )

    assert figures["service_share"] == 0.0


def test_river_fires_where_the_adapter_of_the_product_fires():
    stream = shifted(DOUBLED, 0.0, 2.0)(1)
    fired_s = [s.end_s for s in scores(RiverDetector("adwin", hold_s=0.0), stream) if s.drifting]

    alarms = adwin().watch(stream).alarms

    assert 0.0 < fired_s[0] - alarms[0].begin_s <= 10.0


def test_kswin_seen_only_shortly_before_the_change_says_the_same():
    logs = rng().normal(size=2_400)
    logs[2_000:] += 3.0
    times_s = START_S + np.arange(2_400.0)
    end_s, onset_s = START_S + 2_400.0, START_S + 2_000.0
    stream = Stream(times_s=times_s, values_s=np.exp(logs), end_s=end_s, onset_s=onset_s)
    brief, whole = kswin(1e-6), replace(kswin(1e-6), memory_samples=None)

    [soon] = brief.watch(stream, until_found=True).alarms
    [as_soon] = whole.watch(stream, until_found=True).alarms

    assert 10.0 < soon.begin_s - onset_s < 30.0
    assert soon.begin_s == pytest.approx(as_soon.begin_s, abs=3.0)


def test_kswins_law_has_kswins_false_alarms():
    null = autocorrelated(0.0, 1.0)

    law = false_alarms(KswinLaw(0.01), null, range(1, 21))
    low_s, high_s = false_alarms(kswin(0.01), null, [1]).limits_s

    assert low_s < law.interval_s < high_s


def test_kswins_p_value_is_that_of_the_distance():
    """Of two samples of n, P(D >= k / n) is an alternating sum of C(2n, n - ik) / C(2n, n)."""
    beyond = 2 * (math.comb(60, 15) - math.comb(60, 0)) / math.comb(60, 30)

    assert p_value(0) == 1.0
    assert p_value(15) == pytest.approx(beyond, rel=1e-6)


def test_a_peer_is_calibrated_to_the_most_sensitive_setting_that_holds():
    null = autocorrelated(0.0, 3.0)
    tunable = Tunable("PH", (20.0, 40.0, 80.0, 160.0, 320.0), page_hinkley)

    found = calibrated(tunable, null, range(1, 4), HOUR_S)
    place = tunable.settings.index(found.setting)

    assert false_alarms(found, null, range(1, 4)).interval_s >= HOUR_S
    looser = page_hinkley(tunable.settings[place - 1])
    assert false_alarms(looser, null, range(1, 4)).interval_s < HOUR_S


def test_a_peer_that_holds_the_interval_at_no_setting_is_not_calibrated():
    assert (
        calibrated(Tunable("PH", (1.0,), page_hinkley), autocorrelated(0.0, 1.0), [1], 1e9) is None
    )


# The report


def row(**figures):
    return Row("shifts", "+20%", "daom", "1-20", "python -m x", "--seeds 20", figures)


def test_figures_are_shown_with_their_units():
    assert [duration(s) for s in (90.0, 150.0, 86_400.0, math.inf, math.nan)] == [
        "90 s",
        "2.5 min",
        "24.0 h",
        "never",
        "-",
    ]
    assert shown("missed_share", 0.05) == "5%"
    assert shown("of_bound_ratio", math.inf) == "-"


def test_rows_come_back_from_json_as_they_were(tmp_path):
    rows = [row(median_delay_s=math.inf, alarms_count=3, setting_text="none holds")]
    write_json(rows, tmp_path / "rows.json")

    assert read_json(tmp_path / "rows.json") == rows
    assert read_json(tmp_path / "missing.json") == []


def test_rows_measured_anew_take_the_place_of_their_elders_and_join_their_stream():
    def of(stream, column, delay_s):
        return replace(row(median_delay_s=delay_s), stream=stream, column=column)

    old = [of("+5%", "daom", 9.0), of("+5%", "ADWIN", 8.0), of("+9%", "daom", 7.0)]
    new = [of("+5%", "KSWIN", 5.0), of("+9%", "daom", 6.0), of("+10%", "daom", 4.0)]

    assert merged(old, new) == [*old[:2], *new]


def test_a_table_replaces_the_one_in_the_page_and_touches_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin shifts -->\nold\n<!-- end shifts -->\nafter\n", "utf-8")

    write_markdown([row(median_delay_s=90.0)], page)
    once = page.read_text("utf-8")
    write_markdown([row(median_delay_s=90.0)], page)

    assert page.read_text("utf-8") == once
    assert "| +20% | daom | 1-20 | 90 s |" in once
    assert (once.startswith("before\n"), once.endswith("\nafter\n"), "old" in once) == (
        True,
        True,
        False,
    )


def test_a_page_without_a_place_for_a_table_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing\n", "utf-8")

    with pytest.raises(ValueError, match="no place for the table shifts"):
        write_markdown([row(median_delay_s=90.0)], page)


def test_a_rows_command_names_its_table_stream_and_detector():
    plan = Plan(range(1, 3), HOUR_S, hours=1.0, rates_hz=[2.0], options="--seeds 2")
    case = next(case for case in stationary_cases(plan) if case.stream == "AR(1) 0.9")

    assert case.command(plan.options) == (
        "python -m bench.detection --only stationary --stream 'AR(1) 0.9' --column daom --seeds 2"
    )
