"""What ``daom compare`` promises, held against data with a known truth.

``python -m bench.comparison`` prints, for streams of several kinds of dependence:

* *covered*: how often the 95 % interval of a difference holds the true one (0: two halves of one
  stream), and how often every statistic is within a tolerance of six standard errors;
* *at the limit*: how often a difference of exactly the tolerance is called within, and beyond:
  both are mistakes, of which there may be 5 %;
* *needed*: how often a P95 that is 5 % larger is called beyond 2.5 %, and none within it, by as
  many samples as a shorter comparison said that it takes: 90 % are promised.

Standard errors are taken from other seeds than those that are measured.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detectors.blocks import Blocks, Counted
from detectors.comparison import Contrast, contrasts
from detectors.decision import Tolerance, decide

Floats = NDArray[np.float64]

LEVELS: Final = (0.5, 0.95, 0.99)
NAMES: Final = ("mean", "P50", "P95", "P99")
RATE: Final = 10.0
"""Observations a second."""
OTHER_SEEDS: Final = 1_000_000
_TOKENS_A_STEP: Final = 12
_FAIR_ERRORS: Final = 6.0


class Stream(NamedTuple):
    """A kind of stream: ``draw(rng, n)`` returns ``n`` standard normal numbers in order of time."""

    name: str
    draw: Callable[[np.random.Generator, int], Floats]
    shared: int = 1


def autoregressive(correlation: float) -> Callable[[np.random.Generator, int], Floats]:
    """Return how to draw a first-order autoregression, standard normal at any time."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        from scipy.signal import lfilter  # noqa: PLC0415 - for the benchmark alone.

        noise = rng.standard_normal(n) * math.sqrt(1.0 - correlation**2)
        noise[0] /= math.sqrt(1.0 - correlation**2)
        found: Floats = lfilter([1.0], [1.0, -correlation], noise)
        return found

    return draw


STREAMS: Final = (
    Stream("independent", autoregressive(0.0)),
    Stream("AR(1) 0.5", autoregressive(0.5)),
    Stream("AR(1) 0.9", autoregressive(0.9)),
    Stream("12 tokens a step", autoregressive(0.7), _TOKENS_A_STEP),
)


def halves(stream: Stream, seed: int, n: int, larger: float = 0.0) -> tuple[Counted, Counted]:
    """Return the two halves of a stream of ``2 n`` observations, the second ``larger`` (a share).

    An observation is 0.05 s in the middle, lognormal with a spread of 0.4.
    """
    normal = stream.draw(np.random.default_rng(seed), 2 * n)
    values = 0.05 * np.exp(0.4 * normal)
    times = 1_764_000_000.0 + np.arange(2 * n) / RATE
    first = _counted(values[:n], times[:n], stream.shared)
    return first, _counted((1.0 + larger) * values[n:], times[n:], stream.shared)


def _counted(values: Floats, times: Floats, shared: int) -> Counted:
    blocks = Blocks()
    blocks.add(np.repeat(values, shared).astype(np.float32), np.repeat(times, shared), None)
    return blocks.counted()


def compared(a: Counted, b: Counted) -> list[Contrast]:
    """Return the contrasts of ``NAMES``."""
    found = contrasts(a, b, LEVELS)
    assert found is not None
    return [found.mean, *found.quantiles]


def standard_errors(stream: Stream, n: int, draws: int) -> Floats:
    """Return by how much each difference scatters, by ``draws`` other seeds."""
    differences = [
        [each.difference for each in compared(*halves(stream, OTHER_SEEDS + seed, n))]
        for seed in range(draws)
    ]
    errors: Floats = np.std(differences, axis=0)
    return errors


class Coverage(NamedTuple):
    """Shares of draws.

    Attributes:
        covered: Of each statistic, those in which its interval held 0.
        within: Those in which all were within the tolerance,
        beyond: and those in which any was beyond.
        wide: Of each statistic, the interval's mean width by that of a normal one.
    """

    covered: Floats
    within: float
    beyond: float
    wide: Floats


def coverage(stream: Stream, seeds: Sequence[int], n: int, other_draws: int = 300) -> Coverage:
    """Return how often intervals hold the truth, which is 0."""
    errors = standard_errors(stream, n, other_draws)
    covered, verdicts, widths = [], [], []
    for seed in seeds:
        found = compared(*halves(stream, seed, n))
        intervals = [each.interval(0.95) for each in found]
        covered.append([low <= 0.0 <= high for low, high in intervals])
        widths.append([high - low for low, high in intervals])
        fair = [Tolerance(_FAIR_ERRORS * e, _FAIR_ERRORS * e) for e in errors]
        said = [d.verdict for d in decide(list(zip(found, fair, strict=True)))]
        verdicts.append((set(said) == {"within"}, "beyond" in said))
    shares = np.mean(verdicts, axis=0)
    wide = np.median(widths, axis=0) / (2.0 * 1.96 * errors)
    return Coverage(np.mean(covered, axis=0), float(shares[0]), float(shares[1]), wide)


