"""The default detector: a learned reference, sequential evidence against it, and its KL divergence.

What it does at the close of a pane:

1. *Learning.* Panes fill blocks, each as large as a window; enough blocks make the reference
   (``detectors.baseline``).
2. *Judging.* The pane's samples are ranked among the reference's of like workload
   (``detectors.ranks``), and windows of many lengths are scanned for a shift
   (``detectors.evidence``). It drifts once the evidence has been, for ``confirm_panes`` cycles,
   above what a stationary fleet would show once in ``false_alarm_interval_s``
   (``detectors.calibration``), and until the newest window has gone more than half of the way back.
   Beside it the newest window's KL, in all directions at once, is split into the parts of workload
   and service. Too few samples give "insufficient", never a number.
3. *Going on learning.* A pane that leaves the window joins the reference, unless it was under
   suspicion; old counts fade, so slow change is followed. A drift that has lasted
   ``adopt_after_s``, a deployment that made nothing slower, or what an operator accepted, becomes
   the reference (``detectors.references``).

Cost: see ``make bench``; some 150 microseconds a pane, and 20 milliseconds to calibrate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detectors.baseline import Baseline, Comparison, Sample, Yardstick, compare
from detectors.calibration import threshold_nats
from detectors.dispersion import Dispersion, Statistic
from detectors.evidence import MEMORY_PANES, learn, scan
from detectors.findings import Finding, alarm_of, find, has_recovered
from detectors.histogram import SparseCounts
from detectors.kl_state import KlState
from detectors.panes import HistogramPane
from detectors.protocol import DriftScore
from detectors.ranks import Ranks
from detectors.references import References, insufficient
from detectors.scoring import Verdict, score_window

_SUSPICION_S: Final = 7_200.0
"""A stationary series is under suspicion once in this time,"""
_SUSPICION_LEVEL: Final = 1e-3
"""and a share of its windows, for their KL."""
_KL_SHARE: Final = 5e-4
"""Of the false alarms that the KL of a window, in all directions at once, may have."""
_FAR: Final = 3.0
"""Times ``min_kl_nats``."""
_MIN_QUIET_PANES: Final = 6
_QUIET_GAPS: Final = 8.0
"""A stream is quiet after so many of its mean gaps between samples."""


class KlDetector:
    """Sequential evidence and KL against a reference that learns only while nothing is suspected.

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
        false_alarm_interval_s: A stationary fleet is called drifting once in this time.
        confirm_panes: Cycles in a row that evidence must hold.
        min_kl_nats: Smaller divergences do not matter, however significant.
        min_shift_nats: The same of the KL a sample of a shift, a spread or a tail.
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
        confirm_panes: int = 2,
        min_kl_nats: float = 0.03,
        min_shift_nats: float = 0.005,
        adopt_after_s: float = 7_200.0,
    ) -> None:
        self._strata_base = strata_base
        self.kind = f"evidence and kl with strata from {strata_base}"
        self._pane_s = pane_s
        self._window_panes = window_panes
        self._window_samples = window_samples
        self._max_window_panes = max_window_panes
        self._warmup_panes = warmup_panes
        self._interval_s = false_alarm_interval_s
        self._confirm_panes = confirm_panes
        self._min_kl_nats = min_kl_nats
        self._min_shift_nats = min_shift_nats
        self._references = References(
            window_panes=window_panes,
            window_samples=window_samples,
            reference_blocks=reference_blocks,
            reference_samples=reference_samples,
            max_reference_blocks=max_reference_blocks,
            confirm_panes=confirm_panes,
            adopt_after_s=adopt_after_s,
        )

    def initial(self) -> KlState:
        return KlState(warmup_panes=self._warmup_panes)

    def new_pane(self) -> HistogramPane:
        return HistogramPane(self._strata_base)

    def renew(self, state: KlState, why: str, *, accepted: bool = False) -> None:
        self._references.renew(state, why, accepted=accepted)

    def update(
        self, state: KlState, pane: HistogramPane, end_s: float, *, series: int = 1
    ) -> Sequence[DriftScore]:
        counts = pane.counts()
        if state.warmup_panes:
            state.warmup_panes -= bool(pane.samples)
            return [insufficient(end_s, counts, "warming up")]
        if state.baseline is None:
            return [self._references.learn(state, counts, end_s)]
        reference = self._references.yardstick(state, state.baseline)
        state.evidence.take(reference.ranks.scores(counts))
        clean = self._slide(state, counts)
        window = Sample.of(state.window)
        why = self._too_little(state.window, round(window.total))
        if why is not None:
            return [insufficient(end_s, SparseCounts.sum_of(state.window), why)]
        return [self._judge(state, state.baseline, reference, window, clean, end_s, series)]

    def _judge(
        self,
        state: KlState,
        baseline: Baseline,
        reference: Yardstick,
        window: Sample,
        clean: list[SparseCounts],
        end_s: float,
        series: int,
    ) -> DriftScore:
        compared = compare(reference, baseline.dispersions, window)
        moves = self._workload_moves(baseline, compared)
        state.steady_panes = 0 if moves else min(state.steady_panes + 1, MEMORY_PANES)
        scanned = scan(state.evidence, reference.ranks)
        finding = find(scanned, reference.ranks, self._min_shift_nats, state.steady_panes)
        decided = self._decide(state, baseline, compared, finding, reference.ranks, series)
        score = score_window(decided, finding, compared, reference, window, end_s, self._pane_s)
        is_block = _completes_block(state)
        if is_block and not decided.drifting and not state.tainted_panes:
            baseline.dispersions.learn(compared)
        if decided.suspected or state.renewal is not None:
            return self._references.distrust(state, baseline, score, is_block=is_block)
        state.distrusted_since_s = None
        learn(state.evidence, scanned)
        self._references.learn_calm(state, baseline, clean)
        return score

    def _decide(
        self,
        state: KlState,
        baseline: Baseline,
        compared: Comparison,
        finding: Finding,
        ranks: Ranks,
        series: int,
    ) -> Verdict:
        """Decide what has changed, and follow the alarm from its rise to its end."""
        interval_s = self._interval_s * series
        threshold = threshold_nats(baseline.log_rate, interval_s / self._pane_s)
        suspicion = min(threshold, threshold_nats(baseline.log_rate, _SUSPICION_S / self._pane_s))
        level = min(_SUSPICION_LEVEL, _KL_SHARE * self._window_panes * self._pane_s / interval_s)
        usual = baseline.dispersions
        # Coarse strata cannot tell a shift of the service from one of the workload within them.
        steady = state.steady_panes >= len(state.window)
        service = steady and self._exceeds(usual.service, compared.service, level)
        latency = self._exceeds(usual.latency, compared.latency, level)
        if finding.nats >= threshold or service or latency:
            state.exceeding_panes += 1
        else:
            state.exceeding_panes = 0
        confirmed = state.exceeding_panes >= self._confirm_panes
        newest = len(state.window)
        if state.alarm is not None and has_recovered(state.alarm, state.evidence, newest):
            state.alarm, state.evidence.reach, state.exceeding_panes = None, newest, 0
        elif state.alarm is None and confirmed and finding.nats >= threshold:
            state.alarm = alarm_of(finding, state.evidence, ranks)
        return Verdict(
            service=state.alarm is not None or (confirmed and service),
            latency=confirmed and latency,
            workload=self._exceeds(usual.workload, compared.workload, level),
            suspected=state.alarm is not None
            or finding.hint_nats >= suspicion
            or (steady and self._exceeds(usual.service, compared.service, _SUSPICION_LEVEL))
            or self._exceeds(usual.latency, compared.latency, _SUSPICION_LEVEL),
            suspicion_nats=suspicion,
            threshold_nats=threshold,
        )

    def _workload_moves(self, baseline: Baseline, compared: Comparison) -> bool:
        """Return whether the workload is beyond chance, or so far away that it must be."""
        is_far = compared.workload.kl_nats >= _FAR * self._min_kl_nats
        usual = baseline.dispersions.workload
        return is_far or self._exceeds(usual, compared.workload, _SUSPICION_LEVEL)

    def _exceeds(self, usual: Dispersion, statistic: Statistic, level: float) -> bool:
        return statistic.kl_nats >= self._min_kl_nats and usual.exceeds(statistic, level)

    def _too_little(self, window: list[SparseCounts], n: int) -> str | None:
        """Return why nothing can be said of the window; None if it can."""
        if n < self._window_samples or len(window) < self._window_panes:
            return (
                f"the window has {n} of {self._window_samples} samples, "
                f"{len(window)} of {self._window_panes} panes"
            )
        quiet = _quiet_panes(window)
        if quiet > max(_MIN_QUIET_PANES, _QUIET_GAPS * len(window) / n):
            return f"no sample in the last {quiet} panes"
        return None

    def _slide(self, state: KlState, counts: SparseCounts) -> list[SparseCounts]:
        """Put ``counts`` into the window; return the panes that leave it and may be learned."""
        window = [*state.window, counts]
        totals = [*state.totals, counts.total]
        n, leaving = sum(totals), 0
        while len(window) - leaving > self._window_panes and (
            n - totals[leaving] >= self._window_samples
            or len(window) - leaving > self._max_window_panes
        ):
            n -= totals[leaving]
            leaving += 1
        clean = window[state.tainted_panes : leaving]
        state.tainted_panes = max(0, state.tainted_panes - leaving)
        state.window, state.totals = window[leaving:], totals[leaving:]
        return clean


def _quiet_panes(window: list[SparseCounts]) -> int:
    """Return how many of the newest panes hold nothing."""
    return next((n for n, pane in enumerate(reversed(window)) if pane.cells.size), len(window))


def _completes_block(state: KlState) -> bool:
    """Return whether the window shares no pane with the last one that was a block."""
    state.block_panes += 1
    if state.block_panes < len(state.window):
        return False
    state.block_panes = 0
    return True
