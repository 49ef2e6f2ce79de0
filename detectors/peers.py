"""An engine against the other engines of its model, in the same panes: no history is needed.

Every engine's samples are ranked among those of all engines in the newest panes, among rows of like
workload (``detectors.ranks``), so that an engine with longer prompts or fuller batches is not
called slow. Over some minutes each engine has a mean rank; it stands apart where that is far from
the median of all, measured by its own variation from pane to pane and by how far engines usually
are apart (the median absolute deviation: one bad engine does not widen it). What is apart for good,
such as an engine on other hardware, becomes its usual place.

Two-sided: a fast engine stands apart too, though nobody is woken for it. Two engines cannot say
which of them is the odd one: three or more are needed.

Cost: one ranking of the pool a pane, and some 30 microseconds an engine: linear in engines.

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

from detectors.histogram import SparseCounts
from detectors.ranks import BODY, SAMPLES, rank_among

Floats = NDArray[np.float64]

MIN_ENGINES: Final = 3
_WINDOW_PANES: Final = 30
_MIN_PANES: Final = 6
_MIN_SAMPLES: Final = 60
_MAD_TO_SIGMA: Final = 1.4826
_LEAST_SPREAD: Final = 0.02
"""Of mean ranks: engines are never quite alike."""
_NORMAL_EDGE: Final = 1.0


@dataclass(slots=True)
class Peer:
    """What is known of one engine beside its peers.

    Attributes:
        rows: Samples and summed ranks of the newest panes, oldest first, shape ``(panes, 2)``.
        usual: Its usual distance from the median.
        apart_since_s: Since when it has stood apart.
    """

    rows: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 2), np.float32))
    usual: float = 0.0
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
        slowdown: What the shift is worth as a fraction: 0.2 is 20 % slower than the median.
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
        self, state: PeersState, panes: Mapping[str, SparseCounts], pool: SparseCounts, end_s: float
    ) -> dict[str, PeerScore]:
        """Take the pane that ended at ``end_s`` of each engine, and of all together (``pool``).

        Returns:
            The scores of the engines of which enough is known, by name; none unless there are
            enough engines.
        """
        for name in state.peers.keys() - panes.keys():
            del state.peers[name]
        state.pool.append(pool)
        del state.pool[:-_MIN_PANES]
        if len(panes) < MIN_ENGINES:
            state.peers.clear()
            return {}
        together = SparseCounts.sum_of(state.pool)
        if not together.cells.size:
            return {}
        ranks = rank_among(together)
        for name, counts in panes.items():
            peer = state.peers.setdefault(name, Peer())
            row = ranks.scores(counts)[[SAMPLES, BODY]]
            peer.rows = np.concatenate([peer.rows[1 - _WINDOW_PANES :], row[None, :]])
        return self._compare(state, ranks.density, end_s)

    def _compare(self, state: PeersState, density: float, end_s: float) -> dict[str, PeerScore]:
        known = {
            name: peer
            for name, peer in state.peers.items()
            if peer.rows.shape[0] >= _MIN_PANES and peer.rows[:, 0].sum() >= _MIN_SAMPLES
        }
        if len(known) < MIN_ENGINES:
            return {}
        found = [_mean_rank(peer.rows) for peer in known.values()]
        shifts, errors, degrees = (np.array(column) for column in zip(*found, strict=True))
        apart = shifts - np.median(shifts)
        unusual = apart - np.array([peer.usual for peer in known.values()])
        spread = max(_MAD_TO_SIGMA * float(np.median(np.abs(unusual))), _LEAST_SPREAD)
        squared = unusual**2 / (errors + spread**2)
        nats = 0.5 * (degrees + 1.0) * np.log1p(squared / degrees)
        level = math.log(self.false_alarm_interval_s / self.pane_s * len(known)) + _NORMAL_EDGE
        scores = {}
        for number, (name, peer) in enumerate(known.items()):
            slowdown = math.expm1(float(apart[number]) / density)
            worth = abs(math.expm1(float(unusual[number]) / density)) >= self.min_slowdown
            beyond = bool(nats[number] >= level) and worth
            self._follow(peer, float(apart[number]), end_s, beyond=beyond)
            scores[name] = PeerScore(float(apart[number]), float(nats[number]), slowdown, beyond)
        return scores

    def _follow(self, peer: Peer, apart: float, end_s: float, *, beyond: bool) -> None:
        """Note since when a peer stands apart; what lasts is usual."""
        if not beyond:
            peer.apart_since_s = None
            return
        if peer.apart_since_s is None:
            peer.apart_since_s = end_s
        if end_s - peer.apart_since_s >= self.adopt_after_s:
            peer.usual, peer.apart_since_s = apart, None


def _mean_rank(rows: NDArray[np.float32]) -> tuple[float, float, float]:
    """Return the mean rank of an engine, its squared error, and the degrees of freedom of that."""
    n, ranks = rows[:, 0].astype(np.float64), rows[:, 1].astype(np.float64)
    total = n.sum()
    mean = ranks.sum() / total
    filled = n > 0.0
    degrees = max(float(filled.sum()) - 1.0, 1.0)
    variance = float(((ranks - n * mean)[filled] ** 2 / n[filled]).sum()) / degrees
    return float(mean), variance / float(total), degrees
