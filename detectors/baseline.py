"""A learned reference, and the comparison of a window with it.

The likelihood-ratio statistic ``2 n KL`` of a window against the reference is chi-square if nothing
has changed, once it is divided by

* the *inflation* of the stream: 1 for independent samples, more where samples depend on one another
  or the load moves by itself; estimated as the mean of the same statistic, over its degrees of
  freedom, of the blocks that made the reference, each against the others (Rao & Scott 1981); and
* ``1 + n/m``, since the reference is itself a sample, of size ``m``; in each workload group by
  itself, since a group may be rare.

Three statistics are asked: of latency given its workload (*service*), of the workload strata
(*workload*), and of latency alone (*latency*).

Sources: Wilks 1938, doi:10.1214/aoms/1177732360; Rao & Scott 1981,
doi:10.1080/01621459.1981.10477633.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.divergence import kl_bias_nats, kl_by_chain_rule
from detectors.histogram import N_BINS, SparseCounts, add_up
from detectors.panes import N_CELLS
from detectors.partition import (
    MIN_KNOWN_SAMPLES,
    Partition,
    partition_by_workload,
    partition_of_latency,
)

Floats = NDArray[np.float64]

_MAX_INFLATION: Final = 50.0
_INFLATION_MEMORY_BLOCKS: Final = 60
_TAIL: Final = 0.95


@dataclass(slots=True)
class Statistic:
    """One likelihood-ratio statistic, its degrees of freedom, and its corrected KL in nats."""

    value: float
    degrees: int
    kl_nats: float


@dataclass(slots=True)
class Inflation:
    """How much each statistic of this stream varies more than independent samples would."""

    service: float = 1.0
    workload: float = 1.0
    latency: float = 1.0


@dataclass(slots=True)
class Comparison:
    """A window held against the reference.

    Attributes:
        n: Samples in the window; ``m`` in the reference.
        body_z: Standard score of the mean rank among the reference: positive is slower.
        tail_z: Standard score of the share beyond the reference's P95: positive is slower.
        tail_share: That share; the reference's own is about 0.05.
    """

    n: float
    m: float
    service: Statistic
    workload: Statistic
    latency: Statistic
    body_z: float
    tail_z: float
    tail_share: float


class Sample(NamedTuple):
    """Fine counts, sparse by stratum and bin, and dense by bin alone, shape ``(N_BINS,)``."""

    sparse: SparseCounts
    latency: Floats

    @classmethod
    def of(cls, parts: Sequence[SparseCounts]) -> Sample:
        """Return the sum of ``parts``."""
        alone = len(parts) == 1
        sparse = parts[0] if alone else SparseCounts.of_dense(add_up(list(parts), N_CELLS))
        return cls(sparse, latency_counts(sparse))


def latency_counts(sparse: SparseCounts) -> Floats:
    """Return counts by bin, all strata together, shape ``(N_BINS,)``."""
    bins = sparse.cells % np.uint16(N_BINS)
    total = np.bincount(bins, weights=sparse.counts, minlength=N_BINS)
    return total.astype(np.float64, copy=False)


@dataclass(slots=True)
class Baseline:
    """What a series looked like while nothing was wrong.

    Attributes:
        counts: All its samples, by stratum and bin; old ones fade.
        by_workload: The bins for the service and workload parts.
        overall: The bins for latency alone.
        inflation: See the module's text.
        blocks: Blocks that the inflation has been estimated from.
        block_samples: Samples in a typical block.
        learned_s: When it was learned.
    """

    counts: SparseCounts
    by_workload: Partition
    overall: Partition
    inflation: Inflation
    blocks: int
    block_samples: float
    learned_s: float

    def learn(self, panes: list[SparseCounts], max_blocks: int) -> None:
        """Add ``panes``; beyond ``max_blocks`` blocks' worth of samples the old ones fade."""
        if not any(pane.cells.size for pane in panes):
            return
        total = add_up([self.counts, *panes], N_CELLS)
        total *= min(1.0, max_blocks * self.block_samples / total.sum())
        self.counts = SparseCounts.of_dense(total)

    def learn_inflation(self, block: SparseCounts) -> None:
        """Refine the inflation by one more calm block."""
        compared = compare(self, Sample.of([block]), Sample.of([self.counts]))
        self.blocks = min(self.blocks + 1, _INFLATION_MEMORY_BLOCKS)
        for name in Inflation.__slots__:
            statistic: Statistic = getattr(compared, name)
            if statistic.degrees:
                before: float = getattr(self.inflation, name)
                # The statistic came divided by the inflation so far.
                ratio = statistic.value * before / statistic.degrees
                refined = before + (ratio - before) / self.blocks
                setattr(self.inflation, name, min(max(refined, 1.0), _MAX_INFLATION))


def learn_baseline(blocks: list[SparseCounts], learned_s: float) -> Baseline:
    """Return the reference that ``blocks`` (two or more) make, each as large as a window."""
    total = add_up(blocks, N_CELLS)
    sample = Sample.of(blocks)
    block_samples = sample.sparse.total / len(blocks)
    baseline = Baseline(
        counts=sample.sparse,
        by_workload=partition_by_workload(sample.sparse, block_samples),
        overall=partition_of_latency(sample.latency, block_samples),
        inflation=Inflation(),
        blocks=len(blocks),
        block_samples=block_samples,
        learned_s=learned_s,
    )
    others = [SparseCounts.of_dense(total - add_up([block], N_CELLS)) for block in blocks]
    compared = [
        compare(baseline, Sample.of([block]), Sample.of([rest]))
        for block, rest in zip(blocks, others, strict=True)
    ]
    baseline.inflation = Inflation(
        **{name: _mean_ratio([getattr(c, name) for c in compared]) for name in Inflation.__slots__}
    )
    return baseline


