"""What ``daom evaluate`` found: tables for people, one object for scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from daom.cli.summary import clock
from daom.durations import duration_words
from daom.evaluate import ALARM_KINDS, AlarmKind, Baseline, Score, sought
from daom.heard import Interval
from daom.labels import Labelled, Recorded


@dataclass(frozen=True, slots=True)
class Judged:
    """How the alarms of one kind of one preset did, and how a clock as busy would have done."""

    preset: str
    kind: AlarmKind
    score: Score
    clock: Baseline


# For people


def print_scores(
    surveyed: Sequence[Recorded],
    episodes: Sequence[Sequence[Labelled]],
    rows: Sequence[Judged],
    grace_s: float,
) -> None:
    """Print how soon each episode was found, and how good the alarms of each preset are."""
    console = Console()
    flat = [(r, e) for r, of_one in zip(surveyed, episodes, strict=True) for e in of_one]
    if flat:
        console.print(_episode_table(flat, rows))
    console.print(_score_table(rows))
    console.print(
        f"An episode may be found until {duration_words(grace_s)} after its end. "
        "In brackets: 95 % limits.",
        "each ...: alarms by the clock, as many as above it, taken to mean what is the case.",
        highlight=False,
        sep="\n",
    )


def _episode_table(flat: Sequence[tuple[Recorded, Labelled]], rows: Sequence[Judged]) -> Table:
    table = Table(title="How soon each episode was found", title_justify="left")
    for name in ("begins", "lasts", "episode"):
        table.add_column(name)
    presets = list(dict.fromkeys(row.preset for row in rows))
    for preset in presets:
        table.add_column(preset)
    delays = {(row.preset, row.kind): _by_episode(row, flat) for row in rows}
    names_recording = len({recorded.name for recorded, _ in flat}) > 1
    for number, (recorded, labelled) in enumerate(flat):
        episode, label = labelled.episode, labelled.label
        about = [label.kind, label.model, label.engine, label.signal]
        if names_recording:
            about.append(Path(recorded.name).name)
        table.add_row(
            clock(episode.start_s),
            duration_words(episode.end_s - episode.start_s),
            " ".join(word for word in about if word),
            *(
                "\n".join(
                    f"{kind.removesuffix('s')} {_delay(found[number])}"
                    for kind in ALARM_KINDS
                    if number in (found := delays[preset, kind])
                )
                for preset in presets
            ),
        )
    return table


def _by_episode(row: Judged, flat: Sequence[tuple[Recorded, Labelled]]) -> dict[int, float]:
    """Return the delay to each episode that is sought, by its number."""
    numbers = [n for n, (_, e) in enumerate(flat) if sought(row.kind, [e])]
    return dict(zip(numbers, row.score.delays_s, strict=True))


def _score_table(rows: Sequence[Judged]) -> Table:
    table = Table(title="How good the alarms are", title_justify="left")
    table.add_column("preset")
    table.add_column("alarms")
    for name in ("delay, max", "missed", "false"):
        table.add_column(name, justify="right")
    table.add_column("one false in")
    promised_s = next((row.score.target_s for row in rows if row.score.target_s), None)
    if promised_s is not None:
        table.add_column(f"of the {duration_words(promised_s)}")
    for row in rows:
        score, beside = row.score, row.clock
        misread = f", {score.misread} misread" if score.misread else ""
        table.add_row(
            row.preset,
            f"{row.kind}: {score.alarms}",
            _delays(score.delays_s),
            f"{sum(map(math.isnan, score.delays_s))} of {len(score.delays_s)}",
            f"{score.false_alarms} in {duration_words(score.at_risk_s)}{misread}",
            _limits(score.mtbfa_s, score.mtbfa_interval_s, duration_words),
            *_achieved(score, promised_s),
        )
        if score.alarms:
            each = f"each {duration_words(beside.every_s)}"
            missed, false = _share(beside.missed_share), f"{beside.false_alarms:.2g}"
            table.add_row("", each, _delays(beside.delays_s), missed, false, style="dim")
    for kind in ALARM_KINDS:
        count = next(len(row.score.delays_s) for row in rows if row.kind == kind)
        table.add_row("(silence)", f"{kind}: 0", "-", f"{count} of {count}", "0", "never")
    return table


def _achieved(score: Score, promised_s: float | None) -> list[str]:
    if promised_s is None:
        return []
    return ["" if score.achieved is None else _limits(*score.achieved, "{:.2g}".format)]


def _delays(delays_s: Iterable[float]) -> str:
    found = [delay_s for delay_s in delays_s if not math.isnan(delay_s)]
    return f"{duration_words(median(found))}, {duration_words(max(found))}" if found else "-"


def _delay(delay_s: float) -> str:
    return "missed" if math.isnan(delay_s) else duration_words(delay_s)


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0%}"


def _limits(mean: float, interval: Interval, form: Any) -> str:
    least, most = interval
    return (
        f"over {form(least)}" if math.isinf(mean) else f"{form(mean)} ({form(least)}..{form(most)})"
    )


# For scripts


def report(
    surveyed: Sequence[Recorded],
    episodes: Sequence[Sequence[Labelled]],
    rows: Sequence[Judged],
    grace_s: float,
    signal: str | None,
) -> dict[str, Any]:
    """Return all as JSON; null stands for missed, infinite, and what there is none of."""
    flat = [(r, e) for r, of_one in zip(surveyed, episodes, strict=True) for e in of_one]
    return {
        "grace_s": grace_s,
        "signal": signal,
        "recordings": [{"name": r.name, "start_s": r.start_s, "end_s": r.end_s} for r in surveyed],
        "episodes": [
            {
                "recording": recorded.name,
                "start_s": labelled.episode.start_s,
                "end_s": labelled.episode.end_s,
                **{
                    name: getattr(labelled.label, name)
                    for name in ("kind", "model", "engine", "signal", "note")
                },
            }
            for recorded, labelled in flat
        ],
        "scores": [_figures(row, flat) for row in rows],
    }


def _figures(row: Judged, flat: Sequence[tuple[Recorded, Labelled]]) -> dict[str, Any]:
    score, beside = row.score, row.clock
    delays = _by_episode(row, flat)
    achieved = score.achieved
    return {
        "preset": row.preset,
        "alarms": row.kind,
        "count": score.alarms,
        "delays": [{"episode": n, "delay_s": _finite(delay_s)} for n, delay_s in delays.items()],
        "missed": sum(map(math.isnan, score.delays_s)),
        "unlearned": score.unlearned,
        "in_alarm": score.in_alarm,
        "false_alarms": score.false_alarms,
        "misread": score.misread,
        "at_risk_s": score.at_risk_s,
        "mtbfa_s": _finite(score.mtbfa_s),
        "mtbfa_interval_s": [_finite(limit_s) for limit_s in score.mtbfa_interval_s],
        "target_s": score.target_s,
        "achieved_over_target": None if achieved is None else _finite(achieved[0]),
        "achieved_over_target_interval": achieved and [_finite(limit) for limit in achieved[1]],
        "clock": {
            "every_s": _finite(beside.every_s),
            "missed_share": _finite(beside.missed_share),
            "median_delay_s": median(beside.delays_s) if beside.delays_s else None,
            "false_alarms": beside.false_alarms,
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
