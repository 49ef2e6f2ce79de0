"""What every detector is: settings that never change, and a state that does.

A detector object holds settings only, so one serves every series; what a series has seen is in its
state, a plain dataclass of numbers, arrays, lists and words that a checkpoint can hold. A series
collects the samples of an interval in a pane that the detector chose, and hands the pane over once
the interval has closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from detectors.histogram import SparseCounts

Direction = Literal["slower", "faster", "none"]
Attribution = Literal["service", "workload", "mixed", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftScore:
    """What one cycle of a detector found.

    Attributes:
        end_s: Event time at which the cycle ended.
        samples: Observations in the current window.
        drifting: None where there is too little to say; ``why`` then says what is missing.
        kl_nats: Divergence as this detector measures it, or None.
        p99_s: 99th percentile of the current window.
        expected_p99_s: The same, as the reference would have it under the current workload.
        slowdown: How much slower than expected, as a fraction: 0.2 is 20 % slower.
        suspected: Weaker than drifting: not the time to learn, nor to resolve an alert.
        learned: Why the reference was replaced in this cycle; None if it was not.
        evidence: Further numbers, by name with unit.
    """

    end_s: float
    samples: int
    drifting: bool | None
    why: str | None = None
    kl_nats: float | None = None
    p99_s: float | None = None
    expected_p99_s: float | None = None
    slowdown: float = 0.0
    suspected: bool = False
    direction: Direction = "none"
    attribution: Attribution = "none"
    workload_nats: float | None = None
    service_nats: float | None = None
    learned: str | None = None
    evidence: dict[str, float] = field(default_factory=dict)


class Pane(Protocol):
    """The samples of one series in one interval.

    Attributes:
        samples: How many.
        snapshot_type: Type of what ``snapshot`` returns.
    """

    samples: int
    snapshot_type: ClassVar[Any]

    def add(
        self,
        values: NDArray[np.float32],
        end_s: NDArray[np.float64],
        workload: NDArray[np.float32] | None,
        part: NDArray[np.float32] | None = None,
    ) -> None:
        """Take rows; all arrays have shape ``(rows,)``; a NaN value is no sample.

        ``part`` is the part of ``workload`` that costs little, such as cached tokens.
        """

    def counts(self) -> SparseCounts:
        """Return the samples as a histogram."""

    def merge(self, *others: Any) -> None:
        """Add the samples of other panes of the same kind, which stay as they are."""

    def snapshot(self) -> Any:
        """Return the samples as plain data, for a checkpoint."""

    def restore(self, snapshot: Any) -> None:
        """Take the samples of ``snapshot``."""


State = TypeVar("State")


class Detector(Protocol[State]):
    """Scores how far a series has moved.

    Deterministic: no clock, no I/O, no randomness that is not seeded by its own settings.

    Attributes:
        kind: What a state depends on, in words: a state of another kind cannot be gone on from.
    """

    state_type: type[State]
    kind: str

    def initial(self) -> State:
        """Return the state of a series that has seen nothing."""

    def new_pane(self) -> Pane:
        """Return an empty pane."""

    def update(
        self, state: State, pane: Any, end_s: float, *, series: int = 1
    ) -> Sequence[DriftScore]:
        """Take the pane that ended at ``end_s``; return the cycles that it completed.

        Args:
            state: What the series has seen; it is changed.
            pane: Of the series.
            end_s: Event time.
            series: How many series share the false alarms that are allowed.
        """

    def renew(self, state: State, why: str, *, accepted: bool = False) -> None:
        """Begin a new reference, where the detector has one: ``why`` says what has changed.

        ``accepted``: somebody accepts what there is now as normal, slower or not.
        """
