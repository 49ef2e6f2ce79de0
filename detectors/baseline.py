"""A learned reference, and the comparison of a window with it.

The likelihood-ratio statistic ``2 n KL`` of a window against the reference, divided by ``1 + n/m``
since the reference is itself a sample of size ``m`` (each workload group by itself, since a group
may be rare), is chi-square if nothing has changed and samples are independent. How it varies in
truth is learned from the blocks that made the reference, each against the others, and from every
calm block after that (``detectors.dispersion``).

Three statistics are asked: of latency given its workload (*service*), of the workload strata
(*workload*) and of latency alone (*latency*). They look in all directions at once, and so see a
change of any shape; for shifts, tails and spreads ``detectors.evidence`` sees far smaller ones.

Source: Wilks 1938, doi:10.1214/aoms/1177732360 (likelihood ratio).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.compiled import compiled
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
from detectors.ranks import Ranks, rank_among

Floats = NDArray[np.float64]

_LEARN_PANES: Final = 12
_LEARN_SHARE: Final = 40
"""The more has been learned, the more it takes to change it: panes at a time, a fortieth."""
QUANTILES: Final = (0.5, 0.9, 0.99)


@dataclass(slots=True)
class Dispersions:
    """How each statistic of a stream varies while nothing is wrong."""

    service: Dispersion = field(default_factory=Dispersion)
    workload: Dispersion = field(default_factory=Dispersion)
    latency: Dispersion = field(default_factory=Dispersion)

    def learn(self, compared: Comparison) -> None:
        """Take the comparison of one more calm block."""
        self.service.learn(compared.service)
        self.workload.learn(compared.workload)
        self.latency.learn(compared.latency)


@dataclass(slots=True)
class Comparison:
    """A window held against the reference.

    Attributes:
        n: Samples in the window; ``m`` in the reference.
        judged_share: Share of the window's samples whose strata the reference knows.
    """

    n: float
    m: float
    judged_share: float
    service: Statistic
    workload: Statistic
    latency: Statistic


class Sample(NamedTuple):
    """The samples of some panes.

    Attributes:
        cells: Of one pane after another, so that a cell may occur more than once,
        counts: and the samples in each, float64.
        latency: Samples by bin alone, shape ``(N_BINS,)``.
    """

    cells: NDArray[np.uint32]
    counts: Floats
    latency: Floats

    @classmethod
    def of(cls, parts: Sequence[SparseCounts]) -> Sample:
        """Return the samples of ``parts``, one or more."""
        cells = np.concatenate([part.cells for part in parts])
        counts = np.concatenate([part.counts for part in parts], dtype=np.float64)
        return cls(cells, counts, _by_bin(cells, counts))

    @property
    def total(self) -> float:
        """Number of samples."""
        return float(self.latency.sum())


def latency_counts(sparse: SparseCounts) -> Floats:
    """Return counts by bin, all strata together, shape ``(N_BINS,)``."""
    total: Floats = _by_bin(sparse.cells, sparse.counts.astype(np.float64))
    return total


@compiled
def _by_bin(cells: NDArray[np.uint32], counts: Floats) -> Floats:
    total = np.zeros(N_BINS)
    for index in range(cells.size):
        total[cells[index] % N_BINS] += counts[index]
    return total


@dataclass(slots=True, eq=False, weakref_slot=True)
class Baseline:
    """What a series looked like while nothing was wrong.

    Attributes:
        counts: All its samples, by stratum and bin; old ones fade.
        fresh: Calm samples that are yet to be added to ``counts``, of ``fresh_panes`` panes in all.
        by_workload: The bins for the service and workload parts.
        overall: The bins for latency alone.
        dispersions: How its own blocks differ from it.
        block_samples: Samples in a typical block.
        log_rate: How often evidence comes by chance (``detectors.calibration``).
        learned_panes: Panes that it has learned from,
        refresh_panes: and how many make it be cut and calibrated anew.
    """

    counts: SparseCounts
    by_workload: Partition
    overall: Partition
    dispersions: Dispersions
    block_samples: float
    log_rate: float = 0.0
    learned_panes: int = 0
    refresh_panes: int = 0
    fresh: list[SparseCounts] = field(default_factory=list)
    fresh_panes: int = 0

    def learn(self, panes: list[SparseCounts], max_blocks: int) -> None:
        """Take calm ``panes``; beyond ``max_blocks`` blocks' worth of samples old counts fade.

        They are added a few at a time: a yardstick is not worked out anew for every pane.
        """
        self.fresh.extend(panes)
        self.fresh_panes += len(panes)
        self.learned_panes += len(panes)
        if len(self.fresh) < _LEARN_PANES:
            return
        together = SparseCounts.sum_of(self.fresh)
        self.fresh = [together]
        enough = max(_LEARN_PANES, self.learned_panes // _LEARN_SHARE)
        if self.fresh_panes < enough or not together.cells.size:
            return
        cells, counts = self.counts.plus(together)
        fade = min(1.0, max_blocks * self.block_samples / float(counts.sum(dtype=np.float64)))
        self.counts = SparseCounts(cells, counts * np.float32(fade))
        self.fresh, self.fresh_panes = [], 0

    def cut_anew(self) -> None:
        """Choose the bins for what has been learned by now."""
        self.by_workload = partition_by_workload(self.counts, self.block_samples)
        self.overall = partition_of_latency(latency_counts(self.counts), self.block_samples)


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What comparing with a reference needs, worked out once for as long as it stays the same.

    Attributes:
        by_workload: The coarse bins, and with them each of:
        log_given: Logarithm of the reference's probability of a bin, given its group.
        group_samples: Samples of each group, 1 where there are none,
        group_degrees: its degrees of freedom, bins - 1,
        known: and 1 where the reference knows it, else 0.
        log_group: Logarithm of the probability of each group.
        overall: The coarse bins of latency alone, and their logarithms ``log_latency``.
        expected: Quantiles of the reference at ``QUANTILES``.
        ranks: What ranking among it needs.
    """

    counts: SparseCounts
    m: float
    by_workload: Partition
    log_given: Floats
    group_samples: Floats
    group_degrees: Floats
    known: Floats
    log_group: Floats
    overall: Partition
    log_latency: Floats
    expected: tuple[float, ...]
    ranks: Ranks


