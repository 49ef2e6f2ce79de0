"""Two parts of one source in time: the first chooses the setting, the second judges the choice.

All is replayed once, so what has been learned in the first part is known in the second, as it would
be live. An incident is of the part in which it began; so is every alert that belongs to it, and an
alert that belongs to none is of the part in which its condition began.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from daom.evaluate import Case, Rules, owner
from daom.events import Series
from daom.heard import Alarm, Heard, Interval, SeriesHeard
from daom.labels import Labelled, Recorded
from daom.tuning.objective import Figures, figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A source, its incidents, and where it is divided.

    Attributes:
        recorded: What the source holds.
        episodes: What is known to have happened in it.
        cut_s: Event time at which the first part ends.
    """

    recorded: Recorded
    episodes: Sequence[Labelled]
    cut_s: float

    @classmethod
    def of(cls, recorded: Recorded, episodes: Sequence[Labelled], holdout: float) -> Split:
        """Return ``recorded`` divided so that ``holdout`` of its time, 0 to 1, is left to judge."""
        length_s = recorded.end_s - recorded.start_s
        return cls(recorded=recorded, episodes=episodes, cut_s=recorded.end_s - holdout * length_s)

    @property
    def parts(self) -> tuple[Interval, Interval]:
        """From when to when each part is."""
        return (self.recorded.start_s, self.cut_s), (self.cut_s, self.recorded.end_s)

    def incidents(self) -> tuple[list[Labelled], list[Labelled]]:
        """Return what happened in each part."""
        first = [e for e in self.episodes if e.episode.start_s < self.cut_s]
        return first, [e for e in self.episodes if e.episode.start_s >= self.cut_s]

    def figures(self, heard: Heard, rules: Rules) -> tuple[Figures, Figures]:
        """Return how the setting that said ``heard`` did on each part."""
        first, second = self._cases(heard, rules)
        (start_s, cut_s), (_, end_s) = self.parts
        return (
            figures(first, rules, self._observed_s(start_s, cut_s)),
            figures(second, rules, self._observed_s(cut_s, end_s)),
        )

    def _cases(self, heard: Heard, rules: Rules) -> tuple[Case, Case]:
        """Return each part as a case of its own."""
        pages: tuple[dict[tuple[str, str], Alarm], ...] = ({}, {})
        for key, page in heard.pages.items():
            number, _ = owner("alerts", page, self.episodes, rules.grace_s)
            at_s = page.begin_s if number is None else self.episodes[number].episode.start_s
            pages[at_s >= self.cut_s][key] = page
        first, second = (
            Case(
                recorded=self.recorded,
                episodes=episodes,
                heard=Heard(series=_between(heard, *span), pages=said),
            )
            for span, episodes, said in zip(self.parts, self.incidents(), pages, strict=True)
        )
        return first, second

    def _observed_s(self, start_s: float, end_s: float) -> float:
        """Return for how long something was recorded of the model that was recorded longest."""
        models = self.recorded.engines
        silences = (self.recorded.silences.get(model, ()) for model in models)
        return max(end_s - start_s - _length_within(found, start_s, end_s) for found in silences)


def _length_within(intervals: Iterable[Interval], start_s: float, end_s: float) -> float:
    return math.fsum(max(0.0, min(b, end_s) - max(a, start_s)) for a, b in intervals)


def _between(heard: Heard, start_s: float, end_s: float) -> dict[tuple[str, Series], SeriesHeard]:
    """Return what was said of the series from ``start_s`` to ``end_s``: when they were judged."""
    found = {}
    for key, series in heard.series.items():
        judged = [(max(a, start_s), min(b, end_s)) for a, b in series.judged]
        first_s, newest_s = next(((a, b) for a, b in judged if a < b), (None, None))
        found[key] = replace(series, first_s=first_s, newest_s=newest_s)
    return found
