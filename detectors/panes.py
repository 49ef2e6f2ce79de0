"""Panes: the samples of one series in one short interval, as a histogram or as values.

A sliding window is a sum of panes, and so is a fleet: the panes of its engines merge.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from detectors.histogram import N_BINS, SparseCounts, bin_index
from detectors.strata import stratum_index

Column = NDArray[np.float32] | None

_COMPACT_AT: Final = 16_384


class HistogramPane:
    """Counts by stratum and bin.

    Batches are binned together, since short numpy calls are mostly overhead.

    Args:
        strata_base: Upper end of the lowest stratum (see ``detectors.strata``); None: one stratum.
    """

    __slots__ = ("_counts", "_loose", "_n_loose", "_strata_base", "samples")
    snapshot_type: ClassVar[Any] = SparseCounts

    def __init__(self, strata_base: float | None = None) -> None:
        self._strata_base = strata_base
        self._counts = SparseCounts.empty()
        self._loose: list[tuple[NDArray[np.float32], Column, Column]] = []
        self._n_loose = 0
        self.samples = 0

    def add(
        self,
        values: NDArray[np.float32],
        end_s: NDArray[np.float64],  # noqa: ARG002 - a histogram keeps no order.
        workload: Column,
        part: Column = None,
    ) -> None:
        self._loose.append((values, workload, part))
        self._n_loose += values.size
        self.samples += values.size
        if self._n_loose >= _COMPACT_AT:
            self.counts()

    def add_counts(self, fresh: SparseCounts) -> None:
        """Take samples that are binned already, none of them with a workload."""
        self._counts = self.counts().plus(fresh) if self.samples else fresh
        self.samples += round(fresh.total)

    def counts(self) -> SparseCounts:
        """Return the samples so far, binned."""
        if self._loose:
            binned = self._binned()
            self.samples += int(binned.size) - self._n_loose
            fresh = SparseCounts.of_cells(binned)
            self._counts = self._counts.plus(fresh) if self._counts.cells.size else fresh
            self._loose.clear()
            self._n_loose = 0
        return self._counts

    def _binned(self) -> NDArray[np.int32]:
        """Return the cell of every loose sample; those not measured are left out."""
        values = np.concatenate([values for values, _, _ in self._loose])
        cells = bin_index(values)
        if self._strata_base is not None:
            workload, part = self._column(1), None
            if any(rows[2] is not None for rows in self._loose):
                part = self._column(2)
            cells += stratum_index(workload, self._strata_base, part) * np.int32(N_BINS)
        measured = values == values  # noqa: PLR0124 - false for NaN alone, and faster than isnan.
        return cells if measured.all() else cells[measured]

    def _column(self, number: int) -> NDArray[np.float32]:
        """Return a column of all loose rows; without its workload a row counts as the lightest."""
        columns = [rows[number] for rows in self._loose]
        sizes = [rows[0].size for rows in self._loose]
        return np.concatenate(
            [
                np.zeros(size, np.float32) if column is None else column
                for size, column in zip(sizes, columns, strict=True)
            ]
        )

    def merge(self, *others: HistogramPane) -> None:
        self._counts = SparseCounts.sum_of([self.counts(), *(other.counts() for other in others)])
        self.samples += sum(other.samples for other in others)

    def snapshot(self) -> SparseCounts:
        return self.counts()

    def restore(self, snapshot: SparseCounts) -> None:
        self._counts = snapshot
        self.samples = round(snapshot.total)


class ValuesPane:
    """The values themselves, for detectors that take them one by one."""

    __slots__ = ("_end_s", "_values", "samples")
    snapshot_type: ClassVar[Any] = tuple[NDArray[np.float32], NDArray[np.float64]]

    def __init__(self) -> None:
        self._values: list[NDArray[np.float32]] = []
        self._end_s: list[NDArray[np.float64]] = []
        self.samples = 0

    def add(
        self,
        values: NDArray[np.float32],
        end_s: NDArray[np.float64],
        workload: Column,  # noqa: ARG002 - these detectors know none.
        part: Column = None,  # noqa: ARG002
    ) -> None:
        measured = ~np.isnan(values)
        self._values.append(values[measured])
        self._end_s.append(end_s[measured])
        self.samples += self._values[-1].size

    def counts(self) -> SparseCounts:
        return SparseCounts.of_cells(bin_index(self.in_order()[0]))

    def in_order(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return values and event times, by event time, then by value.

        So their order does not depend on which engine's batch came first.
        """
        if not self._values:
            return np.empty(0, np.float32), np.empty(0, np.float64)
        values, end_s = np.concatenate(self._values), np.concatenate(self._end_s)
        order = np.lexsort((values, end_s))
        return values[order], end_s[order]

    def merge(self, *others: ValuesPane) -> None:
        for other in others:
            self._values.extend(other._values)
            self._end_s.extend(other._end_s)
            self.samples += other.samples

    def snapshot(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        return self.in_order()

    def restore(self, snapshot: tuple[NDArray[np.float32], NDArray[np.float64]]) -> None:
        values, end_s = snapshot
        self._values, self._end_s, self.samples = [values], [end_s], values.size
