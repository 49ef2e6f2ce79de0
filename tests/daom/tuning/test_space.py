"""The file that says what is tried."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.config import Config
from daom.errors import ConfigError
from daom.tuning.candidates import Maker
from daom.tuning.space import BUILT_IN, MAX_VARIANTS, Choice, Range, parse_space, read_space


def space(text):
    return parse_space(text, "space.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "got nothing; a map of dotted fields is needed"),
        ("[1]", "got a list; a map"),
        ("a: [", "not YAML"),
        ("alerts.pendng_s: [1]", "alerts.pendng_s: unknown; near it are alerts.pending_s"),
        ("detector.window: [3]", "near it are detector.window_panes"),
        ("worker.metrics_port: [1]", "worker.metrics_port: unknown; what can be tuned"),
        ("alerts: {pending_s: [1]}", "alerts: is a section; name its fields"),
        ("alerts.pending_s: 30", "got 30; a list of values is needed"),
        ("alerts.pending_s: []", "got an empty list"),
        ("alerts.pending_s: [30, 30]", "30 is there twice"),
        ("alerts.pending_s: [[30]]", "single values are needed"),
        ("alerts.pending_s: {from: 1}", "to: missing"),
        ("alerts.pending_s: {from: 5, to: 5}", "from must be below to"),
        ("alerts.pending_s: {from: 0, to: 5, log: true}", "it must be above 0"),
        ("alerts.pending_s: {from: 0, to: soon}", "to: got 'soon'; a number is needed"),
        ("alerts.pending_s: {from: 0, to: 5, steps: 1}", "steps: got 1; 2 to 256"),
        ("alerts.pending_s: {from: 0, to: 5, by: 1}", "by: unknown; a range has"),
    ],
)
def test_what_is_wrong_is_named_with_the_file_and_what_is_allowed(text, said):
    with pytest.raises(ConfigError) as refused:
        space(text)

    assert str(refused.value).startswith("space.yaml: ")
    assert said in str(refused.value)


def test_every_fault_is_told_at_once():
    with pytest.raises(ConfigError) as refused:
        space("alerts.pending_s: []\nalerts.wait: [1]\ndetector: [2]")

    assert len(str(refused.value).splitlines()) == 3


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        read_space(tmp_path / "none.yaml")


def test_settings_of_alerts_share_a_replay_and_others_take_one_each():
    found = space(
        "alerts.pending_s: [30, 60]\nalerts.min_slowdown: [0.1, 0.2, 0.3]\n"
        "detector.false_alarm_interval_s: [7d, 30d]"
    )

    assert len(found.variants()) == 6
    assert found.grid() == [{"detector.false_alarm_interval_s": value} for value in ("7d", "30d")]


def test_more_settings_than_a_replay_can_carry_are_refused():
    values = ", ".join(map(str, range(20)))

    with pytest.raises(ConfigError, match=f"at most {MAX_VARIANTS}"):
        space(f"alerts.pending_s: [{values}]\nalerts.resolve_s: [{values}]")


def test_a_range_of_alerts_is_cut_and_another_is_left_to_the_optimiser():
    found = space(
        "alerts.pending_s: {from: 0, to: 120, steps: 3}\n"
        "detector.false_alarm_interval_s: {from: 1d, to: 30d, log: true}"
    )

    assert found.alerting == (Choice("alerts.pending_s", (0, 60, 120)),)
    assert found.judging == (
        Range("detector.false_alarm_interval_s", 86_400.0, 30 * 86_400.0, log=True),
    )
    assert found.grid() is None


@given(
    low=st.floats(0.001, 1e3), span=st.floats(0.01, 1e3), steps=st.integers(2, 9), log=st.booleans()
)
def test_a_cut_range_keeps_its_ends_and_leaves_nothing_outside(low, span, steps, log):
    cut = Range("x", low, low + span, log=log).cut(steps)

    assert all(low <= value <= low + span for value in cut.values)
    assert list(cut.values) == sorted(set(cut.values))
    assert len(cut.values) <= steps


def test_the_built_in_space_is_taken_by_the_configuration():
    maker = Maker(None, {}, "the built-in space")

    maker.check(parse_space(BUILT_IN, "the built-in space"))

    assert maker.base().config == Config()


def test_a_value_that_the_configuration_never_takes_is_refused_before_anything_is_read():
    maker = Maker(None, {}, "space.yaml")

    with pytest.raises(ConfigError, match=r"space\.yaml: alerts\.fleet_share: got 2\.0"):
        maker.check(space("alerts.fleet_share: [0.5, 2.0]"))


def test_a_value_that_needs_another_one_is_taken_with_it():
    maker = Maker(None, {}, "space.yaml")

    maker.check(space("detector.window_panes: [6, 200]\ndetector.max_window_panes: [180, 400]"))
