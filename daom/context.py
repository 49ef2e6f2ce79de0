"""What else an engine reported: the circumstances in which its latency drifted.

Per engine and pane, gauges, counters, request columns and GPU readings become one number each. For
each the usual level and its usual spread are learned while the engine is calm; the newest panes are
kept beside. Root-cause analysis asks how far apart the two are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from daom.events import GpuSample, Table, TelemetryBatch

_MEMORY_PANES: Final = 360
_RECENT_PANES: Final = 30
_PEAK_PANES: Final = 3
_CAUSE_PANES: Final = 12
_SURGE: Final = 1.5
NOTABLE_Z: Final = 3.0
_SPREAD_TO_SIGMA: Final = 1.2533  # Of a normal: sqrt(pi / 2) mean absolute deviations.
_REQUEST_COLUMNS: Final = (
    *("queue_s", "prefill_s", "decode_s", "prompt_tokens", "cached_tokens", "output_tokens"),
)


@dataclass(slots=True)
class Level:
    """The usual level of one quantity, its usual spread, and its newest panes, oldest first."""

    usual: float
    spread: float = 0.0
    panes: int = 0
    recent: list[float] = field(default_factory=list)

    def observe(self, value: float, *, calm: bool) -> None:
        """Take the value of one pane; learn from it only if the engine is calm."""
        self.recent.append(value)
        del self.recent[:-_RECENT_PANES]
        if calm or not self.panes:
            self.panes = min(self.panes + 1, _MEMORY_PANES)
            weight = 1.0 / self.panes
            self.spread += weight * (abs(value - self.usual) - self.spread)
            self.usual += weight * (value - self.usual)

    def shift(self, panes: int) -> Shift:
        """Return how far the newest ``panes`` are from the usual level.

        The peak is sought a little further back: a cause comes before its effect, and a request
        shows only once it has finished.
        """
        newest = np.array(self.recent[-max(1, panes) :])
        before = np.array(self.recent[-max(1, panes) - _CAUSE_PANES :])
        width = min(_PEAK_PANES, before.size)
        floor = max(0.05 * abs(self.usual), 1e-9)
        sigma = max(_SPREAD_TO_SIGMA * self.spread, floor)
        now = float(newest.mean())
        return Shift(
            usual=self.usual,
            now=now,
            z=(now - self.usual) / sigma,
            peak=float(np.convolve(before, np.full(width, 1.0 / width), "valid").max()),
            sigma=sigma,
        )


@dataclass(frozen=True, slots=True)
class Shift:
    """How far a quantity is from its usual level.

    Attributes:
        now: Its mean since the onset.
        z: Distance of ``now`` in usual spreads, with a floor of 5 % of the level; positive is up.
        peak: Its highest mean over three panes since a little before the onset.
        sigma: The usual spread.
    """

    usual: float
    now: float
    z: float
    peak: float
    sigma: float

    def words(self, name: str) -> str:
        """Return the shift as evidence for a person: ``waiting 0.2 -> 294``."""
        return f"{name} {self.usual:.3g} -> {self.now:.3g}"


def is_surge(arrivals: Shift) -> bool:
    """Return whether the peak of the arrivals is beyond what is usual, and half as high again."""
    beyond = arrivals.peak >= arrivals.usual + NOTABLE_Z * arrivals.sigma
    return beyond and arrivals.peak >= _SURGE * arrivals.usual


@dataclass(slots=True)
class ContextState:
    """The circumstances of one engine."""

    levels: dict[str, Level] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    in_flight: float | None = None

    def add(self, name: str, total: float, count: int = 1) -> None:
        """Take ``count`` readings that add up to ``total``."""
        self.sums[name] = self.sums.get(name, 0.0) + total
        self.counts[name] = self.counts.get(name, 0) + count

    def take_batch(self, batch: TelemetryBatch, *, newest: bool = True) -> None:
        """Take the gauges, counters and requests of a batch; of an overtaken one only requests."""
        for name, value in batch.gauges.items() if newest else ():
            if name.endswith("_total"):
                before = self.counters.get(name, value)
                # A counter that went down was restarted, and has counted from zero since.
                self.add(name, value - before if value >= before else value)
                self.counters[name] = value
            else:
                self.add(name, value)
        if batch.requests.rows:
            self._take_requests(batch.requests)

    def _take_requests(self, requests: Table) -> None:
        self.add("finished", float(requests.rows), 0)
        for name in _REQUEST_COLUMNS:
            column = requests.columns.get(name)
            if column is not None:
                measured = column[~np.isnan(column)]
                self.add(name, float(measured.sum(dtype=np.float64)), int(measured.size))

    def take_gpus(self, sample: GpuSample) -> None:
        """Take the numbers of a GPU reading, averaged over the engine's GPUs."""
        for gpu in sample.gpus:
            for name, value in gpu.items():
                if not isinstance(value, str):
                    self.add(f"gpu_{name}", value)

    def surges(self) -> bool:
        """Return whether far more requests have arrived lately than usual."""
        arrivals = self.levels.get("arrivals_per_s")
        return arrivals is not None and is_surge(arrivals.shift(_PEAK_PANES))

    def close_pane(self, pane_s: float, *, calm: bool) -> None:
        """Turn what was taken into one number each, and learn."""
        for name, value in self._pane_values(pane_s).items():
            level = self.levels.get(name)
            if level is None:
                level = self.levels[name] = Level(usual=value)
            level.observe(value, calm=calm)
        self.sums.clear()
        self.counts.clear()

    def _pane_values(self, pane_s: float) -> dict[str, float]:
        values = {
            name: total / self.counts[name]
            for name, total in self.sums.items()
            if self.counts[name] and not name.endswith("_total")
        }
        increases = {name: t for name, t in self.sums.items() if name.endswith("_total")}
        values |= {
            name.removesuffix("_total") + "_per_s": t / pane_s for name, t in increases.items()
        }
        queries = increases.get("prefix_queries_total", 0.0)
        if queries > 0.0:
            values["prefix_hit_ratio"] = increases.get("prefix_hits_total", 0.0) / queries
        return values | self._arrivals(values, pane_s)

    def _arrivals(self, values: Mapping[str, float], pane_s: float) -> dict[str, float]:
        """Return the arrival rate: what finished, and what came to be in flight."""
        if "running" not in values:
            return {}
        before = self.in_flight
        self.in_flight = values["running"] + values.get("waiting", 0.0)
        if before is None:
            return {}
        arrived = self.sums.get("finished", 0.0) + self.in_flight - before
        return {"arrivals_per_s": max(0.0, arrived / pane_s)}


def mean_shifts(contexts: Sequence[ContextState], panes: int) -> dict[str, Shift]:
    """Return how far each quantity is from its usual level: means over engines and panes."""
    shifts: dict[str, Shift] = {}
    for name in sorted({name for context in contexts for name in context.levels}):
        found = [c.levels[name].shift(panes) for c in contexts if name in c.levels]
        means = np.array([(s.usual, s.now, s.z, s.peak, s.sigma) for s in found]).mean(axis=0)
        shifts[name] = Shift(*means.tolist())
    return shifts
