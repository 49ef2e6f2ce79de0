"""What else an engine reported: the circumstances in which its latency drifted.

Per engine and pane, gauges, counters, request columns and GPU readings become one number each. For
each the usual level and its usual spread are learned while the engine is calm; the newest panes are
kept beside. Root-cause analysis asks how far apart the two are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from daom.bounded import put
from daom.events import Columns, GpuSample, Table, TelemetryBatch
from daom.gpu_readings import counters, readings

_MEMORY_PANES: Final = 360
_MAX_COUNTERS: Final = 1_024
"""Of an engine; those of frontends that are gone are the oldest, and are forgotten."""
_RECENT_PANES: Final = 60
_PEAK_PANES: Final = 3
_CAUSE_PANES: Final = 12
_SURGE: Final = 1.5
RISE: Final = 1.1
NOTABLE_Z: Final = 3.0
_SPREAD_TO_SIGMA: Final = 1.2533  # Of a normal: sqrt(pi / 2) mean absolute deviations.
_REQUEST_COLUMNS: Final = (
    *("queue_s", "prefill_s", "decode_s", "prompt_tokens", "cached_tokens", "output_tokens"),
    "preemptions",
)
_PROMPTS: Final = "prompt_tokens_per_s"
_DECODE_COLUMNS: Final = frozenset({"e2e_s", "ttft_s", "output_tokens"})


@dataclass(slots=True)
class Level:
    """The usual level of one quantity, its usual spread, and its newest panes, oldest first.

    Attributes:
        missed: Panes since it was last reported.
        has_moved: It has not always been the same: else its gauge may be dead.
    """

    usual: float
    spread: float = 0.0
    panes: int = 0
    recent: list[float] = field(default_factory=list)
    missed: int = 0
    has_moved: bool = False

    def observe(self, value: float, *, calm: bool) -> None:
        """Take the value of one pane; learn from it only if the engine is calm."""
        self.missed = 0
        self.has_moved = self.has_moved or value != self.usual
        self.recent.append(value)
        del self.recent[:-_RECENT_PANES]
        if calm or not self.panes:
            self.panes = min(self.panes + 1, _MEMORY_PANES)
            weight = 1.0 / self.panes
            self.spread += weight * (abs(value - self.usual) - self.spread)
            self.usual += weight * (value - self.usual)

    def newest(self, panes: int) -> list[float]:
        """Return the newest ``panes`` values, oldest first; none unless there are so many."""
        return self.recent[-panes:] if len(self.recent) >= panes else []

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
            has_moved=self.has_moved,
        )


@dataclass(frozen=True, slots=True)
class Shift:
    """How far a quantity is from its usual level.

    Attributes:
        now: Its mean since the onset.
        z: Distance of ``now`` in usual spreads, with a floor of 5 % of the level; positive is up.
        peak: Its highest mean over three panes since a little before the onset.
        sigma: The usual spread.
        has_moved: It has not always been the same, at one engine at least.
    """

    usual: float
    now: float
    z: float
    peak: float
    sigma: float
    has_moved: bool = True

    def words(self, name: str) -> str:
        """Return the shift as evidence for a person: ``waiting 0.2 -> 294``."""
        return f"{name} {self.usual:.3g} -> {self.now:.3g}"


def counter_key(name: str, frontend: str | None) -> str:
    """Return where a counter is kept: each frontend of an engine counts for itself."""
    return name if frontend is None else f"{frontend}|{name}"


def gpu_quantity(name: str) -> str:
    """Return under which name a number of a GPU is kept."""
    return f"gpu_{name}"


def _level_name(name: str) -> str:
    """Return the name of the level that a quantity becomes: of a counter its rate is known."""
    return name.removesuffix("_total") + "_per_s" if name.endswith("_total") else name


def is_surge(arrivals: Shift) -> bool:
    """Return whether the peak of the arrivals is beyond what is usual, and half as high again."""
    beyond = arrivals.peak >= arrivals.usual + NOTABLE_Z * arrivals.sigma
    return beyond and arrivals.peak >= _SURGE * arrivals.usual


@dataclass(slots=True)
class ContextState:
    """The circumstances of one engine.

    Attributes:
        panes: For how many the engine has been there.
    """

    levels: dict[str, Level] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    in_flight: float | None = None
    panes: int = 0

    def knows(self, name: str) -> bool:
        """Return whether a quantity has been reported before, and is not forgotten."""
        return name in self.sums or _level_name(name) in self.levels

    def tells_of_itself(self) -> bool:
        """Return whether the engine has sent anything since the last pane, not its GPUs alone."""
        return any(not name.startswith("gpu_") for name in self.sums)

    def size(self) -> int:
        """Return how many quantities it knows."""
        return len(self.levels.keys() | {_level_name(name) for name in self.sums})

    def add(self, name: str, total: float, count: int = 1) -> None:
        """Take ``count`` readings that add up to ``total``."""
        self.sums[name] = self.sums.get(name, 0.0) + total
        self.counts[name] = self.counts.get(name, 0) + count

    def take_batch(self, batch: TelemetryBatch, *, newest: bool = True) -> None:
        """Take the gauges, counters and requests of a batch; of an overtaken one only requests."""
        for name, value in batch.gauges.items() if newest else ():
            if name.endswith("_total"):
                counter = counter_key(name, batch.source.frontend)
                self.add(name, self._increase(counter, value))
            else:
                self.add(name, value)
        if batch.requests.rows:
            self._take_requests(batch.requests)
        # Where requests do not tell the gap between tokens there is nothing to compare it with.
        if batch.steps.rows and ("request_itl_s" in self.sums or "request_itl_s" in self.levels):
            self._take_steps(batch.steps.columns)

    def _take_requests(self, requests: Table) -> None:
        self.add("finished", float(requests.rows), 0)
        for name in _REQUEST_COLUMNS:
            column = requests.columns.get(name)
            if column is not None:
                self.add(name, *_sum(column))
        if requests.columns.keys() >= _DECODE_COLUMNS:
            self._take_decoding(requests.columns)

    def _take_decoding(self, columns: Columns) -> None:
        """Take the mean gap between tokens as requests tell it: (e2e - ttft) / (tokens - 1)."""
        ttft_s, gaps = columns["ttft_s"], columns["output_tokens"] - 1.0
        decoding_s = columns["e2e_s"] - ttft_s
        told = gaps >= 1.0
        if not told.all() or math.isnan(decoding_s.sum()):
            told &= ~np.isnan(decoding_s)
            decoding_s, gaps, ttft_s = decoding_s[told], gaps[told], ttft_s[told]
        total_s = float(decoding_s.sum(dtype=np.float64))
        self.add("decoding_s", total_s, gaps.size)
        self.add("request_ttft_s", float(ttft_s.sum(dtype=np.float64)), gaps.size)
        self.add("request_itl_s", total_s, int(gaps.sum(dtype=np.float64)))

    def _take_steps(self, columns: Columns) -> None:
        """Take the mean gap between tokens as steps tell it: each counts for who waited for it."""
        itl_s, tokens = columns.get("itl_s"), columns.get("tokens")
        if itl_s is None:
            return
        waited = columns.get("decoding", columns.get("running", tokens))
        if waited is None:
            self.add("step_itl_s", *_sum(itl_s))
            return
        given = waited if tokens is None else tokens
        total_s, count = float(itl_s @ waited), float(given.sum())
        if math.isnan(total_s + count):
            told = ~np.isnan(itl_s + waited + given)
            total_s, count = float(itl_s[told] @ waited[told]), float(given[told].sum())
        self.add("step_itl_s", total_s, int(count))

    def take_gpus(self, sample: GpuSample) -> None:
        """Take the numbers of a GPU reading."""
        for name, value in readings(sample.gpus).items():
            self.add(gpu_quantity(name), value)
        for (uuid, name), value in counters(sample.gpus).items():
            key = f"{uuid} {name}"
            # A GPU that has failed reads 0, and goes on where it was when it is back.
            counted = value or self.counters.get(key, value)
            self.add(gpu_quantity(name), self._increase(key, counted))

    def _increase(self, counter: str, value: float) -> float:
        before = self.counters.pop(counter, value)
        put(self.counters, counter, value, _MAX_COUNTERS)
        # A counter that went down was restarted, and has counted from zero since.
        return value - before if value >= before else value

    def surges(self) -> bool:
        """Return whether far more has arrived lately than usual: requests, or tokens to read.

        Whoever decodes waits while a long prompt is read, and so does whoever is behind it.
        """
        levels = (self.levels.get(name) for name in ("arrivals_per_s", _PROMPTS))
        return any(level is not None and is_surge(level.shift(_PEAK_PANES)) for level in levels)

    def close_pane(self, pane_s: float, *, calm: bool, forget_after_s: float = math.inf) -> None:
        """Turn what was taken into one number each, and learn: of hot GPUs nothing is usual."""
        self.panes += 1
        values = self._pane_values(pane_s)
        is_cool = not values.get("gpu_throttle_thermal")
        for name, reported in list(self.levels.items()):
            reported.missed += 1
            if reported.missed * pane_s > forget_after_s:
                del self.levels[name]
        for name, value in values.items():
            level = self.levels.get(name)
            if level is None:
                level = self.levels[name] = Level(usual=value)
            level.observe(value, calm=calm and (is_cool or not name.startswith("gpu_")))
        self.sums.clear()
        self.counts.clear()

    def _pane_values(self, pane_s: float) -> dict[str, float]:
        values = {
            name: total / self.counts[name]
            for name, total in self.sums.items()
            if self.counts[name] and not name.endswith("_total")
        }
        increases = {name: t for name, t in self.sums.items() if name.endswith("_total")}
        values |= {_level_name(name): total / pane_s for name, total in increases.items()}
        if "step_itl_s" in values and "request_itl_s" in values and not self._has_preempted():
            values["itl_ratio"] = values["step_itl_s"] / max(values["request_itl_s"], 1e-9)
        queries = increases.get("prefix_queries_total", 0.0)
        if queries > 0.0:
            values["prefix_hit_ratio"] = increases.get("prefix_hits_total", 0.0) / queries
        drafts = increases.get("spec_draft_tokens_total", 0.0)
        if drafts > 0.0:
            values["draft_acceptance"] = increases.get("spec_accepted_tokens_total", 0.0) / drafts
        values |= self._arrivals(values, pane_s)
        if "arrivals_per_s" in values and "prompt_tokens" in values:
            values[_PROMPTS] = values["arrivals_per_s"] * values["prompt_tokens"]
        return values

    def _has_preempted(self) -> bool:
        """Return whether requests were preempted: while they wait, no step is theirs."""
        return bool(self.sums.get("preemptions") or self.sums.get("preemptions_total"))

    def _arrivals(self, values: Mapping[str, float], pane_s: float) -> dict[str, float]:
        """Return the arrival rate: what finished, and what came to be in flight."""
        if "running" not in values:
            return {}
        before = self.in_flight
        self.in_flight = values["running"] + values.get("waiting", 0.0)
        if before is None:
            return {}
        # An engine that tells no requests may still count them.
        finished = self.sums.get("finished", self.sums.get("finished_total", 0.0))
        arrived = finished + self.in_flight - before
        return {"arrivals_per_s": max(0.0, arrived / pane_s)}


def arrivals_rise(contexts: Sequence[ContextState]) -> bool | None:
    """Return whether more requests arrive than usual, all engines together; None: not known."""
    levels = [c.levels["arrivals_per_s"] for c in contexts if "arrivals_per_s" in c.levels]
    shifts = [level.shift(_CAUSE_PANES) for level in levels]
    if not shifts:
        return None
    return sum(s.now for s in shifts) > RISE * sum(s.usual for s in shifts)


def newcomers(contexts: Mapping[str, ContextState], panes: float) -> list[str]:
    """Return the engines that have been there for at most ``panes``, if others are older."""
    new = [name for name, context in contexts.items() if context.panes <= panes]
    return new if len(new) < len(contexts) else []


def mean_shifts(contexts: Sequence[ContextState], panes: int) -> dict[str, Shift]:
    """Return how far each quantity is from its usual level: means over engines and panes.

    What has not been reported since well before is no evidence.
    """
    found: dict[str, list[Shift]] = {}
    for context in contexts:
        for name, level in context.levels.items():
            if level.missed <= panes + _CAUSE_PANES:
                found.setdefault(name, []).append(level.shift(panes))
    return {name: _mean_shift(found[name]) for name in sorted(found)}


def _mean_shift(shifts: Sequence[Shift]) -> Shift:
    means = np.array([(s.usual, s.now, s.z, s.peak, s.sigma) for s in shifts]).mean(axis=0)
    usual, now, z, peak, sigma = means.tolist()
    has_moved = any(shift.has_moved for shift in shifts)
    return Shift(usual, now, z, peak, sigma, has_moved)


def _sum(column: NDArray[np.float32]) -> tuple[float, int]:
    """Return the sum of what was measured of ``column``, and how many rows that is."""
    total = float(column.sum(dtype=np.float64))
    if not math.isnan(total):
        return total, column.size
    measured = column[~np.isnan(column)]
    return float(measured.sum(dtype=np.float64)), measured.size
