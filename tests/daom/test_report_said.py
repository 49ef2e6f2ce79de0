"""What a setting said: alerts as stories, each counted once; what was muted; in bounded lists."""

import msgspec
import pytest

from daom.events import Alert, Series, SloThreshold, Suppression
from daom.report.said import MOST_LISTED, Said, Stream
from tests.report_outputs import T0, verdict


def alert(state, after_s, incident="i1", severity="warning", cell="m", **words):
    return Alert(
        id=f"{incident}{state}{after_s}",
        event_time_s=T0 + after_s,
        cell=cell,
        fingerprint=incident,
        name="LatencyDrift",
        labels={"severity": severity, "engine": "e1", "signal": "ttft_s"},
        state=state,
        started_s=T0 + 10.0,
        attribution="service",
        annotations={"incident": incident, **words},
    )


def muted(after_s, rule="cooldown"):
    return Suppression(
        id=f"s{after_s}",
        event_time_s=T0 + after_s,
        cell="m",
        fingerprint="f",
        name="LatencyDrift",
        labels={"severity": "warning", "engine": "e1", "signal": "ttft_s"},
        rule=rule,
        why="it resolved a minute ago",
        until_s=None,
    )


def moved(after_s, engine="e1"):
    return SloThreshold(
        id=f"t{after_s}",
        event_time_s=T0 + after_s,
        cell="m",
        series=Series(model="m", engine=engine, signal="ttft_s"),
        threshold_s=0.5,
        previous_s=None,
        why="learned",
    )


@pytest.fixture
def said():
    return Said()


def noted(said, *outputs):
    for output in outputs:
        said.note(output)
    return said


def test_an_alert_is_one_story_from_pending_to_resolved(said):
    noted(said, alert("pending", 20), alert("firing", 80, summary="slow"), alert("resolved", 300))

    (story,) = said.stories.values()
    assert story.stream == Stream("m", "e1", "ttft_s")
    assert (story.began_s, story.pending_s) == (T0 + 10.0, T0 + 20.0)
    assert (story.fired_s, story.resolved_s) == (T0 + 80.0, T0 + 300.0)
    assert story.words == {"summary": "slow"}


def test_an_alert_that_escalates_is_one_alert_and_resolves_at_its_end(said):
    noted(
        said,
        alert("firing", 80),
        alert("resolved", 120),
        alert("firing", 120, severity="critical"),
        alert("firing", 180, severity="critical"),
        alert("resolved", 300, severity="critical"),
    )

    (story,) = said.stories.values()
    assert (len(said.fired), len(said.paged)) == (1, 1)
    assert (story.severity, story.fired_s, story.resolved_s) == ("critical", T0 + 80.0, T0 + 300.0)


def test_an_alert_for_information_fires_and_pages_nobody(said):
    noted(said, alert("firing", 80, severity="info"))

    assert (len(said.fired), len(said.paged)) == (1, 0)


def test_more_than_can_be_told_is_counted_all_the_same(said):
    for number in range(MOST_LISTED + 3):
        noted(said, alert("firing", number, incident=f"i{number}"), muted(number))

    assert (len(said.stories), len(said.mutes)) == (MOST_LISTED, MOST_LISTED)
    assert len(said.fired) == said.counts["alert firing"] == MOST_LISTED + 3
    assert said.muted == {"cooldown": MOST_LISTED + 3}


def test_two_parts_make_one_whole_in_the_order_of_time(said):
    noted(said, alert("firing", 500, incident="late"), muted(500), moved(500), verdict(T0 + 500.0))
    earlier = noted(
        Said(), alert("firing", 100, incident="early"), muted(100, "maintenance"), moved(100)
    )
    later = msgspec.structs.replace(alert("firing", 900, incident="late"), cell="n")

    said.absorb(earlier)
    said.absorb(noted(Said(), later))

    assert [mute.rule for mute in said.mutes] == ["maintenance", "cooldown"]
    assert [move.event_time_s for (moves) in said.moves.values() for move in moves] == [
        T0 + 100.0,
        T0 + 500.0,
    ]
    # An incident of one name in two cells is two.
    assert len(said.fired) == len(said.stories) == 3
    assert said.counts == {"alert firing": 3, "suppression": 2, "threshold": 2, "verdict": 1}
