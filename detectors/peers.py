"""An engine against the other engines of its model, in the same panes: no history is needed.

Every engine's samples are ranked among those of all engines in the newest panes, among rows of like
workload (``detectors.ranks``), so that an engine with longer prompts or fuller batches is not
called slow. Over some minutes, and over half an hour, each engine has a mean rank; it stands apart
where that is far from the median of all, measured by its own variation from pane to pane and by how
far engines usually are apart (the median absolute deviation: one bad engine does not widen it). By
how much it is slower is told by the mean logarithm of its latency, since ranks end at 0 and 1. What
is apart for good, such as an engine on other hardware, becomes its usual place.

Two-sided: a fast engine stands apart too, though nobody is woken for it. Two engines cannot say
which of them is the odd one: three or more are needed.

Cost: one ranking of the pool a pane, and some 100 microseconds an engine: linear in engines.

Sources: Wilcoxon 1945, doi:10.2307/3001968 (ranks); Hampel 1974,
doi:10.1080/01621459.1974.10482962 (median absolute deviation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.evidence import student_nats
from detectors.histogram import SparseCounts, bin_edges
from detectors.ranks import BODY, SAMPLES, Ranks, rank_among

Floats = NDArray[np.float64]

MIN_ENGINES: Final = 3
_WINDOWS: Final = (30, 180)
"""Panes: the shorter one finds what is plain in minutes, the longer one what is not."""
_POOL_PANES: Final = 6
_MIN_PANES: Final = 6
_MIN_SAMPLES: Final = 60
_MAD_TO_SIGMA: Final = 1.4826
_LEAST_SPREAD: Final = 0.02
"""Engines are never quite alike: by this fraction,"""
_LEAST_SPREAD_RANKS: Final = 0.05
"""or by so much of the mean rank where all values are nearly one."""
_NORMAL_EDGE: Final = 1.0
_LASTS: Final = 0.5
"""What the newest minutes must still show of it."""
_LOGS: Final = 0.5 * (np.log(bin_edges()[:-1]) + np.log(bin_edges()[1:]))
"""Logarithm of the middle of each bin."""


def _no_rows() -> NDArray[np.float32]:
    return np.zeros((_WINDOWS[-1], 3), np.float32)


@dataclass(slots=True)
class Peer:
    """What is known of one engine beside its peers.

    Attributes:
        rows: Of the newest panes, oldest first: samples, summed ranks, and summed logarithms
            against the pool's mean, shape ``(panes, 3)``; 0 where there were none.
        usual_rank: Its usual distance from the median,
        usual_log: and the same of logarithms.
        apart_since_s: Since when it has stood apart.
    """

    rows: NDArray[np.float32] = field(default_factory=_no_rows)
    usual_rank: float = 0.0
    usual_log: float = 0.0
    apart_since_s: float | None = None


@dataclass(slots=True)
class PeersState:
    """The newest panes of all engines together, and each engine by name."""

    pool: list[SparseCounts] = field(default_factory=list)
    peers: dict[str, Peer] = field(default_factory=dict)


class PeerScore(NamedTuple):
    """Where an engine stands among its peers.

    Attributes:
        shift: Distance of its mean rank from the median of all: positive is slower.
        nats: Evidence that it stands apart from where it usually does.
        slowdown: How much slower it is than the median, as a fraction: 0.2 is 20 %.
        apart: Whether it is beyond chance, and worth a word.
    """

    shift: float
    nats: float
    slowdown: float
    apart: bool

    def evidence(self) -> dict[str, float]:
        """Return the numbers as evidence for a verdict."""
        return {"peers_shift": self.shift, "peers_nats": self.nats, "peers_slowdown": self.slowdown}


@dataclass(frozen=True, slots=True)
class Peers:
    """Compares the engines of a model.

    Args:
        pane_s: Length of a pane.
        false_alarm_interval_s: Among engines that are alike one is called apart once in this time.
        min_slowdown: Smaller distances are not worth a word.
        adopt_after_s: Who has stood apart for so long is usually there.
    """

    pane_s: float = 10.0
    false_alarm_interval_s: float = 30 * 86_400.0
    min_slowdown: float = 0.15
    adopt_after_s: float = 7_200.0

    def update(
        self,
        state: PeersState,
        panes: Mapping[str, SparseCounts],
        pool: SparseCounts,
        end_s: float,
        density: float | None = None,
    ) -> dict[str, PeerScore]:
        """Take the pane that ended at ``end_s`` of each engine, and of all together (``pool``).

        ``density`` is that of log-latency, per nat, where bins do not tell it: of bucket counts.

        Returns:
            The scores of the engines of which enough is known, by name; none unless there are
            enough engines.
        """
        for name in state.peers.keys() - panes.keys():
            del state.peers[name]
        state.pool.append(pool)
        del state.pool[:-_POOL_PANES]
        if len(panes) < MIN_ENGINES:
            state.peers.clear()
            return {}
        together = SparseCounts.sum_of(state.pool)
        if not together.cells.size:
            return {}
        ranks = rank_among(together)
        mean_logs = _mean_logs(together, ranks)
        for name, counts in panes.items():
            peer = state.peers.setdefault(name, Peer())
            peer.rows = np.concatenate([peer.rows[1:], _row(counts, ranks, mean_logs)[None, :]])
        return self._compare(state, ranks.density if density is None else density, end_s)

    def _compare(self, state: PeersState, density: float, end_s: float) -> dict[str, PeerScore]:
        newest = {name: peer.rows[-_WINDOWS[0] :, 0] for name, peer in state.peers.items()}
        names = [
            name
            for name, n in newest.items()
            if np.count_nonzero(n) >= _MIN_PANES and n.sum() >= _MIN_SAMPLES
        ]
        if len(names) < MIN_ENGINES:
            return {}
        peers = [state.peers[name] for name in names]
        usual = np.array([(peer.usual_rank, peer.usual_log) for peer in peers])
        rows = np.stack([peer.rows for peer in peers]).astype(np.float64)
        places = [_place(rows[:, -panes:], usual, density) for panes in _WINDOWS]
        level = _NORMAL_EDGE + math.log(
            self.false_alarm_interval_s / self.pane_s * len(names) * len(_WINDOWS)
        )
        least_log = math.log1p(self.min_slowdown)
        scores = {}
        for number, (name, peer) in enumerate(zip(names, peers, strict=True)):
            best = max(places, key=lambda place: place.nats[number])
            log, newest_log = best.unusual_logs[number], places[0].unusual_logs[number]
            lasts = newest_log * math.copysign(1.0, log) >= _LASTS * least_log
            beyond = bool(best.nats[number] >= level and abs(log) >= least_log and lasts)
            rank, apart = float(best.ranks[number]), float(best.logs[number])
            self._follow(peer, rank, apart, end_s, beyond=beyond)
            scores[name] = PeerScore(rank, float(best.nats[number]), math.expm1(apart), beyond)
        return scores

    def _follow(self, peer: Peer, rank: float, log: float, end_s: float, *, beyond: bool) -> None:
        """Note since when a peer stands apart; what lasts is usual."""
        if not beyond:
            peer.apart_since_s = None
            return
        if peer.apart_since_s is None:
            peer.apart_since_s = end_s
        if end_s - peer.apart_since_s >= self.adopt_after_s:
            peer.usual_rank, peer.usual_log, peer.apart_since_s = rank, log, None


def _mean_logs(pool: SparseCounts, ranks: Ranks) -> Floats:
    """Return the mean logarithm of each stratum's group, shape ``(N_STRATA,)``."""
    groups = ranks.groups[pool.strata]
    samples = np.bincount(groups, pool.counts, ranks.groups[-1] + 1)
    total = np.bincount(groups, pool.counts * _LOGS[pool.bins], samples.size)
    means: Floats = (total / np.maximum(samples, 1.0))[ranks.groups]
    return means


