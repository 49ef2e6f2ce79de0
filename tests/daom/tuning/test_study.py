"""What is chosen, by what, and what of it is kept."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from daom.config import Config, load_config
from daom.errors import ConfigError, SinkError
from daom.evaluate import Rules
from daom.events import Alert
from daom.heard import Heard
from daom.labels import Label, Labelled, Moment, Recorded
from daom.tuning.candidates import Maker, Planner
from daom.tuning.deploy import Told, tuned_yaml
from daom.tuning.holdout import Split
from daom.tuning.journal import Journal
from daom.tuning.objective import Figures, as_number
from daom.tuning.search import search
from daom.tuning.space import parse_space
from daom.tuning.study import Study, outcome
from detectors.evaluation import Episode

WITHIN_S = 120.0
SPACE = parse_space("alerts.pending_s: [10, 20, 30]\ndetector.confirm_panes: [1, 2]", "space")


def figures(*delays_s, alerts=0, judged=True):
    return Figures(
        judged=judged,
        observed_s=86_400.0,
        delays_s=list(delays_s),
        allowed_s=[900.0] * len(delays_s),
        alerts=alerts,
        false_alarms=0,
    )


figures_of_two = st.builds(
    lambda first, second, alerts: figures(first, second, alerts=alerts),
    st.none() | st.floats(0.0, 900.0),
    st.none() | st.floats(0.0, 900.0),
    st.integers(0, 40),
)


# The objective


def test_settings_are_compared_as_an_operator_would():
    """Caught in time comes first, then how many alerts, then how soon."""
    best_first = [
        figures(60.0, 70.0, alerts=9),
        figures(60.0, 110.0, alerts=9),
        figures(10.0, 10.0, alerts=10),
        figures(10.0, 130.0, alerts=2),
        figures(10.0, None, alerts=2),
        figures(None, None, alerts=0),
        figures(judged=False),
    ]

    worths = [each.worth(WITHIN_S) for each in best_first]
    assert worths == sorted(worths)
    assert len(set(worths)) == len(worths)


@given(figures_of_two, figures_of_two)
def test_what_the_optimiser_is_told_orders_as_the_objective_does(first, second):
    if as_number(first.worth(WITHIN_S)) < as_number(second.worth(WITHIN_S)):
        assert first.worth(WITHIN_S) < second.worth(WITHIN_S)


def test_alerts_a_week_come_with_limits_that_few_alerts_cannot_narrow():
    day = figures(alerts=3)

    least, most = day.alerts_a_week_interval
    assert day.alerts_a_week == pytest.approx(21.0)
    assert least < 5.0
    assert most > 60.0


# The parts


def split(holdout=0.4):
    recorded = Recorded(name="r", start_s=0.0, end_s=1_000.0, engines={"m": {"e"}})
    episodes = [incident(100.0, 200.0), incident(590.0, 640.0), incident(800.0, 850.0)]
    return Split.of(recorded, episodes, holdout)


def incident(start_s, end_s):
    start, end = (Moment(time_s, is_relative=True) for time_s in (start_s, end_s))
    label = Label(where="incidents", start=start, end=end, kind="degradation")
    return Labelled(episode=Episode(start_s, end_s), label=label)


def page(began_s, fired_s):
    return Alert(
        cell="m",
        fingerprint=str(began_s),
        name="LatencyDrift",
        state="firing",
        started_s=began_s,
        event_time_s=fired_s,
        id=str(began_s),
        labels={"model": "m", "engine": "e", "severity": "warning"},
        annotations={"incident": str(began_s)},
    )


def test_an_alert_counts_where_the_incident_it_belongs_to_began():
    """The second incident begins before the cut, at 600 s; its alert fires after it."""
    heard = Heard()
    for told in (page(120.0, 130.0), page(601.0, 611.0), page(700.0, 710.0), page(810.0, 820.0)):
        heard.note(told)

    chosen_on, judged_on = split().figures(heard, Rules.of(Config(), 30.0))

    assert chosen_on.delays_s == [30.0, 21.0]
    assert judged_on.delays_s == [20.0]
    assert (chosen_on.alerts, judged_on.alerts) == (2, 2)
    assert (chosen_on.false_alarms, judged_on.false_alarms) == (0, 1)
    assert (chosen_on.observed_s, judged_on.observed_s) == (600.0, 400.0)


# The choice


class Known:
    """Judges replays by figures that are known, and counts what it was asked."""

    def __init__(self, pairs):
        self._pairs = pairs
        self.asked = []

    def __call__(self, replays):
        for number, replay in enumerate(replays):
            self.asked.append(dict(replay.judging))
            yield number, [self._pairs[each.name] for each in replay.candidates]


def names():
    """Return what every setting of the space is called, what is there now included."""
    maker = Maker(None, {}, "space")
    planner = Planner(maker, SPACE, maker.base())
    found = [replay for replay in map(planner.replay, SPACE.grid()) if replay is not None]
    return list(dict.fromkeys(each.name for replay in found for each in replay.candidates))


def studied(path, pairs, stop_after=None):
    """Carry a study out, or as much of it as so many replays; return it and what judged."""
    maker = Maker(None, {}, "space")
    judging = Known(pairs)
    study = Study(
        Planner(maker, SPACE, maker.base()),
        Journal(path, {"source": "1"}),
        WITHIN_S,
        evaluate=judging,
    )
    searched, _ = search(SPACE, 8, seed=1)
    for done, _ in enumerate(study.run(searched), start=1):
        if done == stop_after:
            break
    return study, judging


NAMES = names()
chosen_on_all = st.lists(figures_of_two, min_size=len(NAMES), max_size=len(NAMES))


@settings(max_examples=25)
@given(chosen_on_all, chosen_on_all, chosen_on_all)
def test_the_part_that_judges_takes_no_part_in_the_choice(chosen_on, judged_on, otherwise):
    choices = []
    for judged in (judged_on, otherwise):
        with TemporaryDirectory() as folder:
            pairs = dict(zip(NAMES, zip(chosen_on, judged, strict=True), strict=True))
            study, _ = studied(Path(folder, "study"), pairs)
            choices.append(outcome(study, 3).choice.candidate.name)

    assert choices[0] == choices[1]


def some(**better):
    """Return the same figures for every setting, but for those in ``better``."""
    usual = (figures(60.0, alerts=9), figures(60.0, alerts=9))
    return {name: better.get(name.replace(" ", "_"), usual) for name in NAMES}


def test_a_choice_that_is_no_better_where_it_is_judged_is_not_recommended(tmp_path):
    choice = next(name for name in NAMES if "pending_s=20" in name)
    pairs = {**some(), choice: (figures(60.0, alerts=1), figures(None, alerts=1))}

    found = outcome(studied(tmp_path / "study", pairs)[0], 3)

    assert found.choice.candidate.name == choice
    assert found.recommended == found.default
    assert not found.beats_default
    assert found.meets


# What is kept


def test_a_search_that_was_stopped_goes_on_where_it_was(tmp_path):
    pairs = some()
    whole, judged = studied(tmp_path / "whole", pairs)

    studied(tmp_path / "study", pairs, stop_after=1)
    resumed, judged_later = studied(tmp_path / "study", pairs)

    assert len(judged.asked) == 2
    assert judged_later.asked == judged.asked[1:]
    assert resumed.ranked() == whole.ranked()


def test_a_line_that_was_cut_by_a_crash_is_done_again(tmp_path):
    pairs, path = some(), tmp_path / "study"
    studied(path, pairs)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])

    _, judged = studied(path, pairs)

    assert len(judged.asked) == 1
    assert path.read_bytes() == whole


def test_a_study_of_something_else_is_not_gone_on_with(tmp_path):
    Journal(tmp_path / "study", {"source": "1", "space": "2"})

    with pytest.raises(ConfigError, match="differs in: space; remove it"):
        Journal(tmp_path / "study", {"source": "1", "space": "3"})


@pytest.mark.parametrize("text", ["hello\n", '{"type":"replay","judging":{},"found":[]}\n'])
def test_a_file_that_is_no_study_is_left_as_it_is(tmp_path, text):
    path = tmp_path / "notes"
    path.write_text(text)

    with pytest.raises(ConfigError, match="not the study of a search"):
        Journal(path, {"source": "1"})

    assert path.read_text() == text


def test_a_study_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(SinkError, match="no/study"):
        Journal(tmp_path / "no" / "study", {"source": "1"})


# The file


def file_of(found, base=None):
    told = Told(
        command="daom tune r", incidents="incidents", split=split(), base=base, environment=[]
    )
    return tuned_yaml(found, told)


def test_the_file_is_the_recommended_configuration_and_says_what_was_seen(tmp_path):
    choice = "alerts.pending_s=20 detector.confirm_panes=1"
    pairs = {**some(), choice: (figures(60.0, alerts=2), figures(70.0, alerts=3))}
    found = outcome(studied(tmp_path / "study", pairs)[0], 3)
    base = tmp_path / "base.yaml"
    base.write_text("kafka: {topic_prefix: other, sasl_password: hidden}\n")

    text = file_of(found, base)

    path = tmp_path / "tuned.yaml"
    path.write_text(text)
    config = load_config(path, {})
    assert (config.alerts.pending_s, config.detector.confirm_panes) == (20.0, 1)
    assert config.kafka.topic_prefix == "other"
    for said in ("3 alerts", "9 alerts", "Judged on", "Secrets left out: kafka.sasl_password"):
        assert said in text
    assert "hidden" not in text


def test_where_nothing_beats_what_is_there_the_file_changes_nothing(tmp_path):
    text = file_of(outcome(studied(tmp_path / "study", some())[0], 3))

    assert yaml.safe_load(text) == {}
    assert "Nothing beat what was configured" in text
