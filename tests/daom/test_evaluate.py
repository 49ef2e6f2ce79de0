"""How alarms are judged against what is known to have happened."""

import math
from dataclasses import replace

import msgspec
import pytest

from daom.codec import encode_json
from daom.config import Config
from daom.evaluate import Case, Rules, baseline, is_right, judge
from daom.events import Alert, DriftVerdict, Series
from daom.heard import Heard, survey
from daom.labels import Label, Labelled, Moment, Recorded
from daom.replay import Sourced
from detectors.evaluation import Episode
from tests.daom.stories import T0, ahead, calm, silence, story

MODEL = "llama"
RECORDED = Recorded(name="run.jsonl", start_s=0.0, end_s=3_600.0, engines={MODEL: {"e1", "e2"}})
RULES = Rules(grace_s=60.0, join_s=300.0)
PANE_S = 10.0


def episode(start_s, end_s, kind="degradation", **scope):
    moments = {
        name: Moment(time_s, is_relative=False)
        for name, time_s in (("start", start_s), ("end", end_s))
    }
    label = Label(where="labels.yaml: entry 1", kind=kind, **moments, **scope)
    return Labelled(episode=Episode(start_s, end_s), label=label)


def verdicts(drifting, *spans, until_s=3_600.0, engine="e1", signal="ttft_s"):
    """A verdict a pane from 10 s on; in ``spans`` those of the words that follow each span.

    ``verdicts("slower service", (1_000, 1_100))``: drifting from 1,000 s to 1,100 s.
    """
    direction, attribution = drifting.split()
    series = Series(model=MODEL, engine=engine, signal=signal)
    for pane in range(1, round(until_s / PANE_S) + 1):
        now_s = pane * PANE_S
        drifts = any(begin_s <= now_s <= end_s for begin_s, end_s in spans)
        yield DriftVerdict(
            id=f"{engine} {signal} {now_s}",
            event_time_s=now_s,
            cell=MODEL,
            series=series,
            samples=60,
            kl_nats=None,
            p99_s=None,
            threshold_s=None,
            drifting=drifts,
            direction=direction if drifts else "none",
            attribution=attribution if drifts else "none",
        )


def page(fired_s, started_s=None, severity="warning", engine="e1", signal="ttft_s", incident=""):
    labels = {"alertname": "LatencyDrift", "model": MODEL, "severity": severity}
    labels |= {"engine": engine} if engine else {}
    labels |= {"signal": signal} if signal else {}
    return Alert(
        id=f"{engine} {fired_s}",
        event_time_s=fired_s,
        cell=MODEL,
        fingerprint="",
        name="LatencyDrift",
        labels=labels,
        state="firing",
        started_s=fired_s - 60.0 if started_s is None else started_s,
        annotations={"incident": incident or f"{engine} {fired_s}"},
    )


def case(episodes, *outputs):
    heard = Heard()
    for output in outputs:
        heard.note(output)
    return Case(recorded=RECORDED, episodes=episodes, heard=heard)


def judged_verdicts(episodes, outputs, rules=RULES):
    return judge("verdicts", [case(episodes, *outputs)], rules)


def judged_alerts(episodes, *pages, rules=RULES):
    return judge("alerts", [case(episodes, *verdicts("none none"), *pages)], rules)


def figures(score):
    return list(score.delays_s), score.false_alarms, score.misread


MISSED = [pytest.approx(math.nan, nan_ok=True)]


# Verdicts


@pytest.mark.parametrize(
    ("kind", "said", "right"),
    [
        ("degradation", "slower service", True),
        ("degradation", "slower mixed", True),
        ("degradation", "slower none", True),
        ("degradation", "none none", True),
        ("degradation", "faster service", False),
        ("degradation", "slower workload", False),
        ("improvement", "faster service", True),
        ("improvement", "none none", False),
        ("improvement", "slower service", False),
        ("workload", "slower workload", True),
        ("workload", "faster workload", True),
        ("workload", "slower mixed", False),
        ("workload", "slower none", False),
    ],
)
def test_a_verdict_is_right_if_it_says_what_happened(kind, said, right):
    score = judged_verdicts([episode(1_000, 1_200, kind)], verdicts(said, (1_050, 1_150)))

    assert is_right(kind, *said.split()) is right
    assert figures(score) == (([50.0], 0, 0) if right else (MISSED, 1, 1))


def test_a_drift_outside_every_episode_is_a_false_alarm():
    score = judged_verdicts([], verdicts("slower service", (500, 600), (2_000, 2_100)))

    assert (score.alarms, *figures(score)) == (2, [], 2, 0)