def yardstick(
    counts: SparseCounts, by_workload: Partition, overall: Partition, ranks: Ranks
) -> Yardstick:
    """Return what comparing with ``counts`` in these bins needs."""
    starts = by_workload.group_starts
    before = by_workload.coarse(*counts)
    log_given, log_group = log_probabilities(before, starts)
    groups = np.add.reduceat(before, starts)
    latency = latency_counts(counts)
    coarse_latency = overall.coarse_bins(latency)
    return Yardstick(
        counts=counts,
        m=float(before.sum()),
        by_workload=by_workload,
        log_given=log_given,
        group_samples=np.maximum(groups, 1.0),
        group_degrees=(by_workload.group_sizes - 1).astype(np.float64),
        known=(groups >= MIN_KNOWN_SAMPLES).astype(np.float64),
        log_group=log_group,
        overall=overall,
        log_latency=np.log(smoothed(coarse_latency)),
        expected=tuple(quantiles(latency, *QUANTILES)),
        ranks=ranks,
    )


def learn_baseline(blocks: list[SparseCounts]) -> Baseline:
    """Return the reference that ``blocks`` (two or more) make, each as large as a window."""
    counts = SparseCounts.sum_of(blocks)
    block_samples = counts.total / len(blocks)
    by_workload = partition_by_workload(counts, block_samples)
    overall = partition_of_latency(latency_counts(counts), block_samples)
    dispersions = Dispersions()
    ranks = rank_among(counts)
    for block in blocks:
        reference = yardstick(counts.minus(block), by_workload, overall, ranks)
        dispersions.learn(compare(reference, dispersions, Sample.of([block])))
    return Baseline(
        counts=counts,
        by_workload=by_workload,
        overall=overall,
        dispersions=dispersions,
        block_samples=block_samples,
    )


