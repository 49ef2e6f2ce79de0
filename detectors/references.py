"""The reference of a series: learned, learned on while all is calm, and replaced.

1. *Learning.* Panes fill blocks, each as large as a window; enough blocks make the reference. The
   first third is a draft of it, by which the rest is ranked, so that the evidence can be calibrated
   at once.
2. *Learning on.* Panes that have left the window join it, unless they were under suspicion; old
   counts fade. Bins are cut and the evidence is calibrated anew as it grows.
3. *Replacing.* What has drifted for ``adopt_after_s``, what a deployment has made no worse, or what
   an operator has accepted becomes the reference; the old one is kept to compare with.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from detectors.baseline import Baseline, Sample, Yardstick, compare, latency_counts, learn_baseline
from detectors.baseline import yardstick as make_yardstick
from detectors.calibration import calibrate
from detectors.evidence import (
    Evidence,
    begin_anew,
    lean_on_shorter,
    learn_reference,
    mark_learned,
    settle,
)
from detectors.histogram import SparseCounts, quantile
from detectors.kl_state import KlState, Previous, Renewal
from detectors.protocol import DriftScore
from detectors.ranks import INSIDE, Ranks, rank_among

_MIN_BLOCKS: Final = 2
_DRAFT_SHARE: Final = 1 / 3
_REFRESH_GROWTH: Final = 2.0
"""Bins are cut and evidence is calibrated anew whenever so many times as much has been learned,"""
_REFRESH_PANES: Final = 2_160
"""and at least so often."""
_MIN_ROWS: Final = 48
"""Panes that a calibration needs."""


class References:
    """Learns and replaces the references of any number of series.

    Args:
        window_panes: A block has at least this many panes,
        window_samples: and at least this many samples.
        reference_blocks: Blocks that make a reference,
        reference_samples: and the samples it needs at least.
        max_reference_blocks: Beyond this many blocks' worth of samples, old counts fade.
        confirm_panes: Cycles in a row that evidence must hold.
        adopt_after_s: A drift that has lasted this long becomes the reference.
    """

    def __init__(
        self,
        *,
        window_panes: int,
        window_samples: int,
        reference_blocks: int,
        reference_samples: int,
        max_reference_blocks: int,
        confirm_panes: int,
        adopt_after_s: float,
    ) -> None:
        if reference_blocks < _MIN_BLOCKS:
            raise ValueError(
                f"reference_blocks={reference_blocks}: {_MIN_BLOCKS} or more are needed, since "
                "each is compared with the others"
            )
        self._window_panes = window_panes
        self._window_samples = window_samples
        self._reference_blocks = reference_blocks
        self._reference_samples = reference_samples
        self._max_reference_blocks = max_reference_blocks
        self._confirm_panes = confirm_panes
        self._adopt_after_s = adopt_after_s
        self._known: WeakKeyDictionary[KlState, Yardstick] = WeakKeyDictionary()
        self._drafts: WeakKeyDictionary[KlState, tuple[SparseCounts, Ranks]] = WeakKeyDictionary()

    def renew(self, state: KlState, why: str, *, accepted: bool) -> None:
        """Begin a new reference with the next pane; the old one is judged by meanwhile."""
        if state.baseline is not None:
            state.renewal = Renewal(why, accepted)
            if not accepted:
                state.distrusted_since_s = None
        elif not accepted:
            state.blocks.clear()
            state.window.clear()
            state.draft, state.evidence = None, Evidence()

    def yardstick(self, state: KlState, baseline: Baseline) -> Yardstick:
        """Return the reference's yardstick: worked out anew only when the reference has changed."""
        known = self._known.get(state)
        if (
            known is None
            or known.counts is not baseline.counts
            or known.by_workload is not baseline.by_workload
        ):
            ranks = rank_among(baseline.counts)
            known = make_yardstick(baseline.counts, baseline.by_workload, baseline.overall, ranks)
            self._known[state] = known
        return known

    def learn(self, state: KlState, counts: SparseCounts, end_s: float) -> DriftScore:
        """Fill the window with panes until it is a block; make enough blocks the reference."""
        if state.draft is not None:
            state.evidence.take(self._draft_ranks(state, state.draft).scores(counts))
        state.window.append(counts)
        samples = sum(pane.total for pane in state.window)
        if len(state.window) >= self._window_panes and samples >= self._window_samples:
            state.blocks.append(SparseCounts.sum_of(state.window))
            state.window.clear()
            if state.draft is None and len(state.blocks) >= _DRAFT_SHARE * self._reference_blocks:
                state.draft = SparseCounts.sum_of(state.blocks)
        total = SparseCounts.sum_of([*state.blocks, *state.window])
        if not self._enough(state.blocks):
            why = (
                f"learning: {len(state.blocks)} of {self._reference_blocks} blocks, "
                f"{total.total:.0f} of {self._reference_samples} samples"
            )
            return insufficient(end_s, total, why)
        baseline = self._found(state)
        settle(state.evidence)
        reference = self.yardstick(state, baseline)
        learn_reference(state.evidence, reference.ranks)
        baseline.log_rate = calibrate(state.evidence.rows, reference.ranks, self._confirm_panes)
        return insufficient(end_s, total, "reference learned", "learned", reference.expected[-1])

    def _draft_ranks(self, state: KlState, draft: SparseCounts) -> Ranks:
        known = self._drafts.get(state)
        if known is None or known[0] is not draft:
            known = self._drafts[state] = (draft, rank_among(draft))
        return known[1]

    def _found(self, state: KlState) -> Baseline:
        """Make the blocks the reference, and begin to judge by it."""
        panes = len(state.blocks) * self._window_panes
        baseline = state.baseline = learn_baseline(state.blocks)
        baseline.learned_panes, baseline.refresh_panes = panes, round(panes * _REFRESH_GROWTH)
        state.blocks.clear()
        state.window.clear()
        state.totals.clear()
        state.block_panes = state.tainted_panes = state.exceeding_panes = 0
        state.draft = state.alarm = state.distrusted_since_s = state.renewal = None
        return baseline

    def _enough(self, blocks: list[SparseCounts]) -> bool:
        return (
            len(blocks) >= self._reference_blocks
            and sum(block.total for block in blocks) >= self._reference_samples
        )

    def learn_calm(self, state: KlState, baseline: Baseline, clean: list[SparseCounts]) -> None:
        """Learn panes that have left the window; now and then cut and calibrate anew."""
        counts = baseline.counts
        baseline.learn(clean, self._max_reference_blocks)
        mark_learned(state.evidence, len(state.window), len(clean))
        if counts is not baseline.counts:
            lean_on_shorter(state.evidence)
        if baseline.learned_panes >= baseline.refresh_panes:
            self._refresh(state, baseline)

    def _refresh(self, state: KlState, baseline: Baseline) -> None:
        """Cut the bins and calibrate the evidence anew, if there are rows enough for that."""
        rows = state.evidence.rows
        rows = rows[rows[:, INSIDE] > 0.0]
        if rows.shape[0] < _MIN_ROWS:
            return
        baseline.refresh_panes = baseline.learned_panes + min(
            round(baseline.learned_panes * (_REFRESH_GROWTH - 1.0)), _REFRESH_PANES
        )
        baseline.cut_anew()
        ranks = self.yardstick(state, baseline).ranks
        baseline.log_rate = calibrate(rows, ranks, self._confirm_panes)

    def distrust(
        self,
        state: KlState,
        baseline: Baseline,
        score: DriftScore,
        *,
        is_block: bool,
    ) -> DriftScore:
        """Learn nothing from a suspected window, unless it has become the new normal."""
        state.tainted_panes = len(state.window)
        if state.distrusted_since_s is None:
            state.distrusted_since_s = score.end_s
            # What came before the suspicion is no part of what may be adopted.
            state.blocks.clear()
            state.block_panes = 0
        elif is_block:
            state.blocks.append(SparseCounts.sum_of(state.window))
            del state.blocks[: -self._reference_blocks]
        lasted_s = score.end_s - state.distrusted_since_s
        why = self._reason_to_adopt(state, score, lasted_s)
        if why is None or not self._enough(state.blocks):
            return score
        return self._adopt(state, baseline, self.yardstick(state, baseline), score, why)

    def _reason_to_adopt(self, state: KlState, score: DriftScore, lasted_s: float) -> str | None:
        renewal = state.renewal
        if renewal is not None and (renewal.accepted or not _is_worse(score)):
            return renewal.why
        if lasted_s >= self._adopt_after_s:
            return f"new normal adopted after {lasted_s:.0f} s of drift"
        return None

    def _adopt(
        self, state: KlState, baseline: Baseline, was: Yardstick, score: DriftScore, why: str
    ) -> DriftScore:
        """Make what has lasted the reference, keep the old one, and report both."""
        state.previous = Previous(baseline.counts, score.end_s)
        adopted = self._found(state)
        adopted.log_rate = baseline.log_rate
        begin_anew(state.evidence)
        now = self.yardstick(state, adopted)
        compared = compare(was, baseline.dispersions, Sample.of([adopted.counts]))
        names = ("p50_s", "p90_s", "p99_s")
        old = {f"previous_{name}": q for name, q in zip(names, was.expected, strict=True)}
        new = {f"expected_{name}": q for name, q in zip(names, now.expected, strict=True)}
        return replace(
            score,
            drifting=None,
            suspected=False,
            why=f"{why}; P99 of the reference {was.expected[-1]:.3g} s -> {now.expected[-1]:.3g} s",
            expected_p99_s=now.expected[-1],
            workload_nats=compared.workload.kl_nats,
            service_nats=compared.service.kl_nats,
            kl_nats=compared.workload.kl_nats + compared.service.kl_nats,
            direction="none",
            attribution="none",
            learned=why,
            evidence=old | new | {"reference_samples": now.m},
        )


def _is_worse(score: DriftScore) -> bool:
    return bool(score.drifting) and score.direction == "slower" and score.attribution != "workload"


def insufficient(
    end_s: float,
    counts: SparseCounts,
    why: str,
    learned: str | None = None,
    expected_p99_s: float | None = None,
) -> DriftScore:
    """Return the score of a cycle in which too little can be said, and ``why``."""
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
