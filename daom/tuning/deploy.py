"""What was chosen as a configuration file, with a comment of what was seen."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from daom.config import values_with
from daom.durations import duration_words
from daom.evaluate import sought
from daom.times import clock
from daom.tuning.holdout import Split
from daom.tuning.objective import Figures
from daom.tuning.study import Outcome, Trial

_WIDTH: Final = 98
_THREE_DIGITS: Final = 100.0
"""From here on a number needs no decimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a reader of the file wants to know beside the figures.

    Attributes:
        command: That made it, as it was typed.
        incidents: The label file.
        split: The source and its parts.
        base: The file that the settings are on top of; None: none.
        environment: Names of the variables that it was judged under, too.
    """

    command: str
    incidents: str
    split: Split
    base: Path | None
    environment: Iterable[str]


def tuned_yaml(outcome: Outcome, told: Told) -> str:
    """Return the file that ``daom worker --config`` takes, comment first.

    It has no clock: the dates in it are the source's.

    Raises:
        ConfigError: If the file below cannot be read.
    """
    values, left_out = values_with(told.base, outcome.recommended.candidate.setting)
    paragraphs = [*_seen(outcome, told), *_beside(told, left_out)]
    wrapped = (textwrap.wrap(text, _WIDTH, subsequent_indent="  ") for text in paragraphs)
    comment = "".join(f"# {line}\n" for lines in wrapped for line in lines)
    return comment + _body(values)


def _body(values: Mapping[str, object]) -> str:
    if not values:
        return "{}\n"
    text: str = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
    return text


def _seen(outcome: Outcome, told: Told) -> Iterator[str]:
    split, within_s = told.split, outcome.within_s
    first, second = split.parts
    yield f"Made by: {told.command}"
    yield f"Source: {split.recorded.name}, {clock(first[0])} to {clock(second[1])} UTC"
    n_sought = len(sought("alerts", split.episodes))
    yield (
        f"Incidents: {told.incidents}, {n_sought} to be caught within {words_of_time(within_s)}, "
        f"{len(split.episodes) - n_sought} others that must not page"
    )
    yield f"Setting: {outcome.recommended.candidate.name}"
    for words, (start_s, end_s), number in (("Chosen on", first, 0), ("Judged on", second, 1)):
        yield f"{words} {clock(start_s)} to {clock(end_s)} UTC:"
        yield f"  this setting: {figures_words(_pair(outcome.recommended)[number], within_s)}"
        if outcome.beats_default:
            yield f"  without it: {figures_words(_pair(outcome.default)[number], within_s)}"
    if not outcome.beats_default:
        yield (
            f"Nothing beat what was configured on the part that judges; the best by the part that "
            f"chooses was {outcome.choice.candidate.name}: "
            f"{figures_words(outcome.choice.judged_on, within_s)}"
        )
    if not outcome.meets:
        yield "NOT MET: on the part that judges, not every incident was caught in time."


def _beside(told: Told, left_out: list[str]) -> Iterator[str]:
    if told.base is not None:
        yield f"On top of: {told.base}"
    if left_out:
        yield (
            f"Secrets left out: {', '.join(left_out)}; give them in the environment (SECURITY.md)"
        )
    variables = ", ".join(sorted(told.environment))
    if variables:
        yield f"Judged under these variables, too, which override this file: {variables}"


def _pair(trial: Trial) -> tuple[Figures, Figures]:
    return trial.chosen_on, trial.judged_on


def figures_words(figures: Figures, within_s: float) -> str:
    """Return figures in a line."""
    if not figures.judged:
        return "nothing was judged"
    return f"{caught_words(figures, within_s)} in time, {alerts_words(figures)}" + (
        f", delay {delay_words(figures)}" if figures.delays_s else ""
    )


def caught_words(figures: Figures, within_s: float) -> str:
    """Return how many incidents were caught in time, with 95 % limits of the share."""
    limits = figures.caught_interval(within_s)
    if limits is None:
        return "no incident"
    n = len(figures.delays_s)
    return f"{figures.caught(within_s)} of {n} ({limits[0]:.0%}..{limits[1]:.0%})"


def alerts_words(figures: Figures) -> str:
    """Return alerts, and how many that is a week."""
    return f"{figures.alerts} alerts, a week {week_words(figures)}"


def week_words(figures: Figures) -> str:
    """Return alerts a week, with 95 % limits."""
    least, most = (_short(limit) for limit in figures.alerts_a_week_interval)
    return f"{_short(figures.alerts_a_week)} ({least}..{most})"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= _THREE_DIGITS else f"{number:.3g}"


def words_of_time(duration_s: float) -> str:
    """Return a duration as somebody would have typed it: 5m, not 5.0m."""
    return duration_words(duration_s).replace(".0", "")


def delay_words(figures: Figures) -> str:
    """Return mean and longest delay of the incidents that were found, and how many were not."""
    found = figures.found_delays_s
    missed = len(figures.delays_s) - len(found)
    words = [f"{missed} missed"] if missed else []
    if found:
        mean_s, longest_s = sum(found) / len(found), max(found)
        words.insert(0, f"{words_of_time(mean_s)}, at most {words_of_time(longest_s)}")
    return "; ".join(words) or "-"
