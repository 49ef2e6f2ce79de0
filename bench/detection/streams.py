"""Synthetic latency streams: each a pure function of a seed.

The logarithm of a latency is normal with standard deviation 0.5 around that of 0.3 s unless a
stream says otherwise. Requests finish at the times of a Poisson process. Dependence is from sample
to sample: AR(1) of the log latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Floats = NDArray[np.float64]
Density = Callable[[Floats], Floats]
"""Probability density of log(latency / median before the shift)."""

START_S: Final = 1_764_000_000.0
HOUR_S: Final = 3_600.0
DAY_HOURS: Final = 24.0
DAY_S: Final = DAY_HOURS * HOUR_S
MEDIAN_S: Final = 0.3
SIGMA: Final = 0.5
"""Standard deviation of the log latency."""
RATE_HZ: Final = 2.0
PANE_S: Final = 10.0
"""Panes of this length are what detectors are given."""
FOLLOWED_S: Final = 2.0 * HOUR_S
"""A shift not found in this time is missed."""
CREEP_S: Final = DAY_S
"""A creep takes this long to arrive at its full size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Samples of one series, in order of time.

    Attributes:
        times_s: Event times, shape ``(n,)``.
        values_s: Latencies, same shape.
        workload: What explains them, such as prompt tokens, same shape; None: not known.
        end_s: Event time at which the stream ends.
        onset_s: When the change began; None: nothing changes.
        start_s: Event time at which the stream begins.
    """

    times_s: Floats
    values_s: Floats
    end_s: float
    workload: Floats | None = None
    onset_s: float | None = None
    start_s: float = START_S

    def is_after_onset(self, time_s: float) -> bool:
        """Return whether something has changed by ``time_s``."""
        return self.onset_s is not None and time_s >= self.onset_s


Make = Callable[[int], Stream]
"""A stream for each seed."""


def arrivals(rng: np.random.Generator, rate_hz: float, duration_s: float) -> Floats:
    """Return the times of a Poisson process, from 0 to ``duration_s``."""
    return np.sort(rng.uniform(0.0, duration_s, rng.poisson(rate_hz * duration_s)))


def ar1(rng: np.random.Generator, n: int, phi: float) -> Floats:
    """Return ``n`` values of a stationary AR(1) process of mean 0 and variance 1."""
    innovations = rng.normal(0.0, math.sqrt(1.0 - phi * phi), n)
    innovations[:1] /= math.sqrt(1.0 - phi * phi)
    values: Floats = lfilter([1.0], [1.0, -phi], innovations)
    return values


def effective_share(phi: float) -> float:
    """Return how much a sample of AR(1) tells of the mean, next to an independent one.

    Exact for a shift of the mean: the innovations' mean moves by (1 - phi) times the shift, their
    variance is 1 - phi**2. For other shifts it is the customary approximation.
    """
    return (1.0 - phi) / (1.0 + phi)


def normal_density(mean: float, sigma: float) -> Density:
    """Return the density of a normal distribution."""
    scale = 1.0 / (sigma * math.sqrt(2.0 * math.pi))
    return lambda x: scale * np.exp(-0.5 * ((x - mean) / sigma) ** 2)


def kl_nats(after: Density, before: Density) -> float:
    """Return KL(after || before) of two densities of log latency, by the trapezoidal rule."""
    x = np.linspace(-8.0, 8.0, 64_001)
    p, q = after(x), before(x)
    held = p > 0.0
    integrand = np.zeros_like(x)
    # A density so small that it is 0 in floating point belongs to a p that is negligible too.
    integrand[held] = p[held] * np.log(p[held] / np.maximum(q[held], np.finfo(float).tiny))
    return float(np.trapezoid(integrand, x))


@dataclass(frozen=True, slots=True)
class Shift:
    """How latency changes at the onset.

    Attributes:
        name: In the table.
        move: From a generator, log latencies relative to the median, and seconds since the onset,
            to the log latencies that are observed.
        density: Of what ``move`` returns; None: it changes all the time.
        followed_s: So long after the onset the stream ends.
    """

    name: str
    move: Callable[[np.random.Generator, Floats, Floats], Floats]
    density: Density | None
    followed_s: float = FOLLOWED_S

    def kl_nats(self) -> float | None:
        """Return what one independent sample tells of the shift, on average."""
        return self.density and kl_nats(self.density, normal_density(0.0, SIGMA))

    def kl_nats_per_s(self, phi: float, rate_hz: float) -> float | None:
        """Return what a second's samples tell, of lag-one correlation ``phi``."""
        nats = self.kl_nats()
        return None if nats is None else nats * rate_hz * effective_share(phi)


