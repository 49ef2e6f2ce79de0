"""Compiling before the first record what judging needs, so that no record waits for it."""

from __future__ import annotations

from typing import Final

import numpy as np

from detectors.kl import KlDetector

_PANES: Final = 90
_PANE_SAMPLES: Final = 60
_SEED: Final = 1


def warm_up() -> None:
    """Judge a made-up series once: some seconds the first time, then well below one."""
    detector = KlDetector(strata_base=128.0)
    state, rng = detector.initial(), np.random.default_rng(_SEED)
    for number in range(_PANES):
        pane = detector.new_pane()
        values, workload = rng.lognormal(size=(2, _PANE_SAMPLES)).astype(np.float32)
        pane.add(values, np.zeros(_PANE_SAMPLES), 400.0 * workload)
        detector.update(state, pane, 10.0 * number)
