"""One replay, many settings: what each would have said, to the byte."""

import pytest

from daom.codec import encode_json, encode_output
from daom.config import AlertConfig, Config
from daom.fold import Fold
from daom.heard import Heard
from daom.presets import cell_settings
from daom.replay import Fault, Sourced, Tally, replay
from daom.tuning.candidates import judging_of
from daom.tuning.rehearsal import listen, rehearse
from daom.tuning.space import ALERTING
from tests.daom.stories import at, calm, change, chapter, slower, story
from tests.fleet import OVERLOAD, read_lines

ALERTS = [
    {},
    {"pending_s": 0, "min_slowdown": 0.0},
    {"pending_s": 240, "resolve_s": 10, "cooldown_s": 0},
    {"critical_slowdown": 0.3, "fleet_share": 0.9},
    {"min_slowdown": 5.0},
]


def configs(**others):
    return [Config.model_validate({"alerts": alerts, **others}) for alerts in ALERTS]


def told():
    """Two slow spells, one of all engines, a maintenance, and an engine that falls silent."""
    records = story(
        calm(16), chapter(6, e2=slower(1.8)), calm(6), chapter(6, slower(1.5)), chapter(5, e3=None)
    )
    window = change("maintenance", at(29.0), engine="e1", until_s=at(31.0))
    lines = [*map(encode_json, records)]
    half = next(n for n, record in enumerate(records) if record.end_s > at(28.0))
    return [*lines[:half], b"junk", encode_json(window), *lines[half:]]


def said_alone(values, config):
    fold = Fold(cell_settings(config), config.worker.max_message_bytes)
    items = replay((Sourced("", value) for value in values), fold, Tally())
    return [item for item in items if not isinstance(item, Fault)]


@pytest.fixture(scope="module")
def values():
    return told()


@pytest.mark.parametrize("preset", ["default", "sits2026"])
def test_settings_that_share_a_replay_say_what_each_says_alone(values, preset):
    signals = {n: s.model_dump() | {"slo_s": 0.3} for n, s in Config().signals.items()}
    together = configs(preset=preset, signals=signals)

    shared = [[] for _ in together]
    for said in rehearse((Sourced("", value) for value in values), together):
        for outputs, more in zip(shared, said, strict=True):
            outputs.extend(map(encode_output, more))

    alone = [list(map(encode_output, said_alone(values, config))) for config in together]
    assert shared == alone
    assert len({tuple(outputs) for outputs in alone}) >= 3


def test_the_recording_of_a_real_engine_says_the_same_shared_and_alone():
    lines = [line.value for line in read_lines(OVERLOAD)]
    together = configs()

    heard = listen([[Sourced("", line) for line in lines]], together)

    for config, found in zip(together, heard, strict=True):
        alone = Heard()
        for output in said_alone(lines, config):
            alone.note(output)
        assert found == alone


def test_parts_are_folded_each_by_itself(values):
    parts = [[Sourced("", value) for value in values] for _ in range(2)]

    [both] = listen(parts, [Config()])
    [one] = listen(parts[:1], [Config()])

    assert both.pages == one.pages


def test_settings_that_judge_differently_cannot_share_a_replay(values):
    other = Config.model_validate({"detector": {"confirm_panes": 3}})

    with pytest.raises(ValueError, match="judge differently"):
        list(rehearse([], [Config(), other]))


@pytest.mark.parametrize("name", sorted(AlertConfig.model_fields))
def test_what_is_shared_is_what_alone_decides_how_alerts_live(name):
    """A field that judging depends on must never be among those that share a replay."""
    value = 0.77 if name == "fleet_share" else 77.0
    changed = Config.model_validate({"alerts": {name: value}})
    before, after = cell_settings(Config()), cell_settings(changed)

    judges_alike = all(
        getattr(before, f) == getattr(after, f)
        for f in ("clock", "pane_s", "silent_after_s", "forget_after_s", "stalled_after_s")
    )
    lives_alike = (before.drift, before.alerts) == (after.drift, after.alerts)
    assert judges_alike != lives_alike
    assert (f"alerts.{name}" in ALERTING) == judges_alike
    assert (judging_of(changed) == judging_of(Config())) == judges_alike
