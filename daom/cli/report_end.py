"""What ``daom replay --report`` prints once the report is there: the settings side by side."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from daom.durations import duration_words

_WHOLE: Final = 10.0
"""From here on a number needs no decimal."""


def print_report(told: dict[str, Any], path: Path) -> None:
    """Print how the settings compare, in a few lines, and where the report is."""
    table = Table(title="Settings side by side", title_justify="left")
    for name in ("setting", "pages", "a week (95 %)", "muted"):
        table.add_column(name, justify="left" if name == "setting" else "right", overflow="fold")
    if told["labels"]:
        for name in ("missed", "delay, max", "false"):
            table.add_column(name, justify="right")
    for setting in told["settings"]:
        table.add_row(*_cells(setting))
    Console().print(table)
    for warning in told["warnings"]:
        click.echo(f"daom: {warning}", err=True)
    click.echo(f"{told['source']['records']} records, {told['source']['streams']} streams: {path}")


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= _WHOLE else f"{number:.2g}"


def _cells(setting: dict[str, Any]) -> list[str]:
    rate, scores = setting["paged_a_week"], setting["scores"]
    a_week = "nothing was judged"
    if rate is not None:
        estimate, least, most = (_short(rate[name]) for name in ("a_week", "least", "most"))
        a_week = f"{estimate} ({least}..{most})"
    muted = sum(setting["muted"].values())
    cells = [setting["name"], str(setting["paged"]), a_week, str(muted)]
    if scores is not None:
        score = scores["alerts"]
        delays_s = [d["delay_s"] for d in score["delays"] if d["delay_s"] is not None]
        delay = "-"
        if delays_s:
            delay = f"{duration_words(median(delays_s))}, {duration_words(max(delays_s))}"
        of = score["missed"] + score["found"]
        cells += [f"{score['missed']} of {of}", delay, str(score["false_alarms"])]
    return cells
