"""Which batches have been seen: one sent twice counts once, and a missing one is known.

The anti-replay window of IPsec (RFC 4303, appendix A2): the highest number seen, and a bit for each
of the numbers just below it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from daom.bounded import put

_WINDOW: Final = 63
"""So that the bits fit a 64-bit integer; what is older has missed its pane anyway."""
_MAX_BOOTS: Final = 4
"""Batches of earlier runs may still arrive after a restart; older runs are forgotten."""

_MAX_FRONTENDS: Final = 64

Arrival = Literal["new", "duplicate", "restarted"]


@dataclass(slots=True)
class SeenBatches:
    """The batches of one run of a probe; bit k of ``bits`` is batch ``highest - k``."""

    highest: int
    bits: int = 1
    missing: int = 0

    def see(self, seq: int) -> bool:
        """Note ``seq``; return whether it is new. What is too old to know counts as seen."""
        ahead = seq - self.highest
        if ahead > 0:
            self.missing += ahead - 1
            self.bits = (self.bits << min(ahead, _WINDOW) | 1) & ((1 << _WINDOW) - 1)
            self.highest = seq
            return True
        bit = 1 << -ahead if -ahead < _WINDOW else 0
        if not bit or self.bits & bit:
            return False
        self.bits |= bit
        # A number from before the first that was seen was never missed.
        self.missing = max(0, self.missing - 1)
        return True


@dataclass(slots=True)
class Intake:
    """The runs of one engine's probe, oldest first; of each, what its frontends have sent."""

    boots: dict[str, dict[str, SeenBatches]] = field(default_factory=dict)

    def see(self, boot: str | None, seq: int | None, frontend: str | None = None) -> Arrival:
        """Note a batch; a producer that does not number its batches is always new."""
        if boot is None or seq is None:
            return "new"
        arrival: Arrival = "new"
        if boot not in self.boots:
            arrival = "restarted" if self.boots else "new"
            put(self.boots, boot, {}, _MAX_BOOTS)
        frontends = self.boots[boot]
        seen = frontends.get(frontend or "")
        if seen is not None:
            return "new" if seen.see(seq) else "duplicate"
        put(frontends, frontend or "", SeenBatches(highest=seq), _MAX_FRONTENDS)
        return arrival

    @property
    def missing(self) -> int:
        """Batches of the current run that have not arrived, as far as its numbers tell."""
        newest = next(reversed(self.boots.values()), {})
        return sum(seen.missing for seen in newest.values())
