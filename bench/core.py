"""The pure core: samples folded a second, the cost of judging, the size of a state."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from bench.samples import BATCH_ROWS, MODEL, PANE_S, START_S, batches
from connectors.recordings import read_lines
from daom.config import Config
from daom.demo import demo_recording
from daom.fold import Fold
from daom.pipeline import Cell
from daom.presets import cell_settings
from detectors.histogram import N_BINS, bin_index
from detectors.kl_state import KlState
from streams.checkpoint import encode_plain

_BATCHES = 4_000
_LEARNING_PANES = 260


def samples_per_s(rounds: int, batches_a_pane: int = 20) -> float:
    """Return samples folded a second, of decoded batches of 1,024, panes' closes included.

    Judging costs the same for a pane however many samples it holds, so their number matters. The
    clock starts once the reference has been learned.
    """
    learned = list(batches(2 * _LEARNING_PANES, batch_s=PANE_S / 2))
    begin_s, seq = START_S + _LEARNING_PANES * PANE_S, len(learned)
    records = list(
        batches(_BATCHES, batch_s=PANE_S / batches_a_pane, begin_s=begin_s, first_seq=seq)
    )
    best = 0.0
    for _ in range(rounds):
        cell = Cell(MODEL, MODEL, cell_settings(Config()))
        for record in learned:
            cell.step(record)
        began_s = time.perf_counter()
        for record in records:
            cell.step(record)
        best = max(best, _BATCHES * BATCH_ROWS / (time.perf_counter() - began_s))
    return best


def bincount_per_s(rounds: int) -> float:
    """Return samples binned a second by nothing but a shift and a bincount, 1,024 at a time."""
    values = [record.steps.columns["itl_s"] for record in batches(_BATCHES)]
    best = 0.0
    for _ in range(rounds):
        total = np.zeros(N_BINS, np.int64)
        began_s = time.perf_counter()
        for column in values:
            total += np.bincount(bin_index(column), minlength=N_BINS)
        best = max(best, _BATCHES * BATCH_ROWS / (time.perf_counter() - began_s))
    return best


class Judging(NamedTuple):
    """What it takes to judge one series at a pane's close, once its reference is learned.

    Attributes:
        median_us: Half of the panes take no longer.
        mean_us: Of all panes but those of which the evidence is calibrated anew.
        calibrated_us: Mean of those: whenever as much again has been learned.
    """

    median_us: float
    mean_us: float
    calibrated_us: float


def judging(rounds: int) -> Judging:
    """Measure the judging of a young series, which learns most: 800 panes of 50 samples."""
    settings = cell_settings(Config())
    detector = next(s.detector for s in settings.signals if s.name == "ttft_s")
    rng = np.random.default_rng(2)
    panes = []
    for _ in range(1_000):
        pane = detector.new_pane()
        values = rng.lognormal(-2.0, 0.5, 50).astype(np.float32)
        pane.add(values, np.zeros(50), rng.lognormal(6.0, 1.0, 50).astype(np.float32))
        pane.snapshot()
        panes.append(pane)
    best = Judging(np.inf, np.inf, np.inf)
    for _ in range(rounds):
        state, spent_us, is_calibrated = detector.initial(), [], []
        for number, pane in enumerate(panes):
            before = _log_rate(state)
            began_s = time.perf_counter()
            detector.update(state, pane, 10.0 * number)
            spent_us.append(1e6 * (time.perf_counter() - began_s))
            is_calibrated.append(_log_rate(state) != before)
        taken_us, calibrated = np.array(spent_us[200:]), np.array(is_calibrated[200:])
        mean_us, calibrated_us = taken_us[~calibrated].mean(), taken_us[calibrated].mean()
        best = min(best, Judging(float(np.median(taken_us)), float(mean_us), float(calibrated_us)))
    return best


def _log_rate(state: Any) -> float | None:
    """Return what the newest calibration of a series has found."""
    while not isinstance(state, KlState):
        state = state.inner
    return None if state.baseline is None else float(state.baseline.log_rate)


def state_bytes() -> dict[str, float]:
    """Return the bytes of a series' state as a checkpoint holds them before deflating."""
    fold = Fold(cell_settings(Config()))
    for line in read_lines(demo_recording()):
        fold.take(line.value, None)
    sizes = [
        len(encode_plain(series))
        for cell in fold.cells.values()
        for engine in cell.state.engines.values()
        for series in engine.series.values()
    ]
    busy = Cell(MODEL, MODEL, cell_settings(Config()))
    for record in batches(_BATCHES):
        busy.step(record)
    steps = len(encode_plain(busy.state.engines["gpu-0"].series["itl_s"]))
    return {
        "requests of the demo, mean": sum(sizes) / len(sizes),
        "2,048 steps/s": steps,
    }