def _mean_ratio(statistics: list[Statistic]) -> float:
    ratios = [s.value / s.degrees for s in statistics if s.degrees]
    return min(max(float(np.mean(ratios)), 1.0), _MAX_INFLATION) if ratios else 1.0


def compare(baseline: Baseline, window: Sample, reference: Sample) -> Comparison:
    """Return how ``window`` (one sample or more) differs from ``reference``."""
    inflation = baseline.inflation
    by_workload, overall = baseline.by_workload, baseline.overall
    now, before = by_workload.coarse(*window.sparse), by_workload.coarse(*reference.sparse)
    n, m = float(now.sum()), float(before.sum())
    parts = kl_by_chain_rule(now, before, by_workload.group_starts)
    workload_degrees = by_workload.group_starts.size - 1
    bins = np.arange(N_BINS)
    latency = kl_by_chain_rule(
        overall.coarse(bins, window.latency),
        overall.coarse(bins, reference.latency),
        overall.group_starts,
    )
    latency_degrees = overall.bin_starts.size - 1
    body_z, tail_z, tail_share = _ranks(by_workload, now, before, inflation.service)
    return Comparison(
        n=n,
        m=m,
        service=_service(by_workload, now, before, parts.group_nats, inflation.service),
        workload=_statistic(parts.workload_nats, workload_degrees, inflation.workload, n, m),
        latency=_statistic(latency.service_nats, latency_degrees, inflation.latency, n, m),
        body_z=body_z,
        tail_z=tail_z,
        tail_share=tail_share,
    )


def _statistic(nats: float, degrees: int, inflation: float, n: float, m: float) -> Statistic:
    return Statistic(
        value=2.0 * n * nats / (inflation * (1.0 + n / m)),
        degrees=degrees,
        kl_nats=max(0.0, nats - kl_bias_nats(degrees, n / inflation, m / inflation)),
    )


def _service(
    partition: Partition, now: Floats, before: Floats, group_nats: Floats, inflation: float
) -> Statistic:
    """Return the service statistic: of the groups that both sides know well enough."""
    n = np.add.reduceat(now, partition.group_starts)
    m = np.add.reduceat(before, partition.group_starts)
    degrees = partition.group_sizes - 1
    judged = (m >= MIN_KNOWN_SAMPLES) & (n > degrees)
    n, m, degrees, nats = n[judged], m[judged], degrees[judged], group_nats[judged]
    bias = 0.5 * inflation * degrees * (1.0 / n + 1.0 / m)
    corrected = float(np.sum(n * (nats - bias)) / now.sum())
    value = float(np.sum(2.0 * n * nats / (1.0 + n / m))) / inflation
    return Statistic(value=value, degrees=int(degrees.sum()), kl_nats=max(0.0, corrected))


def _ranks(
    partition: Partition, now: Floats, before: Floats, inflation: float
) -> tuple[float, float, float]:
    """Return body_z, tail_z and tail_share, from the coarse counts."""
    starts, sizes = partition.group_starts, partition.group_sizes
    totals = np.add.reduceat(before, starts)
    known = np.repeat(totals >= MIN_KNOWN_SAMPLES, sizes)
    begun = np.repeat(np.cumsum(totals) - totals, sizes)
    below = np.cumsum(before) - before - begun
    per_row = np.maximum(np.repeat(totals, sizes), 1.0)
    mid_rank = (below + 0.5 * before) / per_row
    n = max(float(now[known].sum()), 1.0)
    shift = float((now * (mid_rank - 0.5))[known].sum()) / n
    in_tail = known & (below > (_TAIL - 0.01) * per_row)
    tail_share = float(now[in_tail].sum()) / n
    share_of_bin = np.repeat(np.add.reduceat(before * in_tail, starts), sizes) / per_row
    expected = float((now * share_of_bin)[known].sum()) / n
    body_z = shift / np.sqrt(inflation / (12.0 * n))
    spread = max(expected * (1.0 - expected), 1.0 / n) / n
    tail_z = (tail_share - expected) / np.sqrt(inflation * spread)
    return float(body_z), float(tail_z), tail_share


def expected_latency(baseline: Baseline, window: SparseCounts | None) -> Floats:
    """Return the reference's fine latency counts, shape ``(N_BINS,)``.

    With a ``window`` they are reweighted to its workload: what the reference would have looked like
    under the traffic of now. A longer prompt mix so raises what is expected; a slower service does
    not. Strata that the reference hardly knows have no part in it.
    """
    counts = baseline.counts
    if window is None:
        return latency_counts(counts)
    partition = baseline.by_workload
    m = np.add.reduceat(partition.coarse(*counts), partition.group_starts)
    n = np.add.reduceat(partition.coarse(*window), partition.group_starts)
    weights = np.where(m >= MIN_KNOWN_SAMPLES, n / np.maximum(m, 1.0), 0.0)
    if not weights.any():
        return latency_counts(counts)
    group_cells = partition.bin_starts[partition.group_starts]
    groups = np.searchsorted(group_cells, counts.cells, side="right") - 1
    reweighted = SparseCounts(counts.cells, (counts.counts * weights[groups]).astype(np.float32))
    return latency_counts(reweighted)
