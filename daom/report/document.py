"""The report as one plain object: what is in it is what there is to say, in JSON as in HTML.

Times are Unix seconds of event time; null stands for "never", "not known" and "infinite".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from daom import __version__
from daom.config import Config
from daom.evaluate import ALARM_KINDS, AlarmKind, Case, Rules, Score, judge, sought
from daom.events import DriftVerdict, RcaTrigger, SloThreshold, Suppression
from daom.heard import Heard
from daom.labels import Labelled, Recorded
from daom.report.contest import Contest, Contestant
from daom.report.rates import Rate, median_interval, observed_s, rate
from daom.report.said import MOST_LISTED, Said, Story, Stream, in_time, stream_of
from daom.report.timeline import STATES, Timeline
from detectors.evaluation import share_interval

FORMAT: Final = "daom.report/1"
_ALL_BUCKETS: Final = 220_000
"""All streams together: a file of some 10 MB."""
_LEAST_BUCKETS: Final = 512
"""A stream has so many all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What is known to have happened, and until how long after its end it may be found."""

    episodes: Sequence[Labelled]
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A finished replay.

    Attributes:
        recorded: What the source holds; its name is the source's.
        labels: None: nothing is known.
        warnings: What a reader must know, in words.
    """

    contest: Contest
    recorded: Recorded
    labels: Labels | None = None
    warnings: Sequence[str] = ()


@dataclass(slots=True)
class _Streams:
    """The streams by number; those that only alerts are about come as they are met."""

    numbers: dict[Stream, int] = field(default_factory=dict)

    def number(self, stream: Stream) -> int:
        return self.numbers.setdefault(stream, len(self.numbers))


def document(replayed: Replayed) -> dict[str, Any]:
    """Return the report of a replay."""
    contest = replayed.contest
    streams = _Streams()
    for stream in sorted(contest.timelines, key=_order(contest.config)):
        streams.number(stream)
    base = contest.base.said
    episodes = replayed.labels.episodes if replayed.labels else ()
    told = {
        "format": FORMAT,
        "daom": __version__,
        "source": _source(replayed),
        "warnings": [*replayed.warnings, *_left_out(base)],
        "settings": [_setting(c, replayed, streams) for c in contest.contestants],
        "labels": replayed.labels is not None,
        "episodes": [_episode(labelled) for labelled in episodes],
        "alerts": [_story(story, streams) for story in _in_order(base.stories.values())],
        "muted": [_mute(mute, streams) for mute in sorted(base.mutes, key=in_time)],
        "causes": [_causes(trigger, streams) for trigger in sorted(base.causes, key=in_time)],
    }
    most = _buckets_each(len(contest.timelines))
    told["streams"] = [_stream(stream, contest, most) for stream in streams.numbers]
    return told


def _in_order(stories: Iterable[Story]) -> list[Story]:
    return sorted(stories, key=_story_order)


def _story_order(story: Story) -> tuple[Any, ...]:
    stream = story.stream
    return story.began_s, stream.cell, stream.engine or "", stream.signal or "", story.name


def _order(config: Config) -> Any:
    signals = list(config.signals)

    def key(stream: Stream) -> tuple[Any, ...]:
        signal = signals.index(stream.signal) if stream.signal in signals else len(signals)
        return stream.cell, signal, stream.engine is not None, stream.engine or ""

    return key


