"""Whether differences keep within tolerances: decided, or how much more it takes to decide.

A difference is *within* where its interval lies in the tolerance, and *beyond* where it lies wholly
outside. Many are judged together, at one error ``1 - confidence``:

* that all are called within though one is not: each interval at ``confidence`` is enough, since all
  of them would have to be right (intersection-union test);
* that one is called beyond though none is: by Holm's steps, the first of ``m`` at
  ``1 - (1 - confidence) / m``.

What is undecided says how much longer both sides would have to be so that no difference at all is
found within, and one of twice the tolerance beyond, each with the probability ``POWER``.

Sources: Berger 1982, doi:10.1080/00401706.1982.10487790 (intersection-union); Holm 1979 (Scand. J.
Statist. 6, 65-70).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from scipy.special import nctdtrit, ndtr, ndtri

from detectors.blocks import MAX_BLOCKS
from detectors.comparison import Contrast, Side
from detectors.long_run import critical

Verdict = Literal["within", "beyond", "undecided"]

POWER: Final = 0.9
_MOST: Final = 10_000.0
"""Nobody measures longer by more than such a factor."""
_STEPS: Final = 40
_USUAL_BLOCKS: Final = 0.75 * MAX_BLOCKS
"""Of a long time; it doubles the length of its blocks as it grows."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far B may be from A.

    Attributes:
        increase: B may be larger by so much; None: by anything.
        decrease: B may be smaller by so much; None: by anything.
        relative: These are shares of A instead of numbers in the column's unit.
    """

    increase: float | None
    decrease: float | None
    relative: bool = False


class Decision(NamedTuple):
    """What was decided of one difference.

    Attributes:
        verdict: Within, beyond or undecided.
        factor: Undecided: how many times as long both sides must be, whatever the difference is;
            None: they are long enough, or nobody knows; infinite: no length would do.
        seeming: The same if the difference truly is what it seems to be, which is no promise: a
            difference that chance made large seems to need little.
        too_fine: The tolerance is finer than what a histogram resolves.
        known: It is known how well the difference is known, if perhaps not well enough.
    """

    verdict: Verdict
    factor: float | None = None
    seeming: float | None = None
    too_fine: bool = False
    known: bool = True


class _Bound(NamedTuple):
    """``sign * (B - scale * A)`` may be ``limit`` at most; ``size`` is the tolerance in units."""

    sign: float
    scale: float
    limit: float
    size: float


def decide(
    judged: Sequence[tuple[Contrast, Tolerance]], confidence: float = 0.95
) -> list[Decision]:
    """Return what can be said of each difference, all together at ``confidence`` (0 to 1)."""
    beyond = _beyond(judged, 1.0 - confidence)
    strictest = 1.0 - (1.0 - confidence) / max(len(judged), 1)
    decisions = []
    for number, (contrast, tolerance) in enumerate(judged):
        if number in beyond:
            decisions.append(Decision("beyond"))
        elif all(_excess(contrast, b, confidence)[1] <= 0.0 for b in _bounds(contrast, tolerance)):
            decisions.append(Decision("within"))
        else:
            decisions.append(_undecided(contrast, tolerance, confidence, strictest))
    return decisions


def _beyond(judged: Sequence[tuple[Contrast, Tolerance]], error: float) -> set[int]:
    """Return the numbers of those that are beyond, by Holm's steps."""
    found: set[int] = set()
    while True:
        level = 1.0 - error / max(len(judged) - len(found), 1)
        more = {
            number
            for number, (contrast, tolerance) in enumerate(judged)
            if number not in found
            and any(_excess(contrast, b, level)[0] > 0.0 for b in _bounds(contrast, tolerance))
        }
        if not more:
            return found
        found |= more


def _bounds(contrast: Contrast, tolerance: Tolerance) -> Iterator[_Bound]:
    usual = contrast.a.value
    for sign, by in ((1.0, tolerance.increase), (-1.0, tolerance.decrease)):
        if by is None:
            continue
        if tolerance.relative:
            yield _Bound(sign, 1.0 + sign * math.copysign(by, usual), 0.0, by * abs(usual))
        else:
            yield _Bound(sign, 1.0, by, by)


def _excess(contrast: Contrast, bound: _Bound, confidence: float) -> tuple[float, float]:
    """Return the limits of what is beyond ``bound``."""
    low, high = contrast.interval(confidence, bound.scale)
    low, high = (low, high) if bound.sign > 0.0 else (-high, -low)
    return low - bound.limit, high - bound.limit