def at_the_limit(stream: Stream, seeds: Sequence[int], n: int) -> tuple[float, float]:
    """Return how often a P95 5 % larger is called within 5 %, and beyond: both are mistakes."""
    said = []
    for seed in seeds:
        p95 = compared(*halves(stream, seed, n, larger=0.05))[2]
        said.append(decide([(p95, Tolerance(0.05, None, relative=True))])[0].verdict)
    return said.count("within") / len(said), said.count("beyond") / len(said)


class Found(NamedTuple):
    """What came of as many samples as were said to be needed.

    Attributes:
        asked: Draws in which the shorter comparison was undecided and said how many.
        beyond: Of these, the share in which a larger P95 was found beyond,
        within: and that in which one that had not changed was found within.
        factor: How many times as many they were, the median.
    """

    asked: int
    beyond: float
    within: float
    factor: float


def needed(stream: Stream, seeds: Sequence[int], n: int) -> Found:
    """Return what comes of a comparison as long as a shorter one says that it must be."""
    tolerance = Tolerance(0.025, None, relative=True)
    factors: list[float] = []
    beyond: list[bool] = []
    within: list[bool] = []
    for seed in seeds:
        pilot = compared(*halves(stream, seed, n, larger=0.025))[2]
        factor = decide([(pilot, tolerance)])[0].factor
        if factor is None or math.isinf(factor):
            continue
        size = math.ceil(factor * n)
        factors.append(factor)
        for larger, verdict, found in ((0.05, "beyond", beyond), (0.0, "within", within)):
            longer = halves(stream, 2 * OTHER_SEEDS + seed, size, larger=larger)
            said = decide([(compared(*longer)[2], tolerance)])[0].verdict
            found.append(said == verdict)
    return Found(
        len(factors), float(np.mean(beyond)), float(np.mean(within)), float(np.median(factors))
    )


def _lines(seed: int, draws: int, n: int, short: int) -> Iterator[str]:
    for stream in STREAMS:
        seeds = range(seed, seed + draws)
        found = coverage(stream, seeds, n)
        shares = "  ".join(f"{share:6.1%}" for share in found.covered)
        wide = " ".join(f"{each:4.2f}" for each in found.wide)
        within, beyond = at_the_limit(stream, seeds, n)
        planned = needed(stream, seeds[: draws // 2], short)
        yield (
            f"{stream.name:17} {shares}  {wide}  {found.within:6.1%} {found.beyond:6.1%}  "
            f"{within:6.1%} {beyond:6.1%}  {planned.asked:4} x{planned.factor:<5.1f} "
            f"{planned.beyond:6.1%} {planned.within:6.1%}"
        )


def cost(rows: int = 10_000_000) -> str:
    """Return what a day of ``rows`` steps costs once they are read, in batches of 256."""
    rng = np.random.default_rng(0)
    blocks, at_once, spent_s = Blocks(2.0), 256, 0.0
    for start in range(0, rows, 1_000 * at_once):
        n = min(1_000 * at_once, rows - start)
        running = np.clip(40.0 + 0.02 * np.cumsum(rng.standard_normal(n)), 1.0, 256.0)
        values = ((0.012 + 2e-4 * running) * rng.lognormal(0.0, 0.08, n)).astype(np.float32)
        load = running.astype(np.float32)
        times = 1_764_000_000.0 + 86_400.0 / rows * np.arange(start, start + n)
        began_s = time.perf_counter()
        for first in range(0, n, at_once):
            batch = slice(first, first + at_once)
            blocks.add(values[batch], times[batch], load[batch])
        spent_s += time.perf_counter() - began_s
    began_s = time.perf_counter()
    held = blocks.counted()
    contrasts(held, held, LEVELS)
    return (
        f"{rows / 1e6:.0f} million steps of a day, {held.blocks} blocks: gathered in "
        f"{spent_s:.1f} s, {held.counts.size:,} bins ({16 * held.counts.size / 2**20:.0f} MiB); "
        f"compared in {time.perf_counter() - began_s:.1f} s"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.comparison", description=__doc__)
    parser.add_argument("--seed", type=int, default=30_000, help="the first one")
    parser.add_argument("--draws", type=int, default=200, help="seeds; half of them for 'needed'")
    parser.add_argument("--samples", type=int, default=20_000, help="observations of a half")
    parser.add_argument("--short", type=int, default=1_200, help="of a half of the shorter one")
    arguments = parser.parse_args()
    print(cost())
    print(
        f"{'':17} {'mean':>6}  {'P50':>6}  {'P95':>6}  {'P99':>6}  width by normal's    "
        "within beyond   at limit       needed: found beyond, within"
    )
    for line in _lines(arguments.seed, arguments.draws, arguments.samples, arguments.short):
        print(line, flush=True)


if __name__ == "__main__":
    main()