def _buckets_each(streams: int) -> int:
    return max(_LEAST_BUCKETS, _ALL_BUCKETS // max(1, streams))


def _left_out(said: Said) -> Iterator[str]:
    listed = {
        "alerts": (len(said.stories), len(said.fired)),
        "muted alerts": (len(said.mutes), said.counts["suppression"]),
        "root causes": (len(said.causes), said.counts["rca"]),
    }
    for what, (shown, count) in listed.items():
        if shown >= MOST_LISTED < count:
            yield f"of {count} {what} the first {shown} are told one by one; all are counted"


def _source(replayed: Replayed) -> dict[str, Any]:
    contest, recorded, tally = replayed.contest, replayed.recorded, replayed.contest.tally
    engines: dict[str, set[str]] = {}
    for stream in contest.timelines:
        of_cell = engines.setdefault(stream.cell, set())
        if stream.engine is not None:
            of_cell.add(stream.engine)
    return {
        "name": recorded.name,
        "start_s": recorded.start_s,
        "end_s": recorded.end_s,
        "pane_s": contest.config.time.pane_s,
        "values": contest.lines,
        "records": tally.records,
        "cells": [
            {"cell": cell, "model": contest.models[cell], "engines": sorted(engines[cell])}
            for cell in sorted(engines)
        ],
        "engines": sum(map(len, recorded.engines.values())),
        "streams": len(contest.timelines),
        "not_used": dict(sorted(tally.faults.items())),
        "counted": dict(sorted(tally.counted.items())),
        "silences": [
            {"model": model, "start_s": start_s, "end_s": end_s}
            for model, silences in sorted(recorded.silences.items())
            for start_s, end_s in silences[:MOST_LISTED]
        ],
    }


# The settings, side by side


def _setting(contestant: Contestant, replayed: Replayed, streams: _Streams) -> dict[str, Any]:
    said, setting = contestant.said, contestant.setting
    observed = observed_s(said.heard, replayed.recorded.silences)
    return {
        "name": setting.name,
        "preset": None if setting.is_static else setting.config.preset,
        "differs": _differences(replayed.contest.config, setting.config),
        "limits": _limits(replayed.contest) if contestant.needs_slo else [],
        "judged": said.heard.was_judged,
        "observed_s": observed,
        "counts": dict(sorted(said.counts.items())),
        "fired": len(said.fired),
        "paged": len(said.paged),
        "paged_a_week": _rate(rate(len(said.paged), observed)),
        "muted": dict(said.muted.most_common()),
        "alerts": [
            [streams.number(s.stream), s.fired_s, s.resolved_s, s.severity]
            for s in _in_order(said.stories.values())
            if s.fired_s is not None
        ],
        "scores": _scores(said.heard, setting.config, replayed),
    }


def _limits(contest: Contest) -> list[dict[str, Any]]:
    return [
        {
            "cell": cell,
            "signal": signal,
            "limit_s": slo.limit_s,
            "source": slo.source,
            "since_s": slo.since_s,
        }
        for (cell, signal), slo in sorted(contest.slos.items())
    ]


def _rate(found: Rate | None) -> dict[str, float] | None:
    return None if found is None else found._asdict()


def _differences(config: Config, other: Config) -> list[dict[str, Any]]:
    """Return the fields in which ``other`` differs, but for where things are and secrets."""
    ours, theirs = (dict(_flat(c.model_dump(mode="json"))) for c in (config, other))
    judging = ("preset", "signals", "time", "detector", "threshold", "alerts", "limits")
    return [
        {"field": name, "here": theirs.get(name), "there": ours.get(name)}
        for name in dict.fromkeys([*ours, *theirs])
        if name.partition(".")[0] in judging and ours.get(name) != theirs.get(name)
    ]


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _scores(heard: Heard, config: Config, replayed: Replayed) -> dict[str, Any] | None:
    """Return how alerts and verdicts fit the labels; None without labels."""
    labels = replayed.labels
    if labels is None:
        return None
    case = Case(recorded=replayed.recorded, episodes=labels.episodes, heard=heard)
    rules = Rules.of(config, labels.grace_s)
    return {kind: _score(kind, judge(kind, [case], rules), labels) for kind in ALARM_KINDS}


def _score(kind: AlarmKind, score: Score, labels: Labels) -> dict[str, Any]:
    numbers = [n for n, e in enumerate(labels.episodes) if sought(kind, [e])]
    delays = zip(numbers, score.delays_s, strict=True)
    found_s = [delay_s for delay_s in score.delays_s if not math.isnan(delay_s)]
    missed = len(score.delays_s) - len(found_s)
    return {
        "alarms": score.alarms,
        "found": len(found_s),
        "missed": missed,
        "missed_share": share_interval(missed, len(numbers)) if numbers else None,
        "delay_s": median(found_s) if found_s else None,
        "delay_limits_s": median_interval(found_s),
        "delays": [{"episode": n, "delay_s": _finite(delay_s)} for n, delay_s in delays],
        "false_alarms": score.false_alarms,
        "misread": score.misread,
        "unlearned": score.unlearned,
        "in_alarm": score.in_alarm,
        "at_risk_s": score.at_risk_s,
        "false_a_week": _rate(rate(score.false_alarms, score.at_risk_s)),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# What happened


def _episode(labelled: Labelled) -> dict[str, Any]:
    names = ("kind", "model", "engine", "signal", "note")
    return {
        "start_s": labelled.episode.start_s,
        "end_s": labelled.episode.end_s,
        **{name: getattr(labelled.label, name) for name in names},
    }


def _story(story: Story, streams: _Streams) -> dict[str, Any]:
    return {
        "stream": streams.number(story.stream),
        "name": story.name,
        "severity": story.severity,
        "attribution": story.attribution,
        "began_s": story.began_s,
        "pending_s": story.pending_s,
        "fired_s": story.fired_s,
        "resolved_s": story.resolved_s,
        "words": story.words,
    }


def _mute(mute: Suppression, streams: _Streams) -> dict[str, Any]:
    return {
        "stream": streams.number(stream_of(mute)),
        "time_s": mute.event_time_s,
        "name": mute.name,
        "severity": mute.labels.get("severity"),
        "rule": mute.rule,
        "why": mute.why,
        "until_s": mute.until_s,
    }


def _causes(trigger: RcaTrigger, streams: _Streams) -> dict[str, Any]:
    return {
        "stream": streams.number(stream_of(trigger)),
        "time_s": trigger.event_time_s,
        "name": trigger.name,
        "onset_s": trigger.onset_s,
        "causes": [
            {"cause": c.cause, "score": round(c.score, 3), "evidence": list(c.evidence)}
            for c in trigger.causes
        ],
    }


# The streams


def _stream(stream: Stream, contest: Contest, most: int) -> dict[str, Any]:
    timeline = contest.timelines.get(stream)
    told: dict[str, Any] = {
        "cell": stream.cell,
        "engine": stream.engine,
        "signal": stream.signal,
        "states": dict.fromkeys(STATES, 0),
        "width_s": contest.config.time.pane_s,
        "strip": [],
        "worst_over_threshold": None,
        "newest": None,
        "moves": [_move(move) for move in contest.base.said.moves.get(stream, ())],
        "line": None,
    }
    return told if timeline is None else told | _course(timeline, most)


def _course(timeline: Timeline, most: int) -> dict[str, Any]:
    course = timeline.course(most)
    return {
        "states": dict(zip(STATES, timeline.states, strict=True)),
        "width_s": course.width_s,
        "strip": course.strip(),
        "worst_over_threshold": course.worst_over_threshold,
        "newest": _newest(timeline.newest),
        "line": course.line(),
    }


def _newest(verdict: DriftVerdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    names = ("p99_s", "threshold_s", "kl_nats", "drifting", "why", "direction", "attribution")
    return {name: getattr(verdict, name) for name in names}


def _move(move: SloThreshold) -> dict[str, Any]:
    names = ("previous_s", "threshold_s", "why")
    return {"time_s": move.event_time_s} | {name: getattr(move, name) for name in names}