def _undecided(
    contrast: Contrast, tolerance: Tolerance, confidence: float, strictest: float
) -> Decision:
    bounds = list(_bounds(contrast, tolerance))
    if not (contrast.a.error.cosines and contrast.b.error.cosines):
        return Decision("undecided", known=False)
    # Of both sides: it is asked what would be found if B were near A.
    resolution = math.sqrt(2.0) * contrast.a.resolution
    if min(bound.size for bound in bounds) <= resolution:
        return Decision("undecided", too_fine=True)
    # Two bounds may fail, by half as much each.
    z = float(ndtri(POWER if len(bounds) == 1 else 0.5 + 0.5 * POWER))

    def is_enough(factor: float) -> bool:
        return all(
            reach + resolution <= bound.size
            for bound in bounds
            for reach in _reaches(contrast, bound, factor, z, confidence, strictest)
        )

    planned = None if is_enough(1.0) else _smallest(is_enough) or math.inf
    return Decision("undecided", factor=planned, seeming=_to_tell(contrast, bounds, strictest, z))


def _seeming(contrast: Contrast, bound: _Bound) -> float:
    """Return by how much the difference seems to be beyond ``bound``."""
    return bound.sign * (contrast.b.value - bound.scale * contrast.a.value) - bound.limit


def _to_tell(
    contrast: Contrast, bounds: Sequence[_Bound], confidence: float, z: float
) -> float | None:
    """Return how many times as long it takes if the difference is truly what it seems to be."""
    excesses = [_seeming(contrast, bound) for bound in bounds]
    nearest = min(range(len(bounds)), key=lambda i: abs(excesses[i]))
    beyond = int(excesses[nearest] > 0.0)

    def is_enough(factor: float) -> bool:
        reaches = _reaches(contrast, bounds[nearest], factor, z, confidence, confidence)
        return reaches[beyond] <= abs(excesses[nearest])

    return _smallest(is_enough)


def _reaches(
    contrast: Contrast,
    bound: _Bound,
    factor: float,
    z: float,
    within: float,
    beyond: float,
) -> tuple[float, float]:
    """Return how far from ``bound`` B must be to be found within, and beyond, with the power.

    That is an arm of the interval and what the estimate itself scatters by, both sides being
    ``factor`` times as long.
    """
    a, b = contrast.a, contrast.b
    shrunk = 1.0 / math.sqrt(factor)
    one_a, one_b = a.arms(shrunk), b.arms(shrunk)
    # Of nothing of A, nothing is unknown: 0 times infinity is not a number.
    size = abs(bound.scale)
    error_a, error_b = 0.5 * sum(one_a) * size if size else 0.0, 0.5 * sum(one_b)
    scatter = z * math.hypot(error_a, error_b)
    cosines = _together(error_a, a.error.cosines, error_b, b.error.cosines)
    up, down = (1, 0) if bound.sign > 0.0 else (0, 1)

    def reach(confidence: float, of_b: int) -> float:
        of_a = 1 - of_b if bound.scale >= 0.0 else of_b
        wide_a, wide_b = (_critical(side, factor, confidence) for side in (a, b))
        arm_a, arm_b = a.arms(wide_a * shrunk)[of_a], b.arms(wide_b * shrunk)[of_b]
        arm = math.hypot(arm_a * size if size else 0.0, arm_b)
        wide = max(wide_a, wide_b)
        # The standard error is itself an estimate: that makes it a matter of a noncentral t.
        allowance = float(nctdtrit(cosines, wide, ndtr(z))) / (wide + z)
        return max(allowance, 1.0) * (arm + scatter)

    return reach(within, up), reach(beyond, down)


def _together(error_a: float, cosines_a: int, error_b: float, cosines_b: int) -> float:
    """Return the degrees of freedom of the error of a difference (Welch, Satterthwaite)."""
    share = _share(error_a, error_b)
    return 1.0 / (share**2 / cosines_a + (1.0 - share) ** 2 / cosines_b)


def _share(error_a: float, error_b: float) -> float:
    if not math.isfinite(error_a + error_b) or not error_a + error_b:
        return 0.5
    return error_a**2 / (error_a**2 + error_b**2)


def _critical(side: Side, factor: float, confidence: float) -> float:
    """Return Student's t of a side that is ``factor`` times as long."""
    grown = max(min(factor, _USUAL_BLOCKS / side.blocks), 1.0)
    return critical(int(side.error.cosines * grown ** (2.0 / 3.0)), confidence)


def _smallest(is_enough: Callable[[float], bool]) -> float | None:
    """Return the smallest factor above 1 that is enough; None: none that anybody can wait for."""
    if not is_enough(_MOST):
        return None
    low, high = 1.0, _MOST
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
