"""One way to make alerts of what is found in a cell; a cell may have several at once.

What a pane's close finds (``daom.cycle``) does not depend on how alerts live. So rules that differ
in that alone can hear the same cycles, each with alerts of its own: ``daom tune`` tries them all on
one replay. A live cell has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from daom.alerting import AlertDesk, DeskState
from daom.conditions import DriftRules
from daom.events import Output
from daom.lifecycle import Condition
from detectors.protocol import DriftScore


class Judged(NamedTuple):
    """What a cycle found of one series."""

    engine: str | None
    signal: str
    score: DriftScore
    threshold_s: float | None
    remarks: Mapping[str, str]


class Lasting(NamedTuple):
    """A drift that has lasted so long that its cause is asked for, alert or not."""

    judged: Judged
    since_s: float


@dataclass(frozen=True, slots=True)
class Pager:
    """Rules, and how the alerts under them stand.

    Attributes:
        drift: When a drift matters.
        desk: Walks the alerts.
        state: The alerts.
        said: What was said under these rules and not yet taken.
    """

    drift: DriftRules
    desk: AlertDesk
    state: DeskState
    said: list[Output] = field(default_factory=list)

    def condition(self, found: Condition | Judged) -> Condition:
        """Return what was found as these rules see it."""
        return found if isinstance(found, Condition) else self.drift.condition(*found)

    def take(self) -> list[Output]:
        """Return what was said since the last call."""
        said = list(self.said)
        self.said.clear()
        return said
