"""What is measured on real data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from bench.detection.alarms import Column
from bench.detection.experiments import Case, Plan, attribution_figures
from bench.detection.measure import Tick
from bench.detection.ours import DEFAULT_INTERVAL_S, Daom, Sits2026
from bench.detection.peers import DriftFdr, adwin, page_hinkley
from bench.detection.real import (
    HEAVIER_SCALES,
    LIGHT_SCALE,
    closer_together,
    code_after_conversation,
    data_dir,
    drawn,
    endpoints,
    healthy_services,
    overload,
    telemetry,
    vllm_runs,
)
from bench.detection.report import Figures
from bench.detection.streams import Floats, Make
from daom.config import Config
from daom.events import Alert, DriftVerdict
from daom.lifecycle import DRIFT
from daom.pipeline import Cell
from daom.presets import cell_settings

_VM_GAP_S: Final = 5.0
"""So far apart the VMs' values are put: three hours apart, as measured, none could be judged."""


def real_cases(plan: Plan) -> Iterator[Case]:
    """Yield the cases on real data.

    Raises:
        FileNotFoundError: If the data are not there.
    """
    for name, make, seeds in _streams(_data(), plan):
        for column in _columns():
            measure = partial(attribution_figures, column, make, seeds)
            yield Case("real", name, column.name, seeds, measure)


def page_cases(plan: Plan) -> Iterator[Case]:
    """Yield the cases in which a whole cell judges healthy machines: it should page nobody.

    In short only the first service.

    Raises:
        FileNotFoundError: If the data are not there.
    """
    for name, vms in islice(healthy_services(_data()), 1 if plan.short else None):
        close = {vm: closer_together(rows, _VM_GAP_S) for vm, rows in vms.items()}
        for how, series in (("as measured", vms), (f"a value each {_VM_GAP_S:g} s", close)):
            measure_pages = partial(_page_figures, series)
            yield Case("pages", f"{name}, {how}", "daom default", range(0), measure_pages)


def _data() -> Path:
    data = data_dir()
    if not data.is_dir():
        raise FileNotFoundError(f"{data}: no recorded data; name their folder in DAOM_DATA")
    return data


def _streams(data: Path, plan: Plan) -> Iterator[tuple[str, Make, range]]:
    """Yield name, streams and seeds: at least as many as there are ways to splice the data."""
    seeds = plan.seeds
    yield "Azure: conversation, then code", code_after_conversation(data), seeds
    if plan.short:
        return
    for source, runs in (("llmperf", endpoints(data)), ("LLMServingSim", vllm_runs(data))):
        for change in (True, False):
            ways, make = drawn(runs, change=change)
            then = "another" if change else "the same"
            yield f"{source}: a run, then {then}", make, _at_least(ways, plan)
    heavier = overload(data, HEAVIER_SCALES)
    yield "BurstGPT: light, then heavier load", heavier, _at_least(len(HEAVIER_SCALES), plan)
    yield "BurstGPT: light load goes on", overload(data, (LIGHT_SCALE,)), seeds


def _at_least(ways: int, plan: Plan) -> range:
    return range(1, max(ways, len(plan.seeds)) + 1)


def _columns() -> tuple[Column, ...]:
    return (
        Daom("daom default", DEFAULT_INTERVAL_S),
        Sits2026(),
        adwin(),
        page_hinkley(),
        DriftFdr(DEFAULT_INTERVAL_S),
    )


def _page_figures(vms: Mapping[str, Floats], tick: Tick) -> Figures:
    """Fold a service's VMs as the engines of one cell; count what would have paged."""
    settings = cell_settings(Config.model_validate({"signals": {"e2e_s": {}}}))
    cell = Cell("pgsql", "pgsql", settings)
    pages, judged, drifting = 0, 0, 0
    for batch in telemetry(vms):
        for output in cell.step(batch):
            if isinstance(output, Alert):
                pages += output.name == DRIFT and output.state == "firing"
            elif isinstance(output, DriftVerdict):
                judged += output.drifting in {True, False}
                drifting += output.drifting is True
    tick()
    return {
        "judged_panes_count": judged,
        "drifting_share": drifting / judged if judged else math.nan,
        "pages_count": pages,
    }