def test_drifts_of_a_series_close_together_are_one_alarm():
    close = verdicts("slower service", (500, 600), (700, 800), (900, 1_000), (1_400, 1_500))

    assert judged_verdicts([], close).alarms == 2


def test_a_drift_before_an_onset_is_not_joined_with_the_one_after_it():
    drifts = verdicts("slower service", (900, 950), (1_050, 1_150))

    score = judged_verdicts([episode(1_000, 1_200)], drifts)

    assert figures(score) == ([50.0], 1, 0)


def test_what_drifted_before_an_onset_and_goes_on_has_not_found_it():
    score = judged_verdicts([episode(1_000, 1_200)], verdicts("slower service", (900, 1_100)))

    assert figures(score) == (MISSED, 1, 0)
    assert score.in_alarm == 1


def test_an_alarm_that_comes_to_the_right_words_late_is_right_from_then_on():
    first = [v for v in verdicts("slower workload", (1_050, 1_090)) if v.event_time_s < 1_100]
    rest = [v for v in verdicts("slower service", (1_100, 1_150)) if v.event_time_s >= 1_100]

    score = judged_verdicts([episode(1_000, 1_200)], [*first, *rest])

    assert (score.alarms, *figures(score)) == (1, [100.0], 0, 0)


def test_an_alarm_of_another_engine_is_false_and_the_fleets_is_everybodys():
    labels = [episode(1_000, 1_200, engine="e1")]
    span = (1_050, 1_150)

    other = judged_verdicts(labels, verdicts("slower service", span, engine="e2"))
    fleet = judged_verdicts(labels, verdicts("slower service", span, engine=None))

    assert figures(other) == (MISSED, 1, 0)
    assert figures(fleet) == ([50.0], 0, 0)


@pytest.mark.parametrize(
    ("begin_s", "expected"), [(1_260, ([260.0], 0, 0)), (1_270, (MISSED, 1, 0))]
)
def test_an_episode_may_be_found_in_the_grace_after_its_end_and_no_later(begin_s, expected):
    score = judged_verdicts([episode(1_000, 1_200)], verdicts("slower none", (begin_s, 1_290)))

    assert figures(score) == expected


def test_the_way_back_after_an_episode_is_no_false_alarm():
    score = judged_verdicts([episode(1_000, 1_200)], verdicts("faster none", (1_220, 1_260)))

    assert figures(score) == (MISSED, 0, 0)


def test_a_verdict_that_says_nothing_ends_no_drift():
    every = [*verdicts("slower service", (500, 600))]
    gap = [
        msgspec.structs.replace(v, drifting="insufficient") if v.event_time_s in {540, 550} else v
        for v in every
    ]

    assert judged_verdicts([], gap, replace(RULES, join_s=0.0)).alarms == 1


def test_an_episode_before_the_first_judgement_could_not_be_found():
    late = [v for v in verdicts("none none") if v.event_time_s > 1_100]

    assert judged_verdicts([episode(1_000, 1_200)], late).unlearned == 1


# Alerts


def test_an_alert_on_a_degradation_has_found_it_when_it_fires():
    assert figures(judged_alerts([episode(1_000, 1_200)], page(1_090))) == ([90.0], 0, 0)


@pytest.mark.parametrize("kind", ["improvement", "workload"])
def test_an_improvement_or_more_traffic_is_not_to_page(kind):
    label = episode(1_000, 1_200, kind)

    assert figures(judged_alerts([label], page(1_090))) == ([], 1, 1)
    assert figures(judged_alerts([label], page(1_090, severity="info"))) == ([], 0, 0)


def test_an_alert_whose_condition_began_before_the_onset_fired_by_luck():
    score = judged_alerts([episode(1_000, 1_200)], page(1_010, started_s=950.0))

    assert figures(score) == (MISSED, 1, 0)


def test_an_alert_that_becomes_critical_is_still_one():
    score = judged_alerts(
        [],
        page(1_000, incident="a"),
        page(1_200, severity="critical", incident="a"),
        page(1_300, severity="info", incident="b"),
        page(1_400, incident="c"),
    )

    assert (score.alarms, score.false_alarms) == (2, 2)


def test_an_alert_about_no_one_signal_counts_unless_one_is_asked_for():
    stalled = page(1_090, signal=None)
    label = [episode(1_000, 1_200)]

    assert judged_alerts(label, stalled).alarms == 1
    assert judged_alerts(label, stalled, rules=replace(RULES, signal="ttft_s")).alarms == 0


# Time at risk, and what is promised


