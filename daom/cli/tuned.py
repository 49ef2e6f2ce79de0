"""What ``daom tune`` found: a table for people, one object for scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from daom.times import clock
from daom.tuning.deploy import caught_words, delay_words, week_words, words_of_time
from daom.tuning.holdout import Split
from daom.tuning.objective import Figures
from daom.tuning.study import Outcome, Trial

# For people


def print_outcome(found: Outcome, split: Split, settings: int, output: str) -> None:
    """Print the choice, what is there now and the runners-up on both parts, and what follows."""
    console = Console(soft_wrap=True)
    console.print(f"{settings} settings on {split.recorded.name}:", highlight=False)
    width = max(len(name) for name, _ in _rows(found))
    for name, trial in _rows(found):
        console.print(f"  {name:{width}}  {trial.candidate.name}", highlight=False)
    for number, (start_s, end_s) in enumerate(split.parts):
        does = "Judges" if number else "Chooses"
        title = f"{does}: {clock(start_s)} to {clock(end_s)} ({words_of_time(end_s - start_s)})"
        console.print(_table(title, found, number))
    console.print(
        "In brackets: 95 % limits, of the share that is caught, and of the alerts a week.",
        *_verdict(found),
        f"Written to {output}: daom worker --config {output}",
        highlight=False,
        sep="\n",
    )


def _table(title: str, found: Outcome, part: int) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("setting")
    table.add_column(f"caught in {words_of_time(found.within_s)}")
    table.add_column("alerts", justify="right")
    table.add_column("a week")
    table.add_column("delay, max")
    for name, trial in _rows(found):
        figures = trial.judged_on if part else trial.chosen_on
        table.add_row(name, *_cells(figures, found.within_s))
    return table


def _rows(found: Outcome) -> Iterator[tuple[str, Trial]]:
    if found.choice.candidate.setting:
        yield "choice", found.choice
    yield "as it is now", found.default
    for number, trial in enumerate(found.runners_up, start=2):
        yield f"{number}.", trial


def _cells(figures: Figures, within_s: float) -> list[str]:
    if not figures.judged:
        return ["nothing was judged", "", "", ""]
    alerts = f"{figures.alerts}, {figures.false_alarms} false" if figures.alerts else "0"
    return [
        caught_words(figures, within_s),
        alerts,
        week_words(figures),
        delay_words(figures).replace("at most ", ""),
    ]


def _verdict(found: Outcome) -> Iterator[str]:
    if found.beats_default:
        yield f"Recommended: {found.recommended.candidate.name}"
        if _overlap(found.choice.judged_on, found.default.judged_on):
            yield (
                "The limits of its alerts a week and of those as it is now overlap: so short a "
                "part does not prove that they differ."
            )
    elif found.choice.candidate.setting:
        yield (
            "Recommended: what is configured now. The choice does not beat it on the part that "
            "judges."
        )
    else:
        yield "Recommended: what is configured now. Nothing was better on the part that chooses."
    if not found.meets:
        yield "It does not catch every incident in time on the part that judges."


def _overlap(first: Figures, second: Figures) -> bool:
    intervals = (first.alerts_a_week_interval, second.alerts_a_week_interval)
    return max(least for least, _ in intervals) <= min(most for _, most in intervals)


# For scripts


def report(found: Outcome, split: Split, settings: int, output: str) -> dict[str, Any]:
    """Return all as JSON; null stands for missed, infinite, and what there is none of."""
    return {
        "source": split.recorded.name,
        "settings": settings,
        "catch_within_s": found.within_s,
        "parts": [
            {"does": does, "start_s": start_s, "end_s": end_s, "incidents": len(episodes)}
            for does, (start_s, end_s), episodes in zip(
                ("chooses", "judges"), split.parts, split.incidents(), strict=True
            )
        ],
        "choice": _trial(found.choice, found.within_s),
        "default": _trial(found.default, found.within_s),
        "runners_up": [_trial(trial, found.within_s) for trial in found.runners_up],
        "beats_default": found.beats_default,
        "recommended": dict(found.recommended.candidate.setting),
        "met": found.meets,
        "output": output,
    }


def _trial(trial: Trial, within_s: float) -> dict[str, Any]:
    return {
        "setting": dict(trial.candidate.setting),
        "chosen_on": _figures(trial.chosen_on, within_s),
        "judged_on": _figures(trial.judged_on, within_s),
    }


def _figures(figures: Figures, within_s: float) -> dict[str, Any]:
    return {
        "judged": figures.judged,
        "observed_s": figures.observed_s,
        "incidents": len(figures.delays_s),
        "caught_in_time": figures.caught(within_s),
        "caught_interval": figures.caught_interval(within_s),
        "delays_s": list(figures.delays_s),
        "alerts": figures.alerts,
        "false_alarms": figures.false_alarms,
        "alerts_a_week": _finite(figures.alerts_a_week),
        "alerts_a_week_interval": _all_finite(figures.alerts_a_week_interval),
    }


def _all_finite(values: Sequence[float]) -> list[float | None]:
    return [_finite(value) for value in values]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
