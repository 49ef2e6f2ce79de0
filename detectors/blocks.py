"""The samples of a long time as histograms of blocks of it, in memory that does not grow.

A bin is a *place*: sign, exponent and the top ten bits of a float32's mantissa, in the order of the
values, so a bin is at most 1/1024 of its value wide, and what is 0, negative, 1e-9 or 1e9 has its
place too. Rows are kept apart by stratum (``detectors.strata``) and by block: seconds of event time
at first; once more than ``MAX_BLOCKS`` of them hold samples, every two neighbours become one. Exact
sums of the values are kept beside, by block and stratum, for means.

Cost: some 0.2 microseconds a row. Memory: 16 bytes for each bin that is occupied in a block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.histogram import N_BINS, SparseCounts, bin_index
from detectors.strata import N_STRATA, stratum_index

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Column = NDArray[np.float32] | None

MAX_BLOCKS: Final = 512
BLOCK_S: Final = 1.0
"""Length of a block at first."""
N_PLACES: Final = 1 << 19

_HALF: Final = N_PLACES >> 1
_MAGNITUDE: Final = np.int32(0x7FFF_FFFF)
_SHIFT: Final = 13
_CELLS: Final = N_STRATA * N_PLACES
_COMPACT_AT: Final = 65_536
_LONG_GAP: Final = 20.0


def place_of(values: NDArray[np.float32]) -> Ints:
    """Return the place of each value, 0 to ``N_PLACES - 1``, in the order of the values."""
    bits = values.view(np.int32)
    magnitude = ((bits & _MAGNITUDE) >> _SHIFT).astype(np.int64)
    return np.where(bits < 0, _HALF - 1 - magnitude, _HALF + magnitude)


def lower_edge(places: Ints) -> Floats:
    """Return the lower edge of each place; that of the next place is its upper one."""
    steps = places - _HALF
    bits = (np.abs(steps) << _SHIFT).astype(np.uint32)
    size = np.minimum(bits, np.float32(np.finfo(np.float32).max).view(np.uint32)).view(np.float32)
    return np.where(steps < 0, -size.astype(np.float64), size.astype(np.float64))


class Counted(NamedTuple):
    """What ``Blocks`` holds, a row for each occupied bin of a block.

    Attributes:
        block: Number of the row's block, from 0 in order of time, shape ``(rows,)``.
        stratum: Its stratum; place: its bin; counts: the samples in it.
        sum_block: Of the sums, the block, shape ``(sums,)``,
        sum_stratum: and the stratum; sum_counts: the samples; sums: the sum of their values.
        blocks: How many blocks hold samples.
        block_s: Length of a block, seconds.
        observed_s: Event time from the first to the last, without long gaps.
    """

    block: Ints
    stratum: Ints
    place: Ints
    counts: Floats
    sum_block: Ints
    sum_stratum: Ints
    sum_counts: Floats
    sums: Floats
    blocks: int
    block_s: float
    observed_s: float

    @property
    def samples(self) -> float:
        """Number of samples."""
        return float(self.counts.sum())

    def coarse(self, rows: NDArray[np.bool_] | None = None) -> SparseCounts:
        """Return the samples of ``rows`` (None: all) in the bins of ``detectors.histogram``."""
        chosen = slice(None) if rows is None else rows
        bins = bin_index(lower_edge(self.place[chosen]).astype(np.float32))
        cells, at = np.unique(self.stratum[chosen] * N_BINS + bins, return_inverse=True)
        counts = np.bincount(at, weights=self.counts[chosen], minlength=cells.size)
        return SparseCounts(cells.astype(np.uint32), counts.astype(np.float32))


class _Sums(NamedTuple):
    """Numbers by key, keys ascending."""

    keys: Ints
    numbers: tuple[NDArray[np.number], ...]

    def plus(self, other: _Sums) -> _Sums:
        keys = np.concatenate([self.keys, other.keys])
        pairs = zip(self.numbers, other.numbers, strict=True)
        return _summed(keys, tuple(np.concatenate(pair) for pair in pairs))


def _summed(keys: Ints, numbers: tuple[NDArray[np.number], ...]) -> _Sums:
    if not keys.size:
        return _Sums(keys, numbers)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
    added = tuple(np.add.reduceat(each[order], starts) for each in numbers)
    return _Sums(ordered[starts], added)


@dataclass(slots=True, eq=False)
class Blocks:
    """Histograms of blocks of time.

    Args:
        strata_base: Upper end of the lowest stratum (see ``detectors.strata``); None: one stratum.
    """

    strata_base: float | None = None
    unmeasured: int = 0
    _doubled: int = 0
    _loose: list[tuple[NDArray[np.float32], Floats, Column, Column]] = field(default_factory=list)
    _n_loose: int = 0
    _parts: list[_Sums] = field(default_factory=list)
    _sums: _Sums | None = None

    def add(
        self, values: NDArray[np.float32], end_s: Floats, workload: Column, part: Column = None
    ) -> None:
        """Take rows: values, their event times, and the columns that make strata."""
        self._loose.append((values, end_s, workload, part))
        self._n_loose += values.size
        if self._n_loose >= _COMPACT_AT:
            self._compact()

    @property
    def observed_s(self) -> float:
        """Event time from the first row to the last, without long gaps."""
        self._compact()
        numbers = np.unique(self._whole()[1].keys // N_STRATA)
        return _observed(numbers) * BLOCK_S * (1 << self._doubled)

    def counted(self) -> Counted:
        """Return what has been taken so far."""
        self._compact()
        rows, sums = self._whole()
        numbers = np.unique(rows.keys // _CELLS)
        cells = rows.keys % _CELLS
        block_s = BLOCK_S * (1 << self._doubled)
        return Counted(
            block=np.searchsorted(numbers, rows.keys // _CELLS),
            stratum=cells // N_PLACES,
            place=cells % N_PLACES,
            counts=rows.numbers[0].astype(np.float64),
            sum_block=np.searchsorted(numbers, sums.keys // N_STRATA),
            sum_stratum=sums.keys % N_STRATA,
            sum_counts=sums.numbers[0].astype(np.float64),
            sums=sums.numbers[1].astype(np.float64),
            blocks=int(numbers.size),
            block_s=block_s,
            observed_s=_observed(numbers) * block_s,
        )

    def _whole(self) -> tuple[_Sums, _Sums]:
        nothing = np.empty(0, np.int64)
        while len(self._parts) > 1:
            self._parts.append(self._parts.pop().plus(self._parts.pop()))
        rows = self._parts[0] if self._parts else _Sums(nothing, (nothing,))
        return rows, self._sums or _Sums(nothing, (nothing, nothing))

    def _compact(self) -> None:
        if not self._loose:
            return
        values = np.concatenate([row[0] for row in self._loose])
        end_s = np.concatenate([row[1] for row in self._loose])
        strata = self._strata()
        measured = np.isfinite(values) & np.isfinite(end_s)
        self._loose.clear()
        self._n_loose = 0
        if not measured.all():
            self.unmeasured += int((~measured).sum())
            values, end_s, strata = values[measured], end_s[measured], strata[measured]
        if values.size:
            self._take(values, np.floor(end_s / BLOCK_S).astype(np.int64) >> self._doubled, strata)

    def _strata(self) -> Ints:
        """Return the stratum of every loose row; one without its workload is the lightest."""
        if self.strata_base is None:
            return np.zeros(self._n_loose, np.int64)
        nothing = [np.zeros(row[0].size, np.float32) for row in self._loose]
        pairs = zip(self._loose, nothing, strict=True)
        workload = np.concatenate([none if row[2] is None else row[2] for row, none in pairs])
        part = None
        if any(row[3] is not None for row in self._loose):
            pairs = zip(self._loose, nothing, strict=True)
            part = np.concatenate([none if row[3] is None else row[3] for row, none in pairs])
        return stratum_index(workload, self.strata_base, part).astype(np.int64)

    def _take(self, values: NDArray[np.float32], numbers: Ints, strata: Ints) -> None:
        ones = np.ones(values.size, np.int64)
        keys = numbers * _CELLS + strata * N_PLACES + place_of(values)
        self._parts.append(_summed(keys, (ones,)))
        # As in a sorted log: each part at least twice the next, so a row is merged a few times.
        while len(self._parts) > 1 and self._parts[-2].keys.size < 2 * self._parts[-1].keys.size:
            self._parts.append(self._parts.pop().plus(self._parts.pop()))
        sums = _summed(numbers * N_STRATA + strata, (ones, values.astype(np.float64)))
        self._sums = sums if self._sums is None else self._sums.plus(sums)
        while np.unique(self._sums.keys // N_STRATA).size > MAX_BLOCKS:
            self._double()

    def _double(self) -> None:
        """Make one block of every two neighbours."""
        self._doubled += 1
        self._parts = [_halved(part, _CELLS) for part in self._parts]
        if self._sums is not None:
            self._sums = _halved(self._sums, N_STRATA)


def _halved(sums: _Sums, cells: int) -> _Sums:
    return _summed((sums.keys // cells >> 1) * cells + sums.keys % cells, sums.numbers)


def _observed(numbers: Ints) -> float:
    """Return how many blocks long the time is, a gap counting as a few usual distances at most."""
    if numbers.size <= 1:
        return float(numbers.size)
    gaps = np.diff(numbers).astype(np.float64)
    return 1.0 + float(np.minimum(gaps, _LONG_GAP * np.median(gaps)).sum())
