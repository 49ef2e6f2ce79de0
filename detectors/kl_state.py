"""What the default detector has seen of one series: plain data that a checkpoint can hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from detectors.baseline import Baseline
from detectors.evidence import MEMORY_PANES, Evidence
from detectors.findings import Alarm
from detectors.histogram import SparseCounts


@dataclass(slots=True)
class Previous:
    """The reference before this one, kept to compare with."""

    counts: SparseCounts
    until_s: float


@dataclass(slots=True)
class Renewal:
    """A reference that is to be replaced once enough blocks are there.

    Attributes:
        why: In words.
        accepted: Somebody accepts it as it is, slower or not.
    """

    why: str
    accepted: bool


@dataclass(slots=True, eq=False, weakref_slot=True)
class KlState:
    """What one series has seen.

    Attributes:
        window: The newest panes; while learning, those of the block that is being filled.
        totals: Samples in each pane of the window, once it is judged.
        tainted_panes: So many of the window's oldest panes were under suspicion: never learned.
        block_panes: Panes since the window was last a block of its own.
        blocks: While learning or suspecting: the blocks that may become the reference.
        draft: While learning: the first blocks, by which the rest is ranked.
        steady_panes: Panes since the workload was last on the move.
        exceeding_panes: Cycles in a row in which the evidence has been too much.
        alarm: What has been found and is not over.
        distrusted_since_s: Since when nothing has been learned.
        renewal: The reference is to be replaced once enough blocks are there.
        previous: The reference before this one.
    """

    warmup_panes: int
    block_panes: int = 0
    blocks: list[SparseCounts] = field(default_factory=list)
    draft: SparseCounts | None = None
    window: list[SparseCounts] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    tainted_panes: int = 0
    baseline: Baseline | None = None
    evidence: Evidence = field(default_factory=Evidence)
    steady_panes: int = MEMORY_PANES
    exceeding_panes: int = 0
    alarm: Alarm | None = None
    distrusted_since_s: float | None = None
    renewal: Renewal | None = None
    previous: Previous | None = None
