"""A learned reference, and the comparison of a window with it.

The likelihood-ratio statistic ``2 n KL`` of a window against the reference, divided by ``1 + n/m``
since the reference is itself a sample of size ``m`` (each workload group by itself, since a group
may be rare), is chi-square if nothing has changed and samples are independent. How it varies in
truth is learned from the blocks that made the reference, each against the others, and from every
calm block after that (``detectors.dispersion``).

Five statistics are asked: of latency given its workload (*service*), of the workload strata
(*workload*), of latency alone (*latency*), and, given the workload, of the mean rank (*body*) and
of the share in the tail (*tail*): these two look in one direction only and so see smaller shifts.

Sources: Wilks 1938, doi:10.1214/aoms/1177732360 (likelihood ratio); Wilcoxon 1945,
doi:10.2307/3001968 (ranks).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.dispersion import Dispersion, Statistic
from detectors.divergence import (
    KlParts,
    kl_bias_nats,
    kl_by_chain_rule,
    kl_from_logs,
    log_probabilities,
    smoothed,
)
from detectors.histogram import N_BINS, SparseCounts, quantiles
from detectors.partition import (
    MIN_KNOWN_SAMPLES,
    Partition,
    partition_by_workload,
    partition_of_latency,
)

Floats = NDArray[np.float64]

_LEARN_PANES: Final = 6
_BINS: Final = np.arange(N_BINS)
QUANTILES: Final = (0.5, 0.9, 0.99)


@dataclass(slots=True)
class Dispersions:
    """How each statistic of a stream varies while nothing is wrong."""

    service: Dispersion = field(default_factory=Dispersion)
    workload: Dispersion = field(default_factory=Dispersion)
    latency: Dispersion = field(default_factory=Dispersion)
    body: Dispersion = field(default_factory=Dispersion)
    tail: Dispersion = field(default_factory=Dispersion)

    def learn(self, compared: Comparison) -> None:
        """Take the comparison of one more calm block."""
        self.service.learn(compared.service)
        self.workload.learn(compared.workload)
        self.latency.learn(compared.latency)
        self.body.learn(compared.body)
        self.tail.learn(compared.tail)


@dataclass(slots=True)
class Comparison:
    """A window held against the reference.

    Attributes:
        n: Samples in the window; ``m`` in the reference.
        body: Of the mean rank among the reference, given the workload: one direction, so it sees
            small shifts that the others, which look in all directions, do not.
        body_z: Its standard score: positive is slower.
        tail: Of the share in the uppermost bin, from P90, P97 or P99 on by what a window can fill,
            given the workload; 0 where the share has not risen.
        tail_share: That share; ``expected_tail_share`` is the reference's own.
    """

    n: float
    m: float
    service: Statistic
    workload: Statistic
    latency: Statistic
    body: Statistic
    body_z: float
    tail: Statistic
    tail_share: float
    expected_tail_share: float


class Sample(NamedTuple):
    """Fine counts, sparse by stratum and bin, and dense by bin alone, shape ``(N_BINS,)``."""

    sparse: SparseCounts
    latency: Floats

    @classmethod
    def of(cls, parts: Sequence[SparseCounts]) -> Sample:
        """Return the sum of ``parts``."""
        sparse = SparseCounts.sum_of(parts)
        return cls(sparse, latency_counts(sparse))


def latency_counts(sparse: SparseCounts) -> Floats:
    """Return counts by bin, all strata together, shape ``(N_BINS,)``."""
    bins = sparse.cells % np.uint16(N_BINS)
    total = np.bincount(bins, weights=sparse.counts, minlength=N_BINS)
    return total.astype(np.float64, copy=False)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Baseline:
    """What a series looked like while nothing was wrong.

    Attributes:
        counts: All its samples, by stratum and bin; old ones fade.
        fresh: Calm samples that are yet to be added to ``counts``, of ``fresh_panes`` panes.
        by_workload: The bins for the service and workload parts.
        overall: The bins for latency alone.
        dispersions: How its own blocks differ from it.
        block_samples: Samples in a typical block.
    """

    counts: SparseCounts
    by_workload: Partition
    overall: Partition
    dispersions: Dispersions
    block_samples: float
    fresh: SparseCounts = field(default_factory=SparseCounts.empty)
    fresh_panes: int = 0

    def learn(self, panes: list[SparseCounts], max_blocks: int) -> None:
        """Take calm ``panes``; beyond ``max_blocks`` blocks' worth of samples old counts fade.

        They are added a few at a time: a yardstick is not worked out anew for every pane.
        """
        for pane in panes:
            self.fresh = self.fresh.plus(pane)
        self.fresh_panes += len(panes)
        if self.fresh_panes < _LEARN_PANES or not self.fresh.cells.size:
            return
        cells, counts = self.counts.plus(self.fresh)
        fade = min(1.0, max_blocks * self.block_samples / float(counts.sum(dtype=np.float64)))
        self.counts = SparseCounts(cells, counts * np.float32(fade))
        self.fresh, self.fresh_panes = SparseCounts.empty(), 0


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What comparing with a reference needs, worked out once for as long as it stays the same.

    Attributes:
        by_workload: The coarse bins, and with them each of:
        log_given: Logarithm of the reference's probability of a bin, given its group.
        rank: Mid-rank of a bin within its group, less one half; 0 where the group is unknown.
        in_tail: 1 for the uppermost bin of each group; 0 elsewhere.
        tail_share: The reference's share of the tail, for each bin that of its group.
        known: 1 for the bins of groups that the reference knows; 0 elsewhere.
        group_samples: Samples of each group.
        log_group: Logarithm of the probability of each group.
        overall: The coarse bins of latency alone, and their logarithms ``log_latency``.
        expected: Quantiles of the reference at ``QUANTILES``.
    """

    counts: SparseCounts
    m: float
    by_workload: Partition
    log_given: Floats
    rank: Floats
    in_tail: Floats
    tail_share: Floats
    known: Floats
    group_samples: Floats
    log_group: Floats
    overall: Partition
    log_latency: Floats
    expected: tuple[float, ...]


