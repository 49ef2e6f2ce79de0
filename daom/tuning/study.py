"""A search carried out: replays judged, each once, and what was found, best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from daom.tuning.candidates import Candidate, Planner, Replay
from daom.tuning.journal import Journal, Pair
from daom.tuning.objective import Figures, Worth, as_number
from daom.tuning.search import Search

Evaluate = Callable[[Sequence[Replay]], Iterable[tuple[int, Sequence[Pair]]]]
"""Judges replays, and yields of each, as it is finished, its number and its settings' figures."""


def _nothing(replays: Sequence[Replay]) -> Iterator[tuple[int, Sequence[Pair]]]:
    raise ValueError(f"{len(replays)} replays are to be judged, and nothing judges them")


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting, and how it did on the part that chooses and on the part that judges."""

    candidate: Candidate
    chosen_on: Figures
    judged_on: Figures

    def rank(self, within_s: float) -> tuple[Worth, int]:
        """Return what the choice goes by: the first part; of equals, the fewest fields set."""
        return self.chosen_on.worth(within_s), len(self.candidate.setting)


@dataclass(slots=True)
class Study:
    """The trials of a search.

    Attributes:
        planner: Makes replays of settings.
        journal: What is known already, and will be.
        within_s: An incident is to be caught so soon.
        evaluate: Judges replays.
        trials: Of every setting, in the order of the search.
        best: Figures, on the part that chooses, of the best setting so far.
        done: Replays.
    """

    planner: Planner
    journal: Journal
    within_s: float
    evaluate: Evaluate = _nothing
    trials: list[Trial] = field(default_factory=list)
    best: Figures | None = None
    done: int = 0
    _seen: set[str] = field(default_factory=set)

    def run(self, search: Search) -> Iterator[None]:
        """Carry ``search`` out; yields whenever a replay is finished."""
        settings = next(search, None)
        is_first = True
        while settings is not None:
            replays = [self.planner.replay(setting) for setting in settings]
            usable = [replay for replay in replays if replay is not None]
            base = self.planner.base
            if is_first and not any(base in replay.candidates for replay in usable):
                usable.insert(0, self.planner.current())
            yield from self._judge(usable)
            for replay in usable:
                self._note(replay)
            is_first = False
            try:
                settings = search.send([self._value(replay) for replay in replays])
            except StopIteration:
                return

    def _judge(self, replays: Sequence[Replay]) -> Iterator[None]:
        """Judge those that are not known; yields for each that is."""
        due: list[Replay] = []
        for replay in replays:
            known = self._known(replay)
            if known is None and replay.judging not in [other.judging for other in due]:
                due.append(replay)
            elif known is not None:
                self._finish(known)
                yield
        for number, found in self.evaluate(due) if due else ():
            self.journal.add(due[number].judging, found)
            self._finish(found)
            yield

    def _finish(self, found: Sequence[Pair]) -> None:
        best = [self.best] if self.best is not None else []
        self.best = min(
            (*best, *(chosen_on for chosen_on, _ in found)), key=lambda f: f.worth(self.within_s)
        )
        self.done += 1

    def _known(self, replay: Replay) -> Sequence[Pair] | None:
        return self.journal.find(replay.judging, len(replay.candidates))

    def _note(self, replay: Replay) -> None:
        for candidate, (chosen_on, judged_on) in zip(
            replay.candidates, self._known(replay) or (), strict=True
        ):
            if candidate.name not in self._seen:
                self._seen.add(candidate.name)
                self.trials.append(Trial(candidate, chosen_on, judged_on))

    def _value(self, replay: Replay | None) -> float:
        """Return how good the best setting of a replay is, less is better; NaN if there is none."""
        found = () if replay is None else self._known(replay) or ()
        worths = [chosen_on.worth(self.within_s) for chosen_on, _ in found]
        return as_number(min(worths)) if worths else math.nan

    def ranked(self) -> list[Trial]:
        """Return the trials, best first by the part that chooses."""
        return sorted(self.trials, key=lambda trial: trial.rank(self.within_s))

    def default(self) -> Trial:
        """Return the trial of what is configured now."""
        return next(trial for trial in self.trials if not trial.candidate.setting)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is recommended, and why.

    Attributes:
        choice: The best by the part that chooses.
        default: What is configured now.
        runners_up: The next best that do something else on either part.
        within_s: An incident is to be caught so soon.
    """

    choice: Trial
    default: Trial
    runners_up: Sequence[Trial]
    within_s: float

    @property
    def beats_default(self) -> bool:
        """Whether the choice is better than what is configured on the part that judges."""
        mine, present = (t.judged_on.worth(self.within_s) for t in (self.choice, self.default))
        return mine < present

    @property
    def recommended(self) -> Trial:
        """The choice if it beats what is configured now; else that."""
        return self.choice if self.beats_default else self.default

    @property
    def meets(self) -> bool:
        """Whether what is recommended catches all in time on the part that judges."""
        return self.recommended.judged_on.meets(self.within_s)


def outcome(study: Study, runners_up: int) -> Outcome:
    """Return what a finished study found, with so many ``runners_up``."""
    choice, *others = study.ranked()
    seen = {_did(choice)}
    next_best: list[Trial] = []
    for trial in others:
        if len(next_best) < runners_up and trial.candidate.setting and _did(trial) not in seen:
            seen.add(_did(trial))
            next_best.append(trial)
    return Outcome(choice, study.default(), next_best, study.within_s)


def _did(trial: Trial) -> tuple[object, ...]:
    pair = (trial.chosen_on, trial.judged_on)
    return tuple((f.alerts, f.false_alarms, tuple(f.delays_s)) for f in pair)
