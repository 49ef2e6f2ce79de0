"""Alerts wait before they fire and before they resolve; a gap in the data moves nothing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daom.lifecycle import AlertLife, Condition, Lifecycle

LIFECYCLE = Lifecycle(pending_s=60.0, resolve_s=120.0)


def condition(active=True, *, clear=None, severity="warning", **fields):
    return Condition(
        name="LatencyDrift",
        engine="e1",
        signal="ttft_s",
        active=active,
        clear=active is False if clear is None else clear,
        severity=severity,
        **fields,
    )


SLOW = condition()
CALM = condition(active=False)
EDGE = condition(active=False, clear=False)
UNKNOWN = condition(active=None)
BURST = condition(drifting=False)
CRITICAL = condition(severity="critical")
MILD = condition(severity="info")
BAD, WORSE, TWICE_AS_BAD = (condition(magnitude=times) for times in (2.0, 3.9, 4.0))


def life():
    return AlertLife("LatencyDrift", "e1", "ttft_s")


def apply(wish, alert_life, said):
    """Do what the wish asks for, as if nothing muted it."""
    match wish:
        case "fire":
            alert_life.phase, alert_life.magnitude = "firing", said.magnitude
        case "escalate":
            alert_life.severity = "critical"
        case "update":
            alert_life.magnitude, alert_life.far_worse_since_s = said.magnitude, None
        case "resolve" | "fade":
            alert_life.phase, alert_life.clear_since_s = "inactive", None


def wishes(conditions):
    """What is due at each of ``conditions``, half a minute apart."""
    return wishes_at((30.0 * number, each) for number, each in enumerate(conditions))


def wishes_at(timed):
    """What is due at each of the conditions, given with their times."""
    alert_life, due = life(), []
    for now_s, each in timed:
        due.append(LIFECYCLE.advance(alert_life, each, now_s))
        apply(due[-1], alert_life, each)
    return due


STORIES = {
    "calm": ([CALM, CALM], [None, None]),
    "fires after a minute": ([SLOW, SLOW, SLOW], ["pend", "pend", "fire"]),
    "a short one fades": ([SLOW, SLOW, CALM], ["pend", "pend", "fade"]),
    "a short one that comes again waits anew": (
        [SLOW, CALM, SLOW, SLOW, SLOW],
        ["pend", "fade", "pend", "pend", "fire"],
    ),
    "unknown keeps it pending": (
        [SLOW, UNKNOWN, SLOW, SLOW],
        ["pend", None, "fire", None],
    ),
    "unknown starts nothing": ([UNKNOWN, UNKNOWN], [None, None]),
    "resolves after two minutes": (
        [SLOW, SLOW, SLOW, CALM, CALM, CALM, CALM, CALM],
        ["pend", "pend", "fire", None, None, None, None, "resolve"],
    ),
    "a relapse begins the wait again": (
        [SLOW, SLOW, SLOW, CALM, CALM, CALM, SLOW, CALM, CALM, CALM, CALM, CALM],
        ["pend", "pend", "fire", *[None] * 8, "resolve"],
    ),
    "below the trigger but not clear is no recovery": (
        [SLOW, SLOW, SLOW, *[EDGE] * 20],
        ["pend", "pend", "fire", *[None] * 20],
    ),
    "not clear for a moment begins the wait again": (
        [SLOW, SLOW, SLOW, CALM, CALM, CALM, EDGE, CALM, CALM, CALM, CALM, CALM],
        ["pend", "pend", "fire", *[None] * 8, "resolve"],
    ),
    "a gap is no recovery": (
        [SLOW, SLOW, SLOW, *[UNKNOWN] * 20],
        ["pend", "pend", "fire", *[None] * 20],
    ),
    "escalates once, when it has been worse for two minutes": (
        [SLOW, SLOW, SLOW, *[CRITICAL] * 6],
        ["pend", "pend", "fire", *[None] * 4, "escalate", None],
    ),
    "a moment that is worse is no escalation": (
        [SLOW, SLOW, SLOW, CRITICAL, CRITICAL, CRITICAL, SLOW, CRITICAL, CRITICAL],
        ["pend", "pend", "fire", *[None] * 6],
    ),
    "speaks again once it has been twice as bad for two minutes": (
        [BAD, BAD, BAD, WORSE, WORSE, *[TWICE_AS_BAD] * 8],
        ["pend", "pend", "fire", *[None] * 6, "update", *[None] * 3],
    ),
    "twice as bad for a moment is no news": (
        [BAD, BAD, BAD, *[TWICE_AS_BAD] * 4, BAD, *[TWICE_AS_BAD] * 4],
        ["pend", "pend", "fire", *[None] * 9],
    ),
    "never de-escalates": (
        [CRITICAL, CRITICAL, CRITICAL, SLOW, MILD],
        ["pend", "pend", "fire", None, None],
    ),
    "a burst that becomes a drift waits anew": (
        [BURST, BURST, SLOW, SLOW, SLOW],
        ["pend", "pend", "pend", "pend", "fire"],
    ),
    "a drift that flickers is one drift": (
        [SLOW, BURST, SLOW],
        ["pend", "pend", "fire"],
    ),
}


@pytest.mark.parametrize(("conditions", "expected"), STORIES.values(), ids=STORIES)
def test_an_alert_lives_through(conditions, expected):
    assert wishes(conditions) == expected


def test_a_firing_alert_remembers_when_its_condition_began():
    alert_life = life()

    for now_s in (100.0, 130.0, 160.0):
        LIFECYCLE.advance(alert_life, SLOW, now_s)

    assert alert_life.since_s == 100.0


def test_presence_fires_at_once_where_nothing_is_pending():
    assert Lifecycle(pending_s=0.0, resolve_s=10.0).advance(life(), SLOW, 0.0) == "fire"


def test_labels_are_identity_and_severity_and_nothing_else():
    about_engine = condition(annotations={"p99_s": "1.5"})
    about_fleet = Condition(
        name="CellSilent", engine=None, signal=None, active=True, clear=False, severity="critical"
    )

    assert about_engine.labels({"model": "m"}, "warning") == {
        "alertname": "LatencyDrift",
        "model": "m",
        "engine": "e1",
        "signal": "ttft_s",
        "severity": "warning",
    }
    assert about_fleet.labels({"model": "m"}, "critical") == {
        "alertname": "CellSilent",
        "model": "m",
        "severity": "critical",
    }


def test_an_alerts_key_does_not_depend_on_its_severity():
    assert SLOW.key == CRITICAL.key


any_condition = st.sampled_from([SLOW, CALM, EDGE, UNKNOWN, BURST, CRITICAL, MILD])


@given(conditions=st.lists(any_condition, max_size=60))
def test_an_alert_fires_once_before_it_resolves_and_resolves_only_what_fired(conditions):
    due = [wish for wish in wishes(conditions) if wish in {"fire", "resolve"}]

    assert due[:1] in ([], ["fire"])
    assert all(wish != following for wish, following in pairwise(due))


@given(conditions=st.lists(any_condition, max_size=60))
def test_what_is_unknown_moves_nothing(conditions):
    timed = [(30.0 * number, each) for number, each in enumerate(conditions)]
    known = [(now_s, each) for now_s, each in timed if each is not UNKNOWN]
    due = zip(conditions, wishes_at(timed), strict=True)

    assert [wish for each, wish in due if each is not UNKNOWN] == wishes_at(known)


@pytest.mark.parametrize(
    ("severities", "fired_as"),
    [
        (["critical", "critical", "critical"], "critical"),
        (["warning", "critical", "critical"], "critical"),
        (["warning", "warning", "critical"], "warning"),
        (["info", "info", "info"], "info"),
    ],
)
def test_an_alert_fires_as_critical_only_if_half_its_wait_was(severities, fired_as):
    alert_life = life()

    for number, severity in enumerate(severities):
        LIFECYCLE.advance(alert_life, condition(severity=severity), 30.0 * number)

    assert alert_life.severity == fired_as
