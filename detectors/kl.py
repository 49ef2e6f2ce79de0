"""The default detector: bias-corrected KL of a sliding window against a learned reference.

What it does at the close of a pane:

1. *Learning.* Panes fill blocks, each as large as a window; enough blocks make the reference
   (``detectors.baseline``).
2. *Judging.* The window is the newest panes, as few as hold enough samples. A statistic must
   exceed the level that one stationary window in ``false_alarm_interval_s`` would, and its
   corrected KL must exceed ``min_kl_nats``. Too few samples give "insufficient", never a number.
3. *Going on learning.* A pane that leaves the window joins the reference, unless it was under
   suspicion; old counts fade, so slow change is followed. A drift that has lasted
   ``adopt_after_s`` becomes the reference.

Cost: see ``make bench``; a few hundred microseconds a pane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from detectors.baseline import (
    QUANTILES,
    Baseline,
    Comparison,
    Dispersions,
    Sample,
    Yardstick,
    compare,
    expected_quantiles,
    latency_counts,
    learn_baseline,
    yardstick,
)
from detectors.dispersion import Dispersion, Statistic
from detectors.histogram import SparseCounts, quantile, quantiles
from detectors.panes import HistogramPane
from detectors.protocol import Attribution, Direction, DriftScore

_SUSPICION_LEVEL: Final = 1e-3
_MIN_BLOCKS: Final = 2
_DIRECTION_Z: Final = 2.0
_CONFIDENCE_Z: Final = 1.645
"""Of the lower limit of a quantile, one-sided 95 %."""
_MIN_QUIET_PANES: Final = 6
_QUIET_GAPS: Final = 8.0
"""A stream is quiet after so many of its mean gaps between samples."""


@dataclass(slots=True)
class KlState:
    """What one series has seen.

    Attributes:
        window: The newest panes; while learning, those of the block that is being filled.
        tainted_panes: So many of the window's oldest panes were under suspicion: never learned.
        block_panes: Panes since the window was last a block of its own.
        blocks: While learning or suspecting: the blocks that may become the reference.
    """

    warmup_panes: int
    block_panes: int = 0
    blocks: list[SparseCounts] = field(default_factory=list)
    window: list[SparseCounts] = field(default_factory=list)
    tainted_panes: int = 0
    baseline: Baseline | None = None
    suspected_since_s: float | None = None


class KlDetector:
    """Bias-corrected KL with a reference that learns only while nothing is suspected.

    Args:
        strata_base: Upper end of the lowest workload stratum; None: no workload column.
        pane_s: Length of a pane.
        window_panes: A window holds at least this many panes,
        window_samples: and at least this many samples,
        max_window_panes: but looks back no further than this.
        reference_blocks: Blocks, each as large as a window, that make a reference,
        reference_samples: and the samples it needs at least.
        max_reference_blocks: Beyond this many windows' worth of samples, old counts fade.
        warmup_panes: Panes with samples that are left out at the beginning.
        false_alarm_interval_s: A stationary series is called drifting once in this time (nominal).
        min_kl_nats: Smaller divergences do not matter, however significant.
        adopt_after_s: A drift that has lasted this long becomes the new reference.
    """

    state_type = KlState

    def __init__(
        self,
        *,
        strata_base: float | None = None,
        pane_s: float = 10.0,
        window_panes: int = 6,
        window_samples: int = 60,
        max_window_panes: int = 180,
        reference_blocks: int = 10,
        reference_samples: int = 300,
        max_reference_blocks: int = 360,
        warmup_panes: int = 3,
        false_alarm_interval_s: float = 30 * 86_400.0,
        min_kl_nats: float = 0.03,
        adopt_after_s: float = 7_200.0,
    ) -> None:
        if reference_blocks < _MIN_BLOCKS:
            raise ValueError(
                f"reference_blocks={reference_blocks}: {_MIN_BLOCKS} or more are needed, since "
                "each is compared with the others"
            )
        self._strata_base = strata_base
        self.kind = f"kl with strata from {strata_base}"
        self._window_panes = window_panes
        self._window_samples = window_samples
        self._max_window_panes = max_window_panes
        self._reference_blocks = reference_blocks
        self._reference_samples = reference_samples
        self._max_reference_blocks = max_reference_blocks
        self._warmup_panes = warmup_panes
        self._min_kl_nats = min_kl_nats
        self._adopt_after_s = adopt_after_s
        self._yardsticks: WeakKeyDictionary[Baseline, Yardstick] = WeakKeyDictionary()
        # Four statistics are asked in every window, so each gets a quarter of the false alarms.
        share_s = window_panes * pane_s / 4.0
        self._level = min(_SUSPICION_LEVEL, share_s / false_alarm_interval_s)

    def initial(self) -> KlState:
        return KlState(warmup_panes=self._warmup_panes)

    def new_pane(self) -> HistogramPane:
        return HistogramPane(self._strata_base)

    def update(self, state: KlState, pane: HistogramPane, end_s: float) -> Sequence[DriftScore]:
        counts = pane.counts()
        if state.warmup_panes:
            state.warmup_panes -= bool(pane.samples)
            return [_insufficient(end_s, counts, "warming up")]
        if state.baseline is None:
            return [self._learn(state, counts, end_s)]
        clean = self._slide(state, counts)
        window = Sample.of(state.window)
        n = round(window.sparse.total)
        if n < self._window_samples or len(state.window) < self._window_panes:
            why = (
                f"the window has {n} of {self._window_samples} samples, "
                f"{len(state.window)} of {self._window_panes} panes"
            )
            return [_insufficient(end_s, window.sparse, why)]
        quiet = _quiet_panes(state.window)
        if quiet > max(_MIN_QUIET_PANES, _QUIET_GAPS * len(state.window) / n):
            why = f"no sample in the last {quiet} panes"
            return [_insufficient(end_s, window.sparse, why)]
        reference = self._yardstick(state.baseline)
        compared = compare(reference, state.baseline.dispersions, window)
        score = self._score(reference, state.baseline, compared, window, end_s)
        is_block = self._completes_block(state)
        if is_block and not score.drifting and not state.tainted_panes:
            state.baseline.dispersions.learn(compared)
        if score.suspected:
            return [self._distrust(state, window, score, is_block=is_block)]
        state.suspected_since_s = None
        state.baseline.learn(clean, self._max_reference_blocks)
        return [score]

    def _yardstick(self, baseline: Baseline) -> Yardstick:
        """Return the baseline's yardstick: worked out anew only when its counts have changed."""
        known = self._yardsticks.get(baseline)
        if known is None or known.counts is not baseline.counts:
            known = yardstick(baseline.counts, baseline.by_workload, baseline.overall)
            self._yardsticks[baseline] = known
        return known

    @staticmethod
    def _completes_block(state: KlState) -> bool:
        """Return whether the window shares no pane with the last one that was a block."""
        state.block_panes += 1
        if state.block_panes < len(state.window):
            return False
        state.block_panes = 0
        return True

    def _learn(self, state: KlState, counts: SparseCounts, end_s: float) -> DriftScore:
        """Fill the window with panes until it is a block; make enough blocks the reference."""
        state.window.append(counts)
        samples = sum(pane.total for pane in state.window)
        if len(state.window) >= self._window_panes and samples >= self._window_samples:
            state.blocks.append(SparseCounts.sum_of(state.window))
            state.window.clear()
        total = SparseCounts.sum_of([*state.blocks, *state.window])
        if not self._enough(state.blocks):
            why = (
                f"learning: {len(state.blocks)} of {self._reference_blocks} blocks, "
                f"{total.total:.0f} of {self._reference_samples} samples"
            )
            return _insufficient(end_s, total, why)
        return self._found(state, total, end_s, "learned", "reference learned")

    def _found(
        self, state: KlState, counts: SparseCounts, end_s: float, learned: str, why: str
    ) -> DriftScore:
        """Make the blocks the reference, and begin to judge by it."""
        state.baseline = learn_baseline(state.blocks)
        state.blocks.clear()
        state.window.clear()
        state.block_panes = state.tainted_panes = 0
        state.suspected_since_s = None
        expected_p99_s = self._yardstick(state.baseline).expected[-1]
        return _insufficient(end_s, counts, why, learned, expected_p99_s)

    def _enough(self, blocks: list[SparseCounts]) -> bool:
        return (
            len(blocks) >= self._reference_blocks
            and sum(block.total for block in blocks) >= self._reference_samples
        )

    def _slide(self, state: KlState, counts: SparseCounts) -> list[SparseCounts]:
        """Put ``counts`` into the window; return the panes that leave it and may be learned."""
        window = [*state.window, counts]
        totals = [pane.total for pane in window]
        n, leaving = sum(totals), 0
        while len(window) - leaving > self._window_panes and (
            n - totals[leaving] >= self._window_samples
            or len(window) - leaving > self._max_window_panes
        ):
            n -= totals[leaving]
            leaving += 1
        clean = window[state.tainted_panes : leaving]
        state.tainted_panes = max(0, state.tainted_panes - leaving)
        state.window = window[leaving:]
        return clean

    def _distrust(
        self, state: KlState, window: Sample, score: DriftScore, *, is_block: bool
    ) -> DriftScore:
        """Learn nothing from a suspected window, unless the suspicion has become the new normal."""
        state.tainted_panes = len(state.window)
        if state.suspected_since_s is None:
            state.suspected_since_s = score.end_s
            # What came before the suspicion is no part of what may be adopted.
            state.blocks.clear()
            state.block_panes = 0
        elif is_block:
            state.blocks.append(window.sparse)
            del state.blocks[: -self._reference_blocks]
        lasted_s = score.end_s - state.suspected_since_s
        if lasted_s < self._adopt_after_s or not self._enough(state.blocks):
            return score
        why = f"new normal adopted after {lasted_s:.0f} s of drift"
        return self._found(state, window.sparse, score.end_s, "adopted", why)

    def _score(
        self,
        reference: Yardstick,
        baseline: Baseline,
        compared: Comparison,
        window: Sample,
        end_s: float,
    ) -> DriftScore:
        usual = baseline.dispersions
        service, latency = self._finds(usual, compared, self._level)
        workload = self._exceeds(usual.workload, compared.workload, self._level)
        expected = expected_quantiles(reference, window.sparse if workload else None)
        lower = (_lower_limit(q, compared.n) for q in QUANTILES[1:])
        *now, p90_s, p99_s = quantiles(window.latency, *QUANTILES, *lower)
        surely = (now[0], p90_s, p99_s)
        ratios = [q / e for q, e in zip(surely, expected, strict=True)]
        return DriftScore(
            end_s=end_s,
            samples=round(compared.n),
            drifting=service or latency,
            suspected=any(self._finds(usual, compared, _SUSPICION_LEVEL)),
            kl_nats=compared.workload.kl_nats + compared.service.kl_nats,
            workload_nats=compared.workload.kl_nats,
            service_nats=compared.service.kl_nats,
            p99_s=now[-1],
            expected_p99_s=expected[-1],
            slowdown=max(ratios) - 1.0,
            direction=_direction(usual, compared),
            attribution=_attribution(compared, service=service, latency=latency, workload=workload),
            evidence={
                **_evidence(compared, baseline),
                "p50_s": now[0],
                "expected_p50_s": expected[0],
            },
        )

    def _finds(self, usual: Dispersions, compared: Comparison, level: float) -> tuple[bool, bool]:
        """Return whether the service has changed, and whether latency alone has."""
        service = (
            self._exceeds(usual.service, compared.service, level)
            or self._exceeds(usual.body, compared.body, level)
            or self._exceeds(usual.tail, compared.tail, level)
        )
        return service, self._exceeds(usual.latency, compared.latency, level)

    def _exceeds(self, usual: Dispersion, statistic: Statistic, level: float) -> bool:
        return statistic.kl_nats >= self._min_kl_nats and usual.exceeds(statistic, level)


