"""KL of two long samples: split into workload and service, corrected, held against chance.

The reference is A. Its groups of strata, and the bins within, are those of a reference that a
window as large as B is held against (``detectors.partition``). How the statistics vary while
nothing changes is learned from pieces of A against the rest of A, and of B against the rest of B
(``detectors.baseline``, ``detectors.dispersion``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.baseline import Dispersions, Sample, compare, latency_counts, yardstick
from detectors.blocks import Counted
from detectors.histogram import SparseCounts
from detectors.partition import partition_by_workload, partition_of_latency
from detectors.ranks import rank_among

_PIECES: Final = 10
MIN_SAMPLES: Final = 60
"""Of fewer on one side KL says nothing."""


class Divergence(NamedTuple):
    """KL(B || A) in nats, corrected for its bias.

    Attributes:
        latency_nats: Of the values alone.
        workload_nats: Of the workload's strata.
        service_nats: Of the values given their stratum, under B's workload.
        latency_changed: The first is beyond chance, as are the others where they say so.
        groups: The group of each stratum in which like is compared with like.
        judged_share: Share of B's samples whose strata A knows.
    """

    latency_nats: float
    workload_nats: float
    service_nats: float
    latency_changed: bool
    workload_changed: bool
    service_changed: bool
    groups: NDArray[np.int64]
    judged_share: float


def divergence(a: Counted, b: Counted, confidence: float = 0.95) -> Divergence | None:
    """Return KL(B || A); None where a side has under ``MIN_SAMPLES``."""
    if min(a.samples, b.samples) < MIN_SAMPLES:
        return None
    of_a, of_b = a.coarse(), b.coarse()
    by_workload = partition_by_workload(of_a, b.samples)
    overall = partition_of_latency(latency_counts(of_a), b.samples)
    ranks = rank_among(of_a)
    usual = Dispersions()
    for whole, pieces in ((of_a, _pieces(a)), (of_b, _pieces(b))):
        for piece in pieces:
            rest = yardstick(whole.minus(piece), by_workload, overall, ranks)
            usual.learn(compare(rest, usual, Sample.of([piece])))
    found = compare(yardstick(of_a, by_workload, overall, ranks), usual, Sample.of([of_b]))
    chance = 1.0 - confidence
    return Divergence(
        latency_nats=found.latency.kl_nats,
        workload_nats=found.workload.kl_nats,
        service_nats=found.service.kl_nats,
        latency_changed=usual.latency.exceeds(found.latency, chance),
        workload_changed=usual.workload.exceeds(found.workload, chance),
        service_changed=usual.service.exceeds(found.service, chance),
        groups=by_workload.group_of_stratum,
        judged_share=found.judged_share,
    )


def _pieces(side: Counted) -> Iterator[SparseCounts]:
    """Yield the samples of one stretch of time after another, each of as many blocks."""
    number = side.block * _PIECES // max(side.blocks, 1)
    for piece in np.unique(number):
        rows = number == piece
        if not rows.all():
            yield side.coarse(rows)
