"""The rows of the benchmark: on the terminal, as JSON, and as tables in the documentation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Figures = Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table.

    Attributes:
        table: The table's key.
        stream: What was judged.
        column: By which detector.
        seeds: Such as "1-20".
        command: Measures this very row again.
        options: The part of the command that all rows of a run share.
        figures: Numbers by name, the unit last; infinite for what never came, NaN for what is not.
    """

    table: str
    stream: str
    column: str
    seeds: str
    command: str
    options: str
    figures: Figures


def duration(seconds: float) -> str:
    """Return a duration in words, in the largest unit of which there are at least two."""
    if math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "never"
    for unit_s, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2.0 * unit_s:
            return f"{seconds / unit_s:.1f} {unit}"
    return f"{seconds:.0f} s"


def _number(form: str) -> Callable[[float], str]:
    return lambda value: format(value, form) if math.isfinite(value) else "-"


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "s": duration,
    "share": _number(".0%"),
    "ratio": _number(".2f"),
    "count": _number(",.0f"),
    "score": _number(".1f"),
}


def shown(name: str, value: float | str) -> str:
    """Return a figure as the tables show it, by the unit that its name ends in."""
    return value if isinstance(value, str) else _FORMATS[name.rpartition("_")[2]](value)


def heading(name: str) -> str:
    """Return the heading of a figure: its name without the unit, which its numbers show."""
    return name.rpartition("_")[0].replace("_", " ")


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return the table of ``rows``, its headings first."""
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    lines = [["stream", "detector", "seeds", *map(heading, names)]]
    for row in rows:
        figures = [shown(name, row.figures.get(name, math.nan)) for name in names]
        lines.append([row.stream, row.column, row.seeds, *figures])
    return lines


def by_table(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each table, in order."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row.table, []).append(row)
    return tables


def caption(row: Row) -> str:
    """Return the command that measures the table of ``row``."""
    return f"python -m bench.detection --only {row.table} {row.options}"


def print_tables(rows: Sequence[Row], console: Console) -> None:
    """Print a plain table for each of the tables in ``rows``."""
    for members in by_table(rows).values():
        headings, *lines = cells(members)
        table = Table(title=members[0].table, box=None, title_justify="left", pad_edge=False)
        for number, text in enumerate(headings):
            table.add_column(text, justify="left" if number < 2 else "right", no_wrap=True)
        for line in lines:
            table.add_row(*line)
        console.print(table)
        console.print(f"[dim]{caption(members[0])}[/dim]\n", highlight=False, soft_wrap=True)


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write ``rows`` as a JSON list; "inf" and "nan" are words, since JSON has no such numbers."""
    values = [asdict(row) for row in rows]
    for value in values:
        value["figures"] = {name: _to_json(x) for name, x in value["figures"].items()}
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> list[Row]:
    """Return the rows that ``write_json`` wrote; none if there is no such file."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    for row in rows:
        row["figures"] = {name: _of_json(x) for name, x in row["figures"].items()}
    return [Row(**row) for row in rows]


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return ``old`` with ``new`` in it: in place of the same row, or after its stream's others."""
    rows = list(old)
    for row in new:
        same_stream = [
            n
            for n, known in enumerate(rows)
            if (known.table, known.stream) == (row.table, row.stream)
        ]
        place = next((n for n in same_stream if rows[n].column == row.column), None)
        if place is not None:
            rows[place] = row
        else:
            rows.insert(same_stream[-1] + 1 if same_stream else len(rows), row)
    return rows


def _to_json(value: float | str) -> float | str:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _of_json(value: float | str) -> float | str:
    return float(value) if value in {"inf", "nan"} else value


def write_markdown(rows: Sequence[Row], page: Path) -> None:
    """Put each table into ``page``, between ``<!-- begin KEY -->`` and ``<!-- end KEY -->``.

    Raises:
        ValueError: If the page has no place for a table.
    """
    text = page.read_text(encoding="utf-8")
    for key, members in by_table(rows).items():
        begin, end = f"<!-- begin {key} -->", f"<!-- end {key} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{page} has no place for the table {key}: {begin} ... {end}")
        text = f"{before}{begin}\n{markdown(members)}\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def markdown(rows: Sequence[Row]) -> str:
    """Return the command that gives ``rows``, and their table."""
    headings, *lines = cells(rows)
    rule = ["---"] * 2 + ["---:"] * (len(headings) - 2)
    table = "\n".join(f"| {' | '.join(line)} |" for line in [headings, rule, *lines])
    return f"\n```\n{caption(rows[0])}\n```\n\n{table}\n"