def compare(reference: Yardstick, usual: Dispersions, window: Sample) -> Comparison:
    """Return how ``window`` (one sample or more) differs from ``reference``."""
    bins = reference.by_workload
    now = bins.coarse(window.cells, window.counts)
    parts = kl_by_chain_rule(now, reference.log_given, reference.log_group, bins.group_starts)
    latency = reference.overall.coarse_bins(window.latency)
    n, m = float(now.sum()), reference.m
    latency_nats = kl_from_logs(latency, reference.log_latency)
    service, judged_share = _service(reference, parts, usual.service.inflation)
    return Comparison(
        n=n,
        m=m,
        judged_share=judged_share,
        service=service,
        workload=_statistic(
            parts.workload_nats, bins.group_starts.size - 1, usual.workload.inflation, n, m
        ),
        latency=_statistic(latency_nats, latency.size - 1, usual.latency.inflation, n, m),
    )


def _statistic(nats: float, degrees: int, inflation: float, n: float, m: float) -> Statistic:
    """Return the statistic of a plug-in KL."""
    return Statistic(
        value=2.0 * n * nats / (1.0 + n / m),
        degrees=degrees,
        kl_nats=max(0.0, nats - kl_bias_nats(degrees, n / inflation, m / inflation)),
    )


def _service(reference: Yardstick, parts: KlParts, inflation: float) -> tuple[Statistic, float]:
    """Return the service statistic: of the groups that both sides know well enough.

    And the share of the samples whose group the reference knows.
    """
    value, degrees, nats, judged_share = _known_groups(
        reference.known,
        reference.group_degrees,
        reference.group_samples,
        parts.group_samples,
        parts.group_nats,
        inflation,
    )
    return Statistic(value=value, degrees=round(degrees), kl_nats=nats), judged_share


@compiled
def _known_groups(
    known: Floats, degrees: Floats, m: Floats, n: Floats, nats: Floats, inflation: float
) -> tuple[float, float, float, float]:
    """Return the statistic, its degrees of freedom, the KL a sample without its bias, the share."""
    value, all_degrees, weighted, bias, samples, judged = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for group in range(n.size):
        samples += n[group]
        judged += n[group] * known[group]
        if known[group] > 0.0 and n[group] > degrees[group]:
            error = 1.0 + n[group] / m[group]
            value += 2.0 * n[group] * nats[group] / error
            weighted += n[group] * nats[group]
            all_degrees += degrees[group]
            # Of a group the bias is degrees / 2 (1 / n + 1 / m), and it has a share n of all.
            bias += 0.5 * inflation * degrees[group] * error
    return value, all_degrees, max(0.0, (weighted - bias) / samples), judged / samples


def expected_quantiles(reference: Yardstick, window: Sample | None) -> tuple[float, ...]:
    """Return the latency quantiles at ``QUANTILES`` that the reference would have.

    With a ``window`` it is reweighted to its workload: what the reference would have looked like
    under the traffic of now. A longer prompt mix so raises what is expected; a slower service does
    not. Strata that the reference hardly knows have no part in it.
    """
    if window is None:
        return reference.expected
    bins, (cells, counts) = reference.by_workload, reference.counts
    n = np.add.reduceat(bins.coarse(window.cells, window.counts), bins.group_starts)
    m = reference.group_samples
    weights = reference.known * n / m
    if not weights.any():
        return reference.expected
    reweighted = SparseCounts(cells, (counts * weights[bins.groups(cells)]).astype(np.float32))
    return tuple(quantiles(latency_counts(reweighted), *QUANTILES))