def test_time_at_risk_is_calm_time_outside_episodes_and_their_grace():
    """Of 3,590 s from the first verdict on, without 260 of the episode and 110 of a drift."""
    labels = [episode(1_000, 1_200)]
    outputs = list(verdicts("slower service", (2_000, 2_100)))

    assert judged_verdicts(labels, outputs).at_risk_s == pytest.approx(3_590 - 260 - 110)
    assert judged_alerts(labels).at_risk_s == pytest.approx(3_590 - 260)


def test_the_series_of_a_cell_share_its_time():
    both = [*verdicts("none none"), *verdicts("none none", engine="e2", until_s=1_800)]

    assert judged_verdicts([], both).at_risk_s == pytest.approx((3_590 + 1_790) / 2)
    signal = replace(RULES, signal="itl_s")
    both = [*verdicts("none none"), *verdicts("none none", signal="itl_s")]
    assert judged_verdicts([], both, signal).at_risk_s == pytest.approx(3_590 / 2)


def test_a_silence_of_the_cell_is_no_calm():
    quiet = [v for v in verdicts("none none") if not 1_000 < v.event_time_s < 2_000]
    silent = replace(RECORDED, silences={MODEL: [(1_000.0, 2_000.0)]})

    score = judge("verdicts", [replace(case([], *quiet), recorded=silent)], RULES)

    assert score.at_risk_s == pytest.approx(3_590 - 1_000)


def test_the_promise_is_measured_where_nothing_changed():
    """One false alarm, one drift put down to the wrong thing: only the first breaks the promise."""
    labels = [episode(1_000, 1_200, "workload")]
    drifts = verdicts("slower service", (1_050, 1_100), (2_000, 2_100))

    score = judged_verdicts(labels, drifts, replace(RULES, target_s=36_000.0))

    mean, (least, most) = score.achieved
    assert figures(score) == (MISSED, 2, 1)
    assert score.mtbfa_s == pytest.approx(score.at_risk_s / 2)
    assert mean == pytest.approx(score.at_risk_s / 36_000.0)
    assert least < mean < most


def test_only_the_default_promises_an_interval():
    promised = Rules.of(Config(), 60.0)

    assert promised.target_s == Config().detector.false_alarm_interval_s
    assert Rules.of(Config(preset="adwin"), 60.0).target_s is None
    assert judged_alerts([], rules=promised).achieved is None


# The baseline


def test_a_clock_that_alarms_as_often_finds_what_chance_finds():
    """Two alarms in 3,590 s: one every 1,795; the window of 260 s is hit in 260/1,795 of cases."""
    labels = [episode(1_000, 1_200)]
    cases = [case(labels, *verdicts("slower service", (1_050, 1_100), (2_500, 2_600)))]
    score = judge("verdicts", cases, RULES)

    clock = baseline("verdicts", cases, score, RULES)

    assert clock.every_s == pytest.approx(1_795.0)
    assert clock.missed_share == pytest.approx(1.0 - 260.0 / 1_795.0, abs=0.01)
    assert clock.false_alarms == pytest.approx(2.0 - 260.0 / 1_795.0, abs=0.01)
    assert max(clock.delays_s) <= 260.0


def test_silence_finds_nothing_and_cries_no_wolf():
    cases = [case([episode(1_000, 1_200)], *verdicts("none none"))]
    score = judge("alerts", cases, RULES)

    clock = baseline("alerts", cases, score, RULES)

    assert (clock.every_s, clock.missed_share, clock.false_alarms) == (math.inf, 1.0, 0.0)
    assert (score.mtbfa_s, score.mtbfa_interval_s[1]) == (math.inf, math.inf)


# Surveying


def sourced(values):
    return [Sourced("run", value) for value in values]


def surveyed(records):
    return survey("run", sourced(map(encode_json, records)), Config())


def test_a_recording_says_from_when_to_when_it_goes_and_who_is_in_it():
    found = surveyed(story(calm(2), engines=("e1", "e2")))

    assert (found.start_s, found.end_s) == pytest.approx((T0, T0 + 120), abs=0.2)
    assert found.engines == {"llama-3-8b": {"e1", "e2"}}
    assert (found.silences, found.lines) == ({}, 24)


def test_a_silence_of_the_cell_is_noted():
    (gap,) = surveyed(story(calm(2), silence(5), calm(2))).silences["llama-3-8b"]

    assert gap == pytest.approx((T0 + 120, T0 + 430), abs=0.2)


def test_one_wrong_clock_does_not_stretch_a_recording():
    records = story(calm(2), engines=("e1", "e2", "e3"))
    records[10] = ahead(records[10], 86_400.0)

    assert surveyed(records).end_s == pytest.approx(T0 + 120, abs=0.2)


def test_what_holds_no_telemetry_is_no_recording():
    assert survey("run", sourced([b"{}", b"nonsense"]), Config()) is None