def yardstick(counts: SparseCounts, by_workload: Partition, overall: Partition) -> Yardstick:
    """Return what comparing with ``counts`` in these bins needs."""
    starts, sizes = by_workload.group_starts, by_workload.group_sizes
    before = by_workload.coarse(*counts)
    totals = np.add.reduceat(before, starts)
    per_row = np.maximum(np.repeat(totals, sizes), 1.0)
    below = np.cumsum(before) - before - np.repeat(np.cumsum(totals) - totals, sizes)
    known = np.repeat(totals >= MIN_KNOWN_SAMPLES, sizes).astype(np.float64)
    in_tail = np.zeros(before.size)
    in_tail[starts + sizes - 1] = sizes > 1
    in_tail *= known
    in_tail_of_group = np.add.reduceat(before * in_tail, starts)
    log_given, log_group = log_probabilities(before, starts)
    latency = latency_counts(counts)
    coarse_latency = overall.coarse(_BINS, latency)
    return Yardstick(
        counts=counts,
        m=float(before.sum()),
        by_workload=by_workload,
        log_given=log_given,
        rank=known * ((below + 0.5 * before) / per_row - 0.5),
        in_tail=in_tail,
        tail_share=np.repeat(in_tail_of_group, sizes) / per_row,
        known=known,
        group_samples=totals,
        log_group=log_group,
        overall=overall,
        log_latency=np.log(smoothed(coarse_latency)),
        expected=tuple(quantiles(latency, *QUANTILES)),
    )


def learn_baseline(blocks: list[SparseCounts]) -> Baseline:
    """Return the reference that ``blocks`` (two or more) make, each as large as a window."""
    sample = Sample.of(blocks)
    block_samples = sample.sparse.total / len(blocks)
    by_workload = partition_by_workload(sample.sparse, block_samples)
    overall = partition_of_latency(sample.latency, block_samples)
    dispersions = Dispersions()
    for block in blocks:
        reference = yardstick(sample.sparse.minus(block), by_workload, overall)
        dispersions.learn(compare(reference, dispersions, Sample.of([block])))
    return Baseline(
        counts=sample.sparse,
        by_workload=by_workload,
        overall=overall,
        dispersions=dispersions,
        block_samples=block_samples,
    )