def _row(counts: SparseCounts, ranks: Ranks, mean_logs: Floats) -> NDArray[np.float32]:
    """Return samples, summed ranks and summed logarithms of a pane, those of known strata."""
    strata = counts.strata
    logs = _LOGS[counts.bins] - mean_logs[strata]
    log = float((ranks.known[strata] * counts.counts) @ logs)
    return np.append(ranks.scores(counts)[[SAMPLES, BODY]], np.float32(log))


class _Places(NamedTuple):
    """Each engine's place in one window: distances from the median of all, and the evidence.

    Attributes:
        ranks: Distance of mean ranks,
        logs: of mean logarithms,
        unusual_logs: and of these against the usual distance.
        nats: Evidence that it is not where it usually is.
    """

    ranks: Floats
    logs: Floats
    unusual_logs: Floats
    nats: Floats


def _place(rows: Floats, usual: Floats, density: float) -> _Places:
    """Return the places of engines by their ``rows``, shape ``(engines, panes, 3)``."""
    n = rows[..., 0]
    total = n.sum(axis=1)
    means = rows[..., 1:].sum(axis=1) / total[:, None]
    away = means - np.median(means, axis=0)
    unusual = away - usual
    degrees = np.maximum(np.count_nonzero(n, axis=1) - 1.0, 1.0)
    residuals = (rows[..., 1] - n * means[:, :1]) ** 2 / np.maximum(n, 1.0)
    errors = residuals.sum(axis=1) / degrees / total
    least = min(_LEAST_SPREAD * density, _LEAST_SPREAD_RANKS)
    spread = max(_MAD_TO_SIGMA * float(np.median(np.abs(unusual[:, 0]))), least)
    squared = unusual[:, 0] ** 2 / (errors + spread**2)
    return _Places(away[:, 0], away[:, 1], unusual[:, 1], student_nats(squared, degrees))
