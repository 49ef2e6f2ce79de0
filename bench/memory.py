"""Memory against event time: ``python -m bench.memory --days 7 --series 1000 --pane-s 60``.

A cell of many engines is folded as a replay folds it, message by message, and the resident memory
is printed beside the event time. Whatever grows with the length of a recording shows here.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.replay import DAY_S
from bench.samples import MODEL, START_S
from daom.codec import encode_msgpack
from daom.config import Config
from daom.events import Source, Table, TelemetryBatch
from daom.fold import Fold
from daom.presets import cell_settings

_SIGNALS = ("ttft_s", "e2e_s", "itl_s")
_ROWS = 12
_HOUR_S = 3_600.0


def main() -> None:
    """Fold, and print resident memory by event time."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--series", type=int, default=1_000)
    parser.add_argument("--pane-s", type=float, default=60.0)
    arguments = parser.parse_args()
    config = Config.model_validate({"time": {"pane_s": arguments.pane_s}})
    fold = Fold(cell_settings(config))
    began_s, shown, outputs = time.perf_counter(), 0, 0
    print(f"{'event hours':>12} {'RSS MiB':>9} {'series':>7} {'outputs':>10} {'took s':>8}")
    engines = max(1, arguments.series // len(_SIGNALS))
    for event_s, value in _messages(engines, arguments.days * DAY_S, arguments.pane_s):
        outputs += len(fold.take(value, None).outputs)
        if event_s >= shown * _HOUR_S:
            took_s = time.perf_counter() - began_s
            print(
                f"{event_s / _HOUR_S:12.0f} {_resident_mib():9.1f} {_series(fold):7} "
                f"{outputs:10} {took_s:8.0f}",
                flush=True,
            )
            shown += 1 if shown < 12 else 6


def _messages(engines: int, span_s: float, pane_s: float) -> Iterator[tuple[float, bytes]]:
    """Yield event time since the start and a message: one of each engine a pane."""
    rng = np.random.default_rng(1)
    for number in range(round(span_s / pane_s)):
        since_s = number * pane_s
        end_s = START_S + since_s + np.linspace(0.0, 0.9 * pane_s, _ROWS)
        for engine in range(engines):
            drawn = rng.lognormal(-2.0, 0.3, (len(_SIGNALS), _ROWS)).astype(np.float32)
            prompts = rng.lognormal(6.0, 1.0, _ROWS).astype(np.float32)
            *requests, itl_s = drawn
            columns = dict(zip(_SIGNALS, requests, strict=False)) | {"prompt_tokens": prompts}
            yield (
                since_s,
                encode_msgpack(
                    TelemetryBatch(
                        source=Source(model=MODEL, engine=f"gpu-{engine}", boot="b", seq=number),
                        start_s=float(end_s[0]),
                        end_s=float(end_s[-1]),
                        requests=Table(end_s=end_s, columns=columns),
                        steps=Table(end_s=end_s, columns={"itl_s": itl_s, "running": prompts}),
                        gauges={"running": 8.0, "waiting": 0.0},
                    )
                ),
            )


def _series(fold: Fold) -> int:
    cells = fold.cells.values()
    return sum(len(engine.series) for cell in cells for engine in cell.state.engines.values())


def _resident_mib() -> float:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4_096 / 2**20


if __name__ == "__main__":
    main()
