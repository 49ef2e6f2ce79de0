"""The one parameter that sets a peer's rate of false alarms, set on seeds of its own.

A peer is calibrated for each kind of stream apart, on that very kind: more than its users could do,
and more than the default detector is given, which has the same settings for all. Among the settings
of a grid, the most sensitive one is taken that holds the interval on the calibration seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bench.detection.kswin import NEWEST, kswin, p_value
from bench.detection.measure import false_alarms
from bench.detection.peers import River, adwin, page_hinkley
from bench.detection.streams import Make

FIRST_SEED: Final = 10_001
"""Calibration seeds begin here: never those of a measurement."""


@dataclass(frozen=True)
class Tunable:
    """A peer and the settings that it may be given.

    Attributes:
        name: Of the calibrated peer.
        settings: From the most sensitive to the least.
        at: The peer with a setting.
        max_rate_hz: More samples a second take too long.
    """

    name: str
    settings: tuple[float, ...]
    at: Callable[[float], River]
    max_rate_hz: float = np.inf


TUNABLES: Final = (
    Tunable("ADWIN calibrated", tuple(10.0 ** np.arange(-0.05, -12.0, -0.1)), adwin),
    Tunable("PageHinkley calibrated", tuple(np.geomspace(5.0, 5_000.0, 64)), page_hinkley),
    Tunable("KSWIN calibrated", tuple(map(p_value, range(10, NEWEST + 1))), kswin, 2.0),
)


def calibrated(
    tunable: Tunable, null: Make, seeds: Sequence[int], interval_s: float
) -> River | None:
    """Return the peer at its most sensitive setting that holds ``interval_s``; None if none does.

    Args:
        null: Streams on which nothing changes.
    """
    low, high = 0, len(tunable.settings)
    while low < high:
        middle = (low + high) // 2
        peer = tunable.at(tunable.settings[middle])
        if false_alarms(peer.law or peer, null, seeds).interval_s >= interval_s:
            high = middle
        else:
            low = middle + 1
    if low == len(tunable.settings):
        return None
    return replace(tunable.at(tunable.settings[low]), name=tunable.name, interval_s=interval_s)
