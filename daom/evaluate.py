"""What a preset says of labelled recordings: what it found, how late, and its false alarms.

Two kinds of alarms are judged apart. *Alerts* are what pages somebody: an alert that fires as
warning or critical, once an incident, however often its severity changes. *Verdicts* are what a
series is said to do: an alarm begins with a verdict "drifting", and those that begin within the
configured cooldown of its end are the same one.

An alert is right on a degradation alone. A verdict is right on a degradation if it says neither
"faster" nor that the traffic alone changed, on an improvement if it says "faster" and not that the
traffic alone changed, on a change of the workload if it says that. What is right of no episode is a
false alarm; if it falls into one all the same, it is *misread*. A verdict in the grace time after
an episode may be about its end, and is no false alarm.

Whose an alarm is depends on when it began: of an alert, when its condition did, for one that only
fires after an onset has not found it. A delay runs from the onset to the firing, or to the first
verdict that is right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

from daom.config import Config
from daom.events import Series
from daom.heard import Alarm, Heard, Interval
from daom.labels import Kind, Labelled, Recorded
from detectors.evaluation import (
    alarm_every_n_baseline,
    detection_delays,
    match,
    mean_time_between_false_alarms,
    mtbfa_interval,
    owner_of,
)

AlarmKind = Literal["alerts", "verdicts"]
ALARM_KINDS: Final[tuple[AlarmKind, ...]] = ("alerts", "verdicts")

_PHASES: Final = 100
"""Over so many phases the alarm-every-n baseline is averaged: one would find by luck, or miss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How alarms are judged.

    Attributes:
        grace_s: How long after its end an episode may still be found.
        join_s: Drifts of a series that are at most so far apart are one alarm.
        target_s: The mean time between false alarms that the preset promises a cell; None: none.
        signal: Judge this one alone.
    """

    grace_s: float
    join_s: float
    target_s: float | None = None
    signal: str | None = None

    @classmethod
    def of(cls, config: Config, grace_s: float, signal: str | None = None) -> Self:
        """Return the rules that ``config`` implies."""
        promises = config.preset == "default"
        return cls(
            grace_s=grace_s,
            join_s=config.alerts.cooldown_s,
            target_s=config.detector.false_alarm_interval_s if promises else None,
            signal=signal,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One recording, its episodes, and what a preset said of it."""

    recorded: Recorded
    episodes: Sequence[Labelled]
    heard: Heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well the alarms of one kind fit the episodes.

    Attributes:
        alarms: How many there were.
        delays_s: Of each episode that is sought, in order: seconds to the first right alarm; NaN
            where it was missed.
        false_alarms: Alarms that are right of no episode,
        misread: among them those that fall into one.
        at_risk_s: Event time of a cell in which there could have been a false alarm: the mean,
            over its series, of the time in which each was judged, outside its episodes; a series
            that drifts cannot begin to, so of verdicts its calm time alone.
        target_s: The mean time between false alarms that is promised; None: none.
        unlearned: Missed episodes that began before any of their series was judged,
        in_alarm: and those that began while one of them was already drifting.
    """

    alarms: int
    delays_s: Sequence[float]
    false_alarms: int
    misread: int
    at_risk_s: float
    target_s: float | None
    unlearned: int
    in_alarm: int

    @property
    def mtbfa_s(self) -> float:
        """Mean time between false alarms; infinite if there was none."""
        return mean_time_between_false_alarms(self.false_alarms, self.at_risk_s)

    @property
    def mtbfa_interval_s(self) -> Interval:
        """Its 95 % limits."""
        return mtbfa_interval(self.false_alarms, self.at_risk_s)

    @property
    def achieved(self) -> tuple[float, Interval] | None:
        """Achieved over promised interval, and its 95 % limits; None where none is promised.

        The promise is about series on which nothing changes, so what was misread is left out.
        """
        if self.target_s is None:
            return None
        n_false = self.false_alarms - self.misread
        least_s, most_s = mtbfa_interval(n_false, self.at_risk_s)
        mean_s = mean_time_between_false_alarms(n_false, self.at_risk_s)
        return mean_s / self.target_s, (least_s / self.target_s, most_s / self.target_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """An alarm each ``every_s``, as often as the preset's, judged as kindly as can be.

    It says nothing of engine, signal, direction or attribution, and is taken to mean all of them.

    Attributes:
        every_s: Infinite where the preset never alarmed: then so does it.
        delays_s: Of the episodes that were found, over all phases.
        missed_share: Mean share of episodes that were missed; NaN if there were none.
        false_alarms: Mean number.
    """

    every_s: float
    delays_s: Sequence[float]
    missed_share: float
    false_alarms: float


def is_right(kind: Kind, direction: str, attribution: str) -> bool:
    """Return whether a drifting verdict says what an episode of ``kind`` is.

    A detector that knows no attribution says "none", which is right where the service changed.
    """
    if kind == "workload":
        return attribution == "workload"
    if attribution == "workload":
        return False
    return direction == "faster" if kind == "improvement" else direction != "faster"


def judge(kind: AlarmKind, cases: Sequence[Case], rules: Rules) -> Score:
    """Return how well the alarms of one kind, of one preset, fit the episodes of all recordings."""
    delays_s: list[float] = []
    count = Counter[str]()
    for case in cases:
        hits: dict[int, float] = {}
        alarms = list(_alarms(kind, case, rules))
        for alarm in alarms:
            own, right_s = owner(kind, alarm, case.episodes, rules.grace_s)
            if own is not None and right_s is not None:
                hits[own] = min(right_s, hits.get(own, math.inf))
            elif own is None or not _is_aftermath(kind, alarm, case.episodes[own]):
                count["false"] += 1
                count["misread"] += own is not None
        count["alarms"] += len(alarms)
        for number, labelled in enumerate(case.episodes):
            if not _is_sought(kind, labelled):
                continue
            delays_s.append(hits.get(number, math.nan) - labelled.episode.start_s)
            if number not in hits:
                count["unlearned"] += _is_unlearned(labelled, case.heard)
                count["in_alarm"] += any(_is_on(alarm, labelled) for alarm in alarms)
    return Score(
        alarms=count["alarms"],
        delays_s=delays_s,
        false_alarms=count["false"],
        misread=count["misread"],
        at_risk_s=sum(_at_risk_s(kind, case, rules) for case in cases),
        target_s=rules.target_s if kind == "verdicts" else None,
        unlearned=count["unlearned"],
        in_alarm=count["in_alarm"],
    )


def owner(
    kind: AlarmKind, alarm: Alarm, episodes: Sequence[Labelled], grace_s: float
) -> tuple[int | None, float | None]:
    """Return the number of the episode that an alarm falls into, and when it first was right."""
    own = [n for n, e in enumerate(episodes) if e.concerns(alarm.model, alarm.engine, alarm.signal)]
    found = owner_of(alarm.begin_s, [episodes[n].episode for n in own], grace_s)
    if found is None:
        return None, None
    episode = episodes[own[found]]
    if kind == "alerts":
        times_s = [alarm.end_s] if _is_sought(kind, episode) else []
    else:
        claims = alarm.claims.items()
        times_s = [since_s for claim, since_s in claims if is_right(episode.label.kind, *claim)]
    in_time_s = (time_s for time_s in times_s if time_s <= episode.episode.end_s + grace_s)
    return own[found], min(in_time_s, default=None)


def sought(kind: AlarmKind, episodes: Iterable[Labelled]) -> list[Labelled]:
    """Return the episodes that alarms of a kind are to find: nobody is paged for the others."""
    return [labelled for labelled in episodes if _is_sought(kind, labelled)]


def _is_sought(kind: AlarmKind, labelled: Labelled) -> bool:
    return kind == "verdicts" or labelled.label.kind == "degradation"


def _alarms(kind: AlarmKind, case: Case, rules: Rules) -> Iterator[Alarm]:
    if kind == "alerts":
        for page in case.heard.pages.values():
            if rules.signal in {None, page.signal}:
                yield page
        return
    for (_, series), heard in case.heard.series.items():
        if rules.signal in {None, series.signal}:
            own = [e.episode.start_s for e in case.episodes if _is_of(e, series)]
            yield from _joined(heard.drifts, rules.join_s, own)


def _joined(drifts: Iterable[Alarm], join_s: float, onsets_s: Collection[float]) -> Iterator[Alarm]:
    """Yield the drifts of a series, those close together as one, but never across an onset."""
    last: Alarm | None = None
    for drift in drifts:
        # Judging changes nothing that was heard, hence the copy.
        following = replace(drift, claims=dict(drift.claims))
        if last is None:
            last = following
            continue
        parted = any(last.begin_s < onset_s <= drift.begin_s for onset_s in onsets_s)
        if drift.begin_s - last.end_s <= join_s and not parted:
            last.join(following)
        else:
            yield last
            last = following
    if last is not None:
        yield last


def _is_of(labelled: Labelled, series: Series) -> bool:
    return labelled.concerns(series.model, series.engine, series.signal)


def _is_aftermath(kind: AlarmKind, alarm: Alarm, labelled: Labelled) -> bool:
    """Return whether a verdict is about the end of an episode, which is a change, too."""
    return kind == "verdicts" and alarm.begin_s > labelled.episode.end_s


def _is_unlearned(labelled: Labelled, heard: Heard) -> bool:
    firsts_s = [h.first_s for (_, series), h in heard.series.items() if _is_of(labelled, series)]
    judged_s = (first_s for first_s in firsts_s if first_s is not None)
    return min(judged_s, default=math.inf) > labelled.episode.start_s


def _is_on(alarm: Alarm, labelled: Labelled) -> bool:
    """Return whether an alarm had begun before an episode, and was still on."""
    is_own = labelled.concerns(alarm.model, alarm.engine, alarm.signal)
    return is_own and alarm.begin_s < labelled.episode.start_s <= alarm.end_s


def _at_risk_s(kind: AlarmKind, case: Case, rules: Rules) -> float:
    n_series = Counter(cell for cell, _ in case.heard.series)
    total_s = 0.0
    for (cell, series), heard in case.heard.series.items():
        if rules.signal not in {None, series.signal}:
            continue
        windows = [
            (e.episode.start_s, e.episode.end_s + rules.grace_s)
            for e in case.episodes
            if _is_of(e, series)
        ]
        left_out = [*windows, *case.recorded.silences.get(series.model, ())]
        judged = heard.calm if kind == "verdicts" else heard.judged
        total_s += _length_outside(judged, left_out) / n_series[cell]
    return total_s


def _length_outside(intervals: Iterable[Interval], left_out: Iterable[Interval]) -> float:
    """Return the length of ``intervals``, which do not overlap, without what is ``left_out``."""
    pieces = list(intervals)
    for start_s, end_s in left_out:
        pieces = [
            (max(a, low), min(b, high))
            for a, b in pieces
            for low, high in ((-math.inf, start_s), (end_s, math.inf))
            if min(b, high) > max(a, low)
        ]
    return sum(b - a for a, b in pieces)


def baseline(kind: AlarmKind, cases: Sequence[Case], score: Score, rules: Rules) -> Baseline:
    """Return how an alarm each so often, as many as ``score`` has, would have done."""
    spans = [_judged_span(case, rules) for case in cases]
    observed_s = sum(end_s - start_s for start_s, end_s in spans)
    every_s = observed_s / score.alarms if score.alarms and observed_s else math.inf
    delays_s: list[float] = []
    false_alarms, missed = 0, 0
    for phase in ((number + 0.5) / _PHASES for number in range(_PHASES)):
        for case, (start_s, end_s) in zip(cases, spans, strict=True):
            times_s = alarm_every_n_baseline(end_s - start_s, every_s, phase=phase)
            episodes = [e.episode for e in sought(kind, case.episodes)]
            alarms_s = [start_s + time_s for time_s in times_s]
            found_s = detection_delays(alarms_s, episodes, rules.grace_s)
            delays_s.extend(delay_s for delay_s in found_s if not math.isnan(delay_s))
            missed += sum(map(math.isnan, found_s))
            false_alarms += len(match(alarms_s, episodes, rules.grace_s).false_alarms_s)
    n_episodes = missed + len(delays_s)
    return Baseline(
        every_s=every_s,
        delays_s=delays_s,
        missed_share=missed / n_episodes if n_episodes else math.nan,
        false_alarms=false_alarms / _PHASES,
    )


def _judged_span(case: Case, rules: Rules) -> Interval:
    """Return from when to when a recording was judged; an empty time if it never was."""
    heard = [h for (_, s), h in case.heard.series.items() if rules.signal in {None, s.signal}]
    judged = [interval for h in heard for interval in h.judged]
    if not judged:
        return 0.0, 0.0
    return min(start_s for start_s, _ in judged), max(end_s for _, end_s in judged)
