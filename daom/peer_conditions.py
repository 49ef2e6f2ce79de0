"""What an engine's place among its peers says about a possible alert."""

from __future__ import annotations

from daom.lifecycle import SLOWER_THAN_PEERS, Condition
from detectors.peers import PeerScore


def peer_condition(
    engine: str, signal: str, score: PeerScore, engines: int, *, outrun: bool = False
) -> Condition:
    """Return whether ``engine`` is slower than its peers; a faster one wakes nobody.

    Nor does one that is ``outrun``: it is as it always was, and the others have become faster.
    """
    slower = score.apart and score.shift > 0.0
    outran = "; it is as it was, and others have become faster" if outrun else ""
    return Condition(
        name=SLOWER_THAN_PEERS,
        engine=engine,
        signal=signal,
        active=slower,
        clear=not slower,
        severity="info" if outrun else "warning",
        attribution="service",
        magnitude=max(0.0, 1.0 + score.slowdown),
        annotations={
            "summary": f"{signal} of engine {engine} is {score.slowdown:.0%} above the median of "
            f"its {engines} engines, among requests of like workload{outran}",
            "peers_shift": f"{score.shift:.6g}",
            "peers_nats": f"{score.nats:.6g}",
        },
    )
