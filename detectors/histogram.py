"""Log-linear histograms on the bits of a float32.

A positive float32 is its exponent and its mantissa; the exponent together with the top
``MANTISSA_BITS`` bits of the mantissa, read as one integer, is a bin number. So binning is a shift,
every octave has ``2**MANTISSA_BITS`` bins of equal width, and a bin is at most 1/32 (3.1 %) of its
value wide: a quantile from a histogram is right to within that. Values outside ``LOWEST`` to
``HIGHEST`` (and zero, and negative ones) count in the two outer bins, so no shift is too large to
be seen.

Histograms merge by addition. Rows are kept apart by *stratum* (see ``detectors.strata``): a cell
number is ``stratum * N_BINS + bin``.

Cost: about 2 ns a value. Source: the bit trick is that of HdrHistogram and DDSketch's
cubically-interpolated mapping in its plainest form (Masson et al. 2019,
doi:10.14778/3352063.3352135).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from detectors.compiled import compiled

MANTISSA_BITS: Final = 5
_FIRST_EXPONENT: Final = -30
_OCTAVES: Final = 60
N_BINS: Final = _OCTAVES << MANTISSA_BITS
LOWEST: Final = 2.0**_FIRST_EXPONENT
HIGHEST: Final = 2.0 ** (_FIRST_EXPONENT + _OCTAVES)

_CELLS_A_STRATUM: Final = np.uint32(N_BINS)
"""An unsigned number: by a signed one numpy would divide 64-bit copies."""
_MAX_UINT16: Final = 65_535
_SORT_UP_TO: Final = 4_096
"""More values are counted faster in a dense array, fewer by sorting."""
_SHIFT: Final = 23 - MANTISSA_BITS
_OFFSET: Final = (127 + _FIRST_EXPONENT) << MANTISSA_BITS


def bin_index(values: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the bin of each value, shape as given, 0 to ``N_BINS - 1``.

    Values must not be NaN: NaN would be counted as huge.
    """
    index: NDArray[np.int32] = _bin_index(values.view(np.int32))
    return index


