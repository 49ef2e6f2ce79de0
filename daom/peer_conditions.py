"""What an engine's place among its peers says about a possible alert."""

from __future__ import annotations

from daom.lifecycle import SLOWER_THAN_PEERS, Condition
from detectors.peers import PeerScore


def peer_condition(engine: str, signal: str, score: PeerScore, engines: int) -> Condition:
    """Return whether ``engine`` is slower than its peers; a faster one wakes nobody."""
    slower = score.apart and score.shift > 0.0
    return Condition(
        name=SLOWER_THAN_PEERS,
        engine=engine,
        signal=signal,
        active=slower,
        clear=not slower,
        severity="warning",
        attribution="service",
        magnitude=max(0.0, 1.0 + score.slowdown),
        annotations={
            "summary": f"{signal} of engine {engine} is {score.slowdown:.0%} above the median of "
            f"its {engines} engines, among requests of like workload",
            "peers_shift": f"{score.shift:.6g}",
            "peers_nats": f"{score.nats:.6g}",
        },
    )
