"""False alarms and delays of a detector over many seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.detection.alarms import Column, Watched
from bench.detection.streams import PANE_S, Make
from detectors.evaluation import (
    Episode,
    detection_delays,
    mean_time_between_false_alarms,
    mtbfa_interval,
)

Tick = Callable[[], None]


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """Of a detector on streams on which nothing changes.

    Attributes:
        alarms: How many.
        at_risk_s: Event time in which it judged and was not in alarm.
    """

    alarms: int
    at_risk_s: float

    @property
    def interval_s(self) -> float:
        """Mean time between false alarms; infinite if there was none."""
        return mean_time_between_false_alarms(self.alarms, self.at_risk_s)

    @property
    def limits_s(self) -> tuple[float, float]:
        """The interval's exact 95 % confidence limits, alarms being Poisson."""
        return mtbfa_interval(self.alarms, self.at_risk_s)


@dataclass(frozen=True, slots=True)
class Delays:
    """Of a detector on streams that change.

    Attributes:
        delays_s: One a run, infinite where nothing was found before the stream's end.
        in_alarm: Runs left out, since an alarm was on when the change began.
    """

    delays_s: tuple[float, ...]
    in_alarm: int

    @property
    def median_s(self) -> float:
        """The median delay, runs that missed counted as infinite; NaN without a run."""
        return float(np.median(self.delays_s)) if self.delays_s else math.nan

    @property
    def missed(self) -> float:
        """Share of runs in which nothing was found; NaN without a run."""
        if not self.delays_s:
            return math.nan
        return sum(map(math.isinf, self.delays_s)) / len(self.delays_s)


def false_alarms(
    column: Column, make: Make, seeds: Sequence[int], tick: Tick = lambda: None
) -> FalseAlarms:
    """Count the alarms of ``column`` on streams on which nothing changes."""
    alarms, at_risk_s = 0, 0.0
    for seed in seeds:
        watched = column.watch(make(seed))
        alarms += len(watched.alarms)
        at_risk_s += watched.at_risk_s
        tick()
    return FalseAlarms(alarms, at_risk_s)


def delays(column: Column, make: Make, seeds: Sequence[int], tick: Tick = lambda: None) -> Delays:
    """Measure how long ``column`` takes to find a change.

    Raises:
        ValueError: If a stream does not change.
    """
    found: list[float] = []
    in_alarm = 0
    for seed in seeds:
        stream = make(seed)
        if stream.onset_s is None:
            raise ValueError(f"the stream of seed {seed} does not change: it has no delay")
        watched = column.watch(stream, until_found=True)
        if watched.is_in_alarm(stream.onset_s):
            in_alarm += 1
        else:
            found.append(delay_s(watched, stream.onset_s, stream.end_s))
        tick()
    return Delays(tuple(found), in_alarm)


def delay_s(watched: Watched, onset_s: float, end_s: float) -> float:
    """Return how long after ``onset_s`` the first alarm began; infinite if none did."""
    begins_s = [alarm.begin_s for alarm in watched.alarms]
    # A stream's last pane may end after it.
    [found_s] = detection_delays(begins_s, [Episode(onset_s, end_s)], grace_s=PANE_S)
    return math.inf if math.isnan(found_s) else found_s


def lorden_bound_s(interval_s: float, kl_nats_per_s: float) -> float:
    """Return the least mean delay that any detector with this false-alarm interval can have.

    To first order: ln(interval in panes) over the information of a second.

    Source:
        Lorden (1971). doi:10.1214/aoms/1177693055
    """
    return math.log(interval_s / PANE_S) / kl_nats_per_s