def slower_by(fraction: float) -> Shift:
    """Every latency times ``1 + fraction``."""
    step = math.log1p(fraction)
    return Shift(f"{fraction:+.0%}", lambda _, x, __: x + step, normal_density(step, SIGMA))


def _stragglers(share: float, factor: float) -> Shift:
    usual, slow = normal_density(0.0, SIGMA), normal_density(math.log(factor), SIGMA)
    return Shift(
        f"{share:.0%} of requests x{factor:g}",
        lambda rng, x, _: x + math.log(factor) * (rng.random(x.size) < share),
        lambda x: (1.0 - share) * usual(x) + share * slow(x),
    )


def _wider(factor: float) -> Shift:
    density = normal_density(0.0, factor * SIGMA)
    return Shift(f"sigma x{factor:g}", lambda _, x, __: factor * x, density)


def _two_modes(factor: float) -> Shift:
    step = math.log(factor)
    low, high = normal_density(-step, SIGMA), normal_density(step, SIGMA)
    return Shift(
        f"half x{factor:g}, half /{factor:g}",
        lambda rng, x, _: x + step * rng.choice([-1.0, 1.0], x.size),
        lambda x: 0.5 * (low(x) + high(x)),
    )


def _creep(fraction: float) -> Shift:
    def move(_: np.random.Generator, x: Floats, age_s: Floats) -> Floats:
        return x + np.log1p(fraction * np.minimum(age_s / CREEP_S, 1.0))

    return Shift(f"creep {fraction:+.0%} in a day", move, None, followed_s=CREEP_S)


SHIFTS: Final = (
    slower_by(0.05),
    slower_by(0.10),
    slower_by(0.20),
    slower_by(0.50),
    _stragglers(0.02, 8.0),
    _wider(1.5),
    _two_modes(1.4),
    slower_by(-0.20),
)
CREEP: Final = _creep(0.20)


def shifted(shift: Shift, phi: float, rate_hz: float) -> Make:
    """Return streams that shift at a random time between one and two hours after their start."""

    def make(seed: int) -> Stream:
        rng = np.random.default_rng(seed)
        onset_s = rng.uniform(HOUR_S, 2.0 * HOUR_S)
        end_s = onset_s + shift.followed_s
        at_s = arrivals(rng, rate_hz, end_s)
        logs = SIGMA * ar1(rng, at_s.size, phi)
        first = int(np.searchsorted(at_s, onset_s))
        logs[first:] = shift.move(rng, logs[first:], at_s[first:] - onset_s)
        return Stream(
            times_s=START_S + at_s,
            values_s=MEDIAN_S * np.exp(logs),
            end_s=START_S + end_s,
            onset_s=START_S + onset_s,
        )

    return make


def autocorrelated(phi: float, hours: float, rate_hz: float = RATE_HZ) -> Make:
    """Return lognormal streams of lag-one correlation ``phi``; 0: independent samples."""

    def make(seed: int) -> Stream:
        rng = np.random.default_rng(seed)
        at_s = arrivals(rng, rate_hz, hours * HOUR_S)
        logs = SIGMA * ar1(rng, at_s.size, phi)
        return _still(at_s, MEDIAN_S * np.exp(logs), hours)

    return make


def _still(at_s: Floats, values_s: Floats, hours: float, workload: Floats | None = None) -> Stream:
    return Stream(
        times_s=START_S + at_s,
        values_s=values_s,
        workload=workload,
        end_s=START_S + hours * HOUR_S,
    )


STEP_TOKENS: Final = (8, 24)
_STEPS_HZ: Final = 0.625
"""With 16 tokens a step on average: 10 tokens/s, of a pane only six steps."""


def step_shared(hours: float) -> Make:
    """Return token-wise streams: the 8 to 24 tokens of a step share its time and its duration."""

    def make(seed: int) -> Stream:
        rng = np.random.default_rng(seed)
        at_s = arrivals(rng, _STEPS_HZ, hours * HOUR_S)
        tokens = rng.integers(STEP_TOKENS[0], STEP_TOKENS[1], at_s.size, endpoint=True)
        durations_s = 0.1 * MEDIAN_S * np.exp(SIGMA * rng.normal(size=at_s.size))
        return _still(np.repeat(at_s, tokens), np.repeat(durations_s, tokens), hours)

    return make


PARETO_INDEX: Final = 2.2
_PARETO_SHARE: Final = 0.1