@compiled
def _bin_index(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    index = np.empty(bits.size, np.int32)
    for row in range(bits.size):
        index[row] = min(max((bits[row] >> _SHIFT) - _OFFSET, 0), N_BINS - 1)
    return index


def bin_edges() -> NDArray[np.float64]:
    """Return the lower edge of every bin, and last the upper edge of the last one."""
    octave, step = np.divmod(np.arange(N_BINS + 1), 1 << MANTISSA_BITS)
    edges: NDArray[np.float64] = np.ldexp(
        1.0 + step / (1 << MANTISSA_BITS), octave + _FIRST_EXPONENT
    )
    return edges


_EDGES: Final = bin_edges()


def quantile(counts: NDArray[np.number], q: float) -> float:
    """Return the ``q`` quantile of binned values (see ``quantiles``)."""
    return quantiles(counts, q)[0]


def quantiles(counts: NDArray[np.number], *levels: float) -> list[float]:
    """Return the quantiles of binned values at ``levels``, interpolated within their bins.

    Args:
        counts: Values in each bin, shape ``(N_BINS,)``; weights are allowed.
        levels: Each 0 to 1.

    Raises:
        ValueError: If there are no counts, or a level is outside 0 to 1.
    """
    if not all(0.0 <= q <= 1.0 for q in levels):
        raise ValueError(f"every level must be 0 to 1, got {levels}")
    found: list[float] = _quantiles(
        np.asarray(counts, np.float64), np.array(levels), _EDGES
    ).tolist()
    if not found:
        raise ValueError("an empty histogram has no quantile")
    return found


@compiled
def _quantiles(
    counts: NDArray[np.float64], levels: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the quantiles at ``levels``, in any order; none if there are no counts."""
    occupied = np.flatnonzero(counts)
    if not occupied.size:
        return np.empty(0)
    cumulative = np.cumsum(counts[occupied])
    found = np.empty(levels.size)
    for index in range(levels.size):
        rank = levels[index] * cumulative[-1]
        at = np.searchsorted(cumulative, rank)
        place = occupied[at]
        fraction = (rank - cumulative[at] + counts[place]) / counts[place]
        found[index] = edges[place] + fraction * (edges[place + 1] - edges[place])
    return found


class SparseCounts(NamedTuple):
    """The occupied cells of a histogram: what is kept, sent and checkpointed.

    Attributes:
        cells: Cell numbers, ascending, uint32.
        counts: Values in each: uint16 where they fit, else float32 (exact up to 16.7 million).
    """

    cells: NDArray[np.uint32]
    counts: NDArray[np.number]

    @classmethod
    def empty(cls) -> Self:
        """Return a histogram of nothing."""
        return cls(np.empty(0, np.uint32), np.empty(0, np.float32))

    @classmethod
    def of_cells(cls, cells: NDArray[np.integer]) -> Self:
        """Return the histogram of values that are in ``cells``."""
        dense = cells.size > _SORT_UP_TO
        occupied, counts = _counted(cells) if dense else _runs(np.sort(cells))
        return cls(occupied, _compact(counts))

    @classmethod
    def of_counts(cls, cells: NDArray[np.integer], counts: NDArray[np.integer]) -> Self:
        """Return the histogram of ``counts`` values in each of ``cells``, which do not descend."""
        occupied = counts > 0
        ordered = cells[occupied].astype(np.uint32)
        if not ordered.size:
            return cls.empty()
        starts = _run_starts(ordered)
        return cls(ordered[starts], _compact(np.add.reduceat(counts[occupied], starts)))

    @classmethod
    def sum_of(cls, parts: Sequence[SparseCounts]) -> SparseCounts:
        """Return the sum of ``parts``: as float32, or the only one that holds anything as it is."""
        parts = [part for part in parts if part.cells.size]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        cells = np.concatenate([part.cells for part in parts])
        counts = np.concatenate([part.counts for part in parts]).astype(np.float32)
        order = np.argsort(cells, kind="stable")
        ordered = cells[order]
        starts = _run_starts(ordered)
        return cls(ordered[starts], np.add.reduceat(counts[order], starts))

    def minus(self, other: SparseCounts) -> SparseCounts:
        """Return what is left of this without ``other``, which is a part of it."""
        counts = self.counts.astype(np.float32)
        counts[np.searchsorted(self.cells, other.cells)] -= other.counts.astype(np.float32)
        left = counts > 0.0
        return SparseCounts(self.cells[left], counts[left])

    def plus(self, other: SparseCounts) -> SparseCounts:
        """Return the sum, as float32."""
        counts, others = self.counts.astype(np.float32), other.counts.astype(np.float32)
        return SparseCounts(*_merged(self.cells, counts, other.cells, others))

    @property
    def strata(self) -> NDArray[np.uint32]:
        """The stratum of each cell."""
        return self.cells // _CELLS_A_STRATUM

    @property
    def bins(self) -> NDArray[np.uint32]:
        """The bin of each cell."""
        return self.cells % _CELLS_A_STRATUM

    @property
    def total(self) -> float:
        """Number (or weight) of all values."""
        return float(self.counts.sum(dtype=np.float64))


@compiled
def _counted(cells: NDArray[np.integer]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the cells that occur, ascending, and how often, by counting them all."""
    lowest = cells.min()
    dense = np.zeros(cells.max() - lowest + 1, np.int64)
    for cell in cells:
        dense[cell - lowest] += 1
    offsets = np.flatnonzero(dense)
    return (offsets + lowest).astype(np.uint32), dense[offsets]


@compiled
def _runs(ordered: NDArray[np.integer]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the same of cells in ascending order."""
    cells, counts = np.empty(ordered.size, np.uint32), np.zeros(ordered.size, np.int64)
    runs = 0
    for index in range(ordered.size):
        if index == 0 or ordered[index] != ordered[index - 1]:
            cells[runs] = ordered[index]
            runs += 1
        counts[runs - 1] += 1
    return cells[:runs].copy(), counts[:runs]


@compiled
def _merged(
    cells: NDArray[np.uint32],
    counts: NDArray[np.float32],
    others: NDArray[np.uint32],
    more: NDArray[np.float32],
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Return the sum of two histograms, each in ascending order of cells."""
    size = cells.size + others.size
    merged, sums = np.empty(size, np.uint32), np.empty(size, np.float32)
    size, mine, theirs = 0, 0, 0
    while mine < cells.size or theirs < others.size:
        is_mine = theirs == others.size or (mine < cells.size and cells[mine] <= others[theirs])
        is_both = is_mine and theirs < others.size and cells[mine] == others[theirs]
        merged[size] = cells[mine] if is_mine else others[theirs]
        sums[size] = counts[mine] if is_mine else more[theirs]
        if is_both:
            sums[size] += more[theirs]
        mine += is_mine
        theirs += is_both or not is_mine
        size += 1
    return merged[:size].copy(), sums[:size].copy()


def _compact(counts: NDArray[np.integer]) -> NDArray[np.number]:
    """Return whole counts in as few bytes as hold them."""
    fits = not counts.size or counts.max() <= _MAX_UINT16
    return counts.astype(np.uint16 if fits else np.float32)


def _run_starts(ordered: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return where each run of equal values begins."""
    begins = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return begins.nonzero()[0]
