"""One engine of a cell: its batches, its circumstances, and its series' open panes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daom.context import ContextState, counter_key
from daom.events import Histogram, TelemetryBatch
from daom.intake import Intake
from daom.series import SeriesState, SignalSettings
from detectors.protocol import Pane


@dataclass(slots=True)
class EngineState:
    """What is known of one engine. Times are event times.

    Attributes:
        last_s: Its newest record.
        progress_s: When it last finished a request or a step.
        in_flight: Requests running or waiting, by its newest gauges.
        longest_request_s: The longest request it has finished.
        heard_once: It has sent a single batch so far: perhaps nobody but a producer's invention.
    """

    last_s: float
    progress_s: float
    host: str | None = None
    in_flight: float = 0.0
    reports_steps: bool = False
    longest_request_s: float = 0.0
    heard_once: bool = False
    intake: Intake = field(default_factory=Intake)
    context: ContextState = field(default_factory=ContextState)
    series: dict[str, SeriesState] = field(default_factory=dict)

    def take_circumstances(self, batch: TelemetryBatch, now_s: float) -> None:
        """Take what a batch says beside its samples."""
        newest = now_s >= self.last_s
        self.last_s = max(self.last_s, now_s)
        self.host = batch.source.host or self.host
        if newest and ("running" in batch.gauges or "waiting" in batch.gauges):
            self.in_flight = batch.gauges.get("running", 0.0) + batch.gauges.get("waiting", 0.0)
        self.reports_steps = self.reports_steps or batch.steps.rows > 0
        if batch.requests.rows or self._gets_on(batch):
            self.progress_s = max(self.progress_s, now_s)
            self.longest_request_s = max(self.longest_request_s, _longest_s(batch))
        self.context.take_batch(batch, newest=newest)

    def _gets_on(self, batch: TelemetryBatch) -> bool:
        """Return whether any step of ``batch`` got on with its work.

        An engine that thrashes takes steps too, but preempts what it began and makes no token; one
        that reads a long prompt makes none either, and preempts nothing. Whatever an engine has
        counted by buckets, it has done.
        """
        if batch.histograms and any(counted.total for counted in batch.histograms.values()):
            return True
        tokens = batch.steps.columns.get("tokens")
        if not batch.steps.rows or tokens is None or tokens[-1] != 0.0 or tokens.any():
            return batch.steps.rows > 0
        name = "preemptions_total"
        before = self.context.counters.get(counter_key(name, batch.source.frontend))
        return before is not None and batch.gauges.get(name) == before


def _longest_s(batch: TelemetryBatch) -> float:
    """Return how long the longest of the requests took that finished; by buckets, at most."""
    longest_s = 0.0
    e2e_s = batch.requests.columns.get("e2e_s")
    if e2e_s is not None:
        longest_s = float(np.max(e2e_s, where=~np.isnan(e2e_s), initial=0.0))
    counted = batch.histograms.get("e2e_s")
    if counted is not None and counted.total:
        edges = counted.le_s[: int(counted.counts.nonzero()[0][-1]) + 1]
        longest_s = max(longest_s, float(edges[np.isfinite(edges)].max(initial=0.0)))
    return longest_s


@dataclass(frozen=True, slots=True)
class PaneGrid:
    """Event time cut into panes, numbered since 1970."""

    pane_s: float

    def number(self, time_s: float) -> int:
        """Return the pane that ``time_s`` is in."""
        return math.floor(time_s / self.pane_s)

    def end_s(self, number: int) -> float:
        """Return when pane ``number`` ends."""
        return (number + 1) * self.pane_s


def take_rows(
    series: SeriesState,
    signal: SignalSettings,
    batch: TelemetryBatch,
    shift_s: float,
    grid: PaneGrid,
    first_open: int,
) -> int:
    """Put the rows of ``batch`` that ``signal`` is about into the panes of ``series``.

    Args:
        shift_s: Added to the batch's times: 0 unless its clock is wrong.
        first_open: Panes before this one are closed.

    Returns:
        Number of rows that came too late for their pane.
    """
    table = batch.requests if signal.table == "requests" else batch.steps
    values = table.columns[signal.column]
    workload = table.columns.get(signal.workload) if signal.workload else None
    part = table.columns.get(signal.workload_part) if signal.workload_part else None
    times = table.end_s + shift_s if shift_s else table.end_s
    first, last = grid.number(batch.start_s + shift_s), grid.number(batch.end_s + shift_s)
    if first == last and first >= first_open:
        open_pane(series, signal, first).add(values, times, workload, part)
        return 0
    late = 0
    numbers = np.floor_divide(times, grid.pane_s)
    for number in np.unique(numbers):
        rows = numbers == number
        if number < first_open:
            late += int(rows.sum())
            continue
        pane = open_pane(series, signal, int(number))
        chosen = (None if column is None else column[rows] for column in (workload, part))
        pane.add(values[rows], times[rows], *chosen)
    return late


def take_buckets(
    series: SeriesState,
    signal: SignalSettings,
    batch: TelemetryBatch,
    shift_s: float,
    grid: PaneGrid,
    first_open: int,
) -> int:
    """Put the bucket counts of ``batch`` that ``signal`` is about into a pane of ``series``.

    Nobody knows when in the batch's span they happened: the pane of its middle takes them all,
    since a part of a sample is none.

    Returns:
        Number of samples that came too late for their pane.
    """
    histogram: Histogram = batch.histograms[signal.column]
    total = histogram.total
    number = grid.number(0.5 * (batch.start_s + batch.end_s) + shift_s)
    if number < first_open:
        return total
    if total:
        pane: Any = open_pane(series, signal, number)  # A BucketPane: ``signal.takes_buckets``.
        pane.add_buckets(histogram.le_s, histogram.counts)
    return 0


def open_pane(series: SeriesState, signal: SignalSettings, number: int) -> Pane:
    """Return the open pane ``number`` of ``series``."""
    pane = series.panes.get(number)
    if pane is None:
        pane = series.panes[number] = signal.detector.new_pane()
    return pane
