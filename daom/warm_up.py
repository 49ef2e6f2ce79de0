"""Compiling before the first record what judging needs, so that no record waits for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from daom.cell import CellSettings
from daom.events import Source, Table, TelemetryBatch
from daom.pipeline import Cell
from daom.series import SignalSettings

_ENGINES: Final = 3
"""So many have peers."""
_PANES: Final = 104
_SLOWER_FROM: Final = 94
"""Until then the reference is learned, and learned on."""
_BEGIN_S: Final = 1e9
_ROWS: Final = 60
_MANY_ROWS: Final = 5_000
"""Many at once are counted in another way than few."""
_SEED: Final = 1


def warm_up(settings: CellSettings) -> None:
    """Judge a made-up cell in which a drift begins: seconds the first time, then about one."""
    cell, rng = Cell("warm-up", "warm-up", settings), np.random.default_rng(_SEED)
    for number in range(_PANES):
        rows = _MANY_ROWS if number == 0 else _ROWS
        for engine in range(_ENGINES):
            start_s = _BEGIN_S + settings.pane_s * number
            end_s = np.linspace(start_s, start_s + 0.9 * settings.pane_s, rows)
            slowdown = 2.0 if number >= _SLOWER_FROM else 1.0
            cell.step(
                TelemetryBatch(
                    source=Source(model="warm-up", engine=f"engine-{engine}"),
                    start_s=float(end_s[0]),
                    end_s=float(end_s[-1]),
                    requests=_table(_of("requests", settings), end_s, slowdown, rng),
                    steps=_table(_of("steps", settings), end_s, slowdown, rng),
                )
            )


def _of(table: str, settings: CellSettings) -> list[SignalSettings]:
    return [signal for signal in settings.signals if signal.table == table]


def _table(
    signals: Iterable[SignalSettings],
    end_s: NDArray[np.float64],
    slowdown: float,
    rng: np.random.Generator,
) -> Table:
    """Return rows of the columns that ``signals`` are about."""
    columns = {}
    for signal in signals:
        workload = rng.lognormal(6.0, 0.5, end_s.size).astype(np.float32)
        if signal.workload is not None:
            columns[signal.workload] = workload
        if signal.workload_part is not None:
            columns[signal.workload_part] = workload * rng.random(end_s.size, np.float32)
        values = slowdown * rng.lognormal(-2.0, 0.5, end_s.size)
        columns[signal.column] = values.astype(np.float32)
    return Table(end_s=end_s, columns=columns)
