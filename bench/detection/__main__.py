"""How soon a change is found, and how often one is reported where there is none.

``make bench-detection`` (``ARGS=--short`` for a quick look). Streams are seeded; no setting of the
detectors is chosen by what is measured here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from bench.detection.experiments import (
    Case,
    Plan,
    shift_cases,
    stationary_cases,
    workload_cases,
)
from bench.detection.nab_cases import nab_cases
from bench.detection.real_cases import page_cases, real_cases
from bench.detection.report import (
    Row,
    merged,
    print_tables,
    read_json,
    write_json,
    write_markdown,
)
from bench.detection.streams import HOUR_S

TABLES: Mapping[str, Callable[[Plan], Iterator[Case]]] = {
    "stationary": stationary_cases,
    "shifts": shift_cases,
    "workload": workload_cases,
    "real": real_cases,
    "pages": page_cases,
    "nab": nab_cases,
}
PAGE = Path(__file__).parents[2] / "docs" / "detection.md"
_WIDTH = 160
"""Columns of a table that goes into a file."""


def main() -> None:
    """Measure the tables that were asked for."""
    parser = _parser()
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(TABLES)
    unknown = sorted(set(chosen) - set(TABLES))
    if unknown:
        parser.error(f"--only {','.join(unknown)}: the tables are {', '.join(TABLES)}")
    plan = _plan(arguments)
    rows = _measure(plan, chosen)
    console = Console()
    print_tables(rows, console if console.is_terminal else Console(width=_WIDTH))
    if arguments.json:
        rows = merged(read_json(arguments.json) if arguments.merge else [], rows)
        write_json(rows, arguments.json)
    if arguments.markdown:
        write_markdown(rows, PAGE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.detection",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--short", action="store_true", help="5 seeds, shorter streams, 2 samples/s, our detectors")
    add("--only", help=f"tables, with commas: {','.join(TABLES)}")
    add("--stream", default="", help="only streams whose name holds this")
    add("--column", action="append", help="only this detector; may be given several times")
    add("--seeds", type=int, help="seeds 1 to this; default 20")
    add("--target-h", type=float, default=6.0, help="false-alarm interval in hours; default 6")
    add("--hours", type=float, help="of a stationary stream; default 12")
    add("--rates", help="samples/s of the shifts; default 2,10")
    add("--json", type=Path, help="write the rows to this file as well")
    add("--merge", action="store_true", help="keep the JSON file's rows that are not measured")
    add("--markdown", action="store_true", help="put all these rows into docs/detection.md")
    return parser


def _plan(arguments: argparse.Namespace) -> Plan:
    short = arguments.short
    seeds = arguments.seeds or (5 if short else 20)
    hours = arguments.hours or (2.0 if short else 12.0)
    rates = arguments.rates or ("2" if short else "2,10")
    options = f"--seeds {seeds} --target-h {arguments.target_h:g} --hours {hours:g} --rates {rates}"
    return Plan(
        seeds=range(1, seeds + 1),
        target_s=arguments.target_h * HOUR_S,
        hours=hours,
        rates_hz=[float(rate) for rate in rates.split(",")],
        stream=arguments.stream,
        columns=arguments.column or (),
        options=options + (" --short" if short else ""),
        short=short,
    )


def _measure(plan: Plan, chosen: list[str]) -> list[Row]:
    """Return the rows of the chosen tables."""
    rows: list[Row] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for table in chosen:
            preparing = progress.add_task(f"{table}: preparing", total=None)
            cases = [c for c in TABLES[table](plan) if plan.wants(c.stream, c.column)]
            progress.remove_task(preparing)
            task = progress.add_task(table, total=sum(case.runs for case in cases))
            for case in cases:
                progress.update(task, description=f"{table}: {case.stream}, {case.column}")
                rows.append(case.row(plan.options, partial(progress.advance, task)))
            progress.remove_task(task)
    return rows


if __name__ == "__main__":
    main()
