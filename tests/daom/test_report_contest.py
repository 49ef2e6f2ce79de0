"""Several settings over one source in one pass, each saying what it would have said alone."""

import json
import pickle
from collections import Counter

import msgspec
import pytest

from daom.codec import encode_json
from daom.config import Config
from daom.events import DriftVerdict
from daom.fold import Fold
from daom.labels import Recorded
from daom.presets import cell_settings
from daom.replay import Sourced, Tally, replay
from daom.report.contest import SITS2026, STATIC, Contest, Setting, line_up
from daom.report.document import Replayed, document
from daom.report.static import ABOVE_LIMIT
from tests.daom.stories import at, calm, chapter, slower, story

LEARNING_MIN, SLOW_MIN = 16, 6
ONE_SIGNAL = Config.model_validate({"signals": {"ttft_s": {}}})
SLO_S = 0.2


@pytest.fixture(scope="module")
def slowdown():
    """Two engines, one of which takes three times as long for eight minutes."""
    told = story(
        calm(LEARNING_MIN), chapter(SLOW_MIN, e2=slower(3.0)), calm(2), engines=("e1", "e2")
    )
    return [encode_json(record) for record in told]


def of_model(values, model):
    """Return the same telemetry of another model, so of another cell."""
    told = []
    for value in values:
        record = json.loads(value)
        record["source"]["model"] = model
        told.append(json.dumps(record).encode())
    return told


def contest_of(config, *parts, others=()):
    """Fold each part in a contest of its own, as if in another process; join them."""
    whole = Contest(line_up(config, others))
    for values in parts:
        part = whole.part()
        fold = part.open()
        for value in values:
            fold.take(value, None)
        whole.absorb(pickle.loads(pickle.dumps(part)))
    return whole


@pytest.fixture(scope="module")
def held(slowdown):
    """The default settings beside the others, over the slowdown."""
    return contest_of(ONE_SIGNAL, slowdown)


def of(contest, name):
    return next(c for c in contest.contestants if c.setting.name == name)


def told_of(contest):
    recorded = contest.recorded("story")
    assert recorded is not None
    return document(Replayed(contest=contest, recorded=recorded))


def outputs_alone(values, config):
    fold = Fold(cell_settings(config), config.worker.max_message_bytes)
    return list(replay((Sourced("here", value) for value in values), fold, Tally()))


def test_the_report_says_what_a_replay_says(slowdown, held):
    alone = outputs_alone(slowdown, ONE_SIGNAL)

    kinds = Counter(type(output).__name__ for output in alone)
    fired = [o.event_time_s for o in alone if getattr(o, "state", None) == "firing"]
    said = held.base.said
    assert said.counts["verdict"] == kinds["DriftVerdict"] > 0
    assert said.counts["threshold"] == kinds["SloThreshold"]
    assert said.counts["suppression"] == kinds["Suppression"]
    assert min(s.fired_s for s in said.stories.values() if s.fired_s) == min(fired)


def test_sits2026_says_what_it_would_have_said_alone_with_the_limits_configured(slowdown):
    config = Config.model_validate({"signals": {"ttft_s": {"slo_s": SLO_S}}})
    alone = outputs_alone(slowdown, config.model_copy(update={"preset": SITS2026}))

    held = contest_of(config, slowdown)

    kinds = Counter(type(output).__name__ for output in alone)
    assert of(held, SITS2026).said.counts["verdict"] == kinds["DriftVerdict"] > 0
    assert {slo.source for slo in held.slos.values()} == {"slo_s"}
    assert {slo.limit_s for slo in held.slos.values()} == {SLO_S}


def test_without_a_limit_the_others_go_by_what_the_fleet_learned_first(slowdown, held):
    verdicts = outputs_alone(slowdown, ONE_SIGNAL)
    first = next(
        v.threshold_s
        for v in verdicts
        if isinstance(v, DriftVerdict)
        and (v.series.engine, v.series.signal) == (None, "ttft_s")
        and v.threshold_s is not None
    )

    slo = held.slos["llama-3-8b", "ttft_s"]

    assert (slo.limit_s, slo.source) == (first, "learned")
    assert slo.since_s is not None
    assert of(held, SITS2026).said.heard.was_judged


def test_a_static_threshold_pages_while_p99_is_above_it(held):
    stories = [s for s in of(held, STATIC).said.stories.values() if s.fired_s is not None]

    assert {story.name for story in stories} == {ABOVE_LIMIT}
    assert "e1" not in {story.stream.engine for story in stories}
    first = min(stories, key=lambda story: story.fired_s)
    assert first.stream.engine == "e2"
    assert at(LEARNING_MIN) < first.fired_s < at(LEARNING_MIN + SLOW_MIN)


def test_parts_of_a_source_make_the_same_report_as_one(slowdown):
    """Cells are in one part each, and their order in time is not that of the parts."""
    other = of_model(slowdown, "another")

    merged = [value for pair in zip(other, slowdown, strict=True) for value in pair]

    apart = contest_of(ONE_SIGNAL, slowdown, other)
    together = contest_of(ONE_SIGNAL, merged)

    assert told_of(apart) == told_of(together)


def test_a_preset_that_is_asked_for_stands_beside_the_rest(slowdown):
    adwin = Setting(name="adwin", config=Config().model_copy(update={"preset": "adwin"}))

    lined = line_up(Config(), [adwin])

    assert [setting.name for setting in lined] == ["default", "adwin", SITS2026, STATIC]


def test_a_report_about_sits2026_needs_the_default_for_limits():
    lined = line_up(Config().model_copy(update={"preset": SITS2026}), [])

    assert [setting.name for setting in lined] == [SITS2026, "default", STATIC]


def test_a_value_that_cannot_be_used_is_a_fault_and_no_more(slowdown):
    contest = Contest(line_up(Config(), []))

    folded = contest.open().take(b"{", None)

    assert [fault.kind for fault in folded.faults] == ["not_decodable"]
    assert contest.recorded("nothing") is None


def test_models_are_silent_only_while_every_part_is(slowdown):
    """Two cells of one model: one goes on while the other is silent."""
    few = slowdown[:60]

    apart = contest_of(ONE_SIGNAL, few[:20] + few[40:], few)
    alone = contest_of(ONE_SIGNAL, few[:20] + few[40:])

    assert apart.recorded("x").silences == {}
    assert isinstance(alone.recorded("x"), Recorded)
    assert len(alone.recorded("x").silences["llama-3-8b"]) == 1


def test_a_document_is_plain_and_says_the_same_twice(held):
    told = told_of(held)

    assert json.loads(json.dumps(told, allow_nan=False)) == msgspec.json.decode(
        json.dumps(told_of(held))
    )