def compare(reference: Yardstick, usual: Dispersions, window: Sample) -> Comparison:
    """Return how ``window`` (one sample or more) differs from ``reference``."""
    bins = reference.by_workload
    now = bins.coarse(*window.sparse)
    parts = kl_by_chain_rule(now, reference.log_given, reference.log_group, bins.group_starts)
    latency = reference.overall.coarse(_BINS, window.latency)
    n, m = float(now.sum()), reference.m
    latency_nats = kl_from_logs(latency, reference.log_latency)
    known = max(float(now @ reference.known), 1.0)
    shift = float(now @ reference.rank) / known
    tail_share = float(now @ reference.in_tail) / known
    expected = float(now @ (reference.tail_share * reference.known)) / known
    return Comparison(
        n=n,
        m=m,
        service=_service(reference, parts, usual.service.inflation),
        workload=_statistic(
            parts.workload_nats, bins.group_starts.size - 1, usual.workload.inflation, n, m
        ),
        latency=_statistic(latency_nats, latency.size - 1, usual.latency.inflation, n, m),
        body=_statistic(6.0 * shift * shift, 1, usual.body.inflation, known, m),
        body_z=shift * math.sqrt(12.0 * known / usual.body.inflation),
        tail=_statistic(_rise_nats(tail_share, expected), 1, usual.tail.inflation, known, m),
        tail_share=tail_share,
        expected_tail_share=expected,
    )


def _rise_nats(share: float, expected: float) -> float:
    """Return KL of a share that has risen above the expected one; 0 if it has not."""
    if share <= expected or not 0.0 < expected < 1.0:
        return 0.0
    rest = (1.0 - share) * math.log((1.0 - share) / (1.0 - expected)) if share < 1.0 else 0.0
    return share * math.log(share / expected) + rest


def _statistic(nats: float, degrees: int, inflation: float, n: float, m: float) -> Statistic:
    """Return the statistic of a plug-in KL; of a mean rank the KL is 6 times its shift squared."""
    return Statistic(
        value=2.0 * n * nats / (1.0 + n / m),
        degrees=degrees,
        kl_nats=max(0.0, nats - kl_bias_nats(degrees, n / inflation, m / inflation)),
    )


def _service(reference: Yardstick, parts: KlParts, inflation: float) -> Statistic:
    """Return the service statistic: of the groups that both sides know well enough."""
    degrees = reference.by_workload.group_sizes - 1
    n, m = parts.group_samples, reference.group_samples
    judged = (m >= MIN_KNOWN_SAMPLES) & (n > degrees)
    total = float(n.sum())
    n, m, degrees, nats = n[judged], m[judged], degrees[judged], parts.group_nats[judged]
    bias = 0.5 * inflation * degrees * (1.0 / n + 1.0 / m)
    corrected = float(np.sum(n * (nats - bias))) / total
    value = float(np.sum(2.0 * n * nats / (1.0 + n / m)))
    return Statistic(value=value, degrees=int(degrees.sum()), kl_nats=max(0.0, corrected))


def expected_quantiles(reference: Yardstick, window: SparseCounts | None) -> tuple[float, ...]:
    """Return the latency quantiles at ``QUANTILES`` that the reference would have.

    With a ``window`` it is reweighted to its workload: what the reference would have looked like
    under the traffic of now. A longer prompt mix so raises what is expected; a slower service does
    not. Strata that the reference hardly knows have no part in it.
    """
    if window is None:
        return reference.expected
    bins, (cells, counts) = reference.by_workload, reference.counts
    n = np.add.reduceat(bins.coarse(*window), bins.group_starts)
    m = reference.group_samples
    weights = np.where(m >= MIN_KNOWN_SAMPLES, n / np.maximum(m, 1.0), 0.0)
    if not weights.any():
        return reference.expected
    reweighted = SparseCounts(cells, (counts * weights[bins.groups(cells)]).astype(np.float32))
    return tuple(quantiles(latency_counts(reweighted), *QUANTILES))