def _quiet_panes(window: list[SparseCounts]) -> int:
    """Return how many of the newest panes hold nothing."""
    return next((n for n, pane in enumerate(reversed(window)) if pane.cells.size), len(window))


def _lower_limit(level: float, n: float) -> float:
    """Return the level at which the sample quantile is surely below the true one.

    A P99 of few samples is nearly their maximum, which says little of how slow the tail has become.
    """
    return max(0.0, level - _CONFIDENCE_Z * math.sqrt(level * (1.0 - level) / n))


def _direction(usual: Dispersions, compared: Comparison) -> Direction:
    """Return where the distribution went; a slower tail outweighs a faster body."""
    heavier = usual.tail.exceeds(compared.tail, _SUSPICION_LEVEL)
    if heavier or compared.body_z > _DIRECTION_Z:
        return "slower"
    return "faster" if compared.body_z < -_DIRECTION_Z else "none"


def _attribution(
    compared: Comparison, *, service: bool, latency: bool, workload: bool
) -> Attribution:
    if not (service or latency):
        return "none"
    mostly_workload = compared.workload.kl_nats > compared.service.kl_nats
    if not service:
        return "workload" if workload or mostly_workload else "service"
    if not workload:
        return "service"
    mostly_service = compared.service.kl_nats > 2.0 * compared.workload.kl_nats
    return "service" if mostly_service else "mixed"


def _evidence(compared: Comparison, baseline: Baseline) -> dict[str, float]:
    return {
        "reference_samples": compared.m,
        "inflation": baseline.dispersions.service.inflation,
        "latency_nats": compared.latency.kl_nats,
        "body_z": compared.body_z,
        "tail_share": compared.tail_share,
        "expected_tail_share": compared.expected_tail_share,
    }


def _insufficient(
    end_s: float,
    counts: SparseCounts,
    why: str,
    learned: str | None = None,
    expected_p99_s: float | None = None,
) -> DriftScore:
    samples = round(counts.total)
    return DriftScore(
        end_s=end_s,
        samples=samples,
        drifting=None,
        why=why,
        p99_s=quantile(latency_counts(counts), 0.99) if samples else None,
        expected_p99_s=expected_p99_s,
        learned=learned,
    )