def heavy_tailed(hours: float) -> Make:
    """Return streams of which a tenth has a Pareto tail of index 2.2: no third moment."""

    def make(seed: int) -> Stream:
        rng = np.random.default_rng(seed)
        at_s = arrivals(rng, RATE_HZ, hours * HOUR_S)
        usual_s = MEDIAN_S * np.exp(SIGMA * rng.normal(size=at_s.size))
        tail_s = MEDIAN_S * (1.0 + rng.pareto(PARETO_INDEX, at_s.size))
        in_tail = rng.random(at_s.size) < _PARETO_SHARE
        return _still(at_s, np.where(in_tail, tail_s, usual_s), hours)

    return make


NOISE: Final = 0.15
"""Standard deviation of the log latency, given the tokens."""
BASE_S: Final = 0.05
PER_TOKEN_S: Final = 0.0004
MEDIAN_TOKENS: Final = 600.0
_TOKENS_SIGMA: Final = 0.8


def served_s(rng: np.random.Generator, tokens: Floats) -> Floats:
    """Return latencies of requests of so many tokens: a base, a slope, and 15 % noise."""
    latency_s: Floats = (BASE_S + PER_TOKEN_S * tokens) * np.exp(
        NOISE * rng.normal(size=tokens.size)
    )
    return latency_s


def prompt_tokens(rng: np.random.Generator, median: float | Floats, n: int) -> Floats:
    """Return lognormal numbers of tokens, at least one."""
    return np.maximum(1.0, np.round(median * np.exp(_TOKENS_SIGMA * rng.normal(size=n))))


def daily(hours: float, latency_swing: float = 0.0) -> Make:
    """Return streams with a day: load between 0.4 and 3.6 requests/s, prompts by +-30 %.

    Latency given the tokens stays, or moves with the day by ``latency_swing``. The phase at which a
    stream begins is random.
    """

    def make(seed: int) -> Stream:
        rng = np.random.default_rng(seed)
        phase = rng.uniform(0.0, 2.0 * math.pi)
        peak_hz = 1.8 * RATE_HZ
        at_s = arrivals(rng, peak_hz, hours * HOUR_S)
        rate_hz = RATE_HZ * (1.0 + 0.8 * np.sin(phase + 2.0 * math.pi * at_s / DAY_S))
        at_s = at_s[rng.random(at_s.size) < rate_hz / peak_hz]
        day = np.sin(phase + 2.0 * math.pi * at_s / DAY_S)
        tokens = prompt_tokens(rng, MEDIAN_TOKENS * np.exp(0.3 * day), at_s.size)
        values_s = served_s(rng, tokens) * (1.0 + latency_swing * day)
        return _still(at_s, values_s, hours, tokens)

    return make


def stationary(hours: float, day_hours: float = DAY_HOURS) -> dict[str, Make]:
    """Return the streams on which every alarm is false; those with a day last ``day_hours``."""
    return {
        "independent": autocorrelated(0.0, hours),
        "AR(1) 0.5": autocorrelated(0.5, hours),
        "AR(1) 0.9": autocorrelated(0.9, hours),
        "step-shared tokens": step_shared(hours),
        "heavy tail": heavy_tailed(hours),
        "daily load": daily(day_hours),
        "daily load, latency +-10 %": daily(day_hours, 0.10),
    }


def moving_workload(change: str, slowdown: float) -> Make:
    """Return streams whose prompts and service change at the same time.

    Args:
        change: "none", "x1.3", "x2", or "mixture": 30 % of the prompts become eight times as long,
            the rest half as long.
        slowdown: 0.2: from then on a request takes 20 % longer than its tokens explain.
    """

    def make(seed: int) -> Stream:
        rng = np.random.default_rng(seed)
        onset_s = rng.uniform(HOUR_S, 2.0 * HOUR_S)
        at_s = arrivals(rng, RATE_HZ, onset_s + FOLLOWED_S)
        after = at_s >= onset_s
        factor = np.where(after, _prompt_factor(rng, change, at_s.size), 1.0)
        tokens = np.round(factor * prompt_tokens(rng, MEDIAN_TOKENS, at_s.size))
        values_s = served_s(rng, tokens) * np.where(after, 1.0 + slowdown, 1.0)
        return Stream(
            times_s=START_S + at_s,
            values_s=values_s,
            workload=tokens,
            end_s=START_S + onset_s + FOLLOWED_S,
            onset_s=START_S + onset_s,
        )

    return make


WORKLOADS: Final = ("x1.3", "x2", "mixture")


def _prompt_factor(rng: np.random.Generator, change: str, n: int) -> Floats:
    match change:
        case "none":
            return np.ones(n)
        case "x1.3":
            return np.full(n, 1.3)
        case "x2":
            return np.full(n, 2.0)
        case "mixture":
            return np.where(rng.random(n) < 0.3, 8.0, 0.5)
        case _:
            raise ValueError(f"change must be none, {', '.join(WORKLOADS)}, got {change!r}")
