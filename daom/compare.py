"""Two sides compared: every signal's differences, what they come from, and whether they may be.

Pure: samples in, findings out. What a difference at *equal workload* is, ``detectors.comparison``
says; that is the service's part of it, and the rest is the workload's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from daom.context import RISE
from daom.errors import ConfigError
from daom.events import Attribution
from daom.gathered import Gathered, Measure
from daom.series import IN_FLIGHT
from daom.tolerances import USUAL, Statistic, Tolerances, Wanted
from detectors.blocks import Blocks, Counted
from detectors.comparison import Contrast, Contrasts, contrasts
from detectors.decision import Decision, Verdict, decide
from detectors.long_run import MIN_BLOCKS
from detectors.two_samples import Divergence, divergence

JudgedOn = Literal["service", "raw"]
Outcome = Literal["within", "beyond", "undecided", "insufficient", "compared"]

_UNITS_S: Final = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"))
_TEN: Final = 10.0
_SOME: Final = 0.25
"""A smaller part of a difference is not named."""
_MIN_JUDGED_SHARE: Final = 0.5


class Extent(NamedTuple):
    """How much there is on one side."""

    samples: int
    seconds: float
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One statistic of a signal.

    Attributes:
        raw: B - A as it is.
        service: The same at equal workload; None: nobody can say.
        attribution: What the difference comes from.
        wanted: The tolerance, if there is one,
        decision: and what was decided.
        why: What keeps it from being decided, in words.
    """

    statistic: Statistic
    raw: Contrast
    service: Contrast | None
    attribution: Attribution
    wanted: Wanted | None = None
    decision: Decision | None = None
    why: str | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Within, beyond or undecided; None without a tolerance."""
        return None if self.decision is None else self.decision.verdict

    def on(self, judged_on: JudgedOn) -> Contrast | None:
        """Return the difference that a tolerance is about; None: nobody can say."""
        return self.service if judged_on == "service" else self.raw


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalCompared:
    """One signal of one model.

    Attributes:
        model: The model, or ``A -> B`` where the sides have one each, of different names.
        kl: KL(B || A) and its parts; None where there are too few samples.
        statistics: Empty where there is nothing to compare; ``why`` says what is missing.
        unjudged: Tolerances of which nothing can be said, since there are no statistics.
    """

    model: str
    measure: Measure
    a: Extent
    b: Extent
    kl: Divergence | None = None
    statistics: Sequence[Compared] = ()
    why: str | None = None
    unjudged: Mapping[Statistic, Wanted] = field(default_factory=dict)

    @property
    def undecided(self) -> bool:
        """Whether a tolerance could not be judged."""
        return bool(self.unjudged) or any(s.verdict == "undecided" for s in self.statistics)


class Result(NamedTuple):
    """All that was compared, and what comes of it."""

    signals: Sequence[SignalCompared]
    outcome: Outcome


def compare(
    a: Gathered,
    b: Gathered,
    tolerances: Tolerances,
    *,
    confidence: float = 0.95,
    judged_on: JudgedOn = "service",
) -> Result:
    """Return how B differs from A.

    Args:
        a: Gathered for the same measures as ``b``.
        tolerances: May be empty.
        confidence: Of intervals and of the outcome, 0 to 1.
        judged_on: Which difference the tolerances are about: that at equal workload, or as it is.

    Raises:
        ConfigError: If no model is on both sides, or a column is in both tables.
    """
    found: list[SignalCompared] = []
    for name, model_a, model_b in _pairs(a, b):
        of_a, of_b = a.models.get(model_a, {}), b.models.get(model_b, {})
        rises = _arrivals_rise(a, b, model_a, model_b)
        for measure in _present(a.measures, of_a, of_b, tolerances):
            pair = (of_a.get(measure.key), of_b.get(measure.key))
            wanted = tolerances.get(measure.name, {})
            found.append(_signal(name, measure, pair, wanted, confidence, rises))
    return _judged(found, confidence, judged_on)


def _pairs(a: Gathered, b: Gathered) -> Iterator[tuple[str, str, str]]:
    """Yield the models to compare: those of both sides, or the one of each."""
    common = sorted(set(a.models) & set(b.models))
    if common:
        yield from ((model, model, model) for model in common)
    elif len(a.models) == len(b.models) == 1:
        (one,), (other,) = a.models, b.models
        yield f"{one} -> {other}", one, other
    elif a.models and b.models:
        raise ConfigError(
            f"no model is on both sides: A has {', '.join(sorted(a.models))}, B has "
            f"{', '.join(sorted(b.models))}; choose with --model or --by model A B"
        )


def _present(
    measures: Sequence[Measure],
    a: Mapping[str, Blocks],
    b: Mapping[str, Blocks],
    tolerances: Tolerances,
) -> Iterator[Measure]:
    """Yield those that a side has, and those with a tolerance; each name once."""
    by_name: dict[str, list[Measure]] = {}
    for measure in measures:
        by_name.setdefault(measure.name, []).append(measure)
    for name, candidates in by_name.items():
        there = [m for m in candidates if m.key in a or m.key in b]
        if len(there) > 1:
            raise ConfigError(
                f"{name} is in both tables; name one: requests.{name} or steps.{name}"
            )
        if there or name in tolerances:
            yield (there or candidates)[0]


def _arrivals_rise(a: Gathered, b: Gathered, model_a: str, model_b: str) -> bool | None:
    """Return whether more requests a second come on B's side; None where nobody counts them."""
    rates = []
    for side, model in ((a, model_a), (b, model_b)):
        requests = [
            blocks.observed_s
            for key, blocks in side.models[model].items()
            if key.startswith("requests.")
        ]
        seconds = max(requests, default=0.0)
        rates.append(side.requests[model] / seconds if seconds else math.nan)
    return None if any(map(math.isnan, rates)) else rates[1] > RISE * rates[0]


def _extent(counted: Counted | None) -> Extent:
    if counted is None:
        return Extent(0, 0.0, 0)
    return Extent(round(counted.samples), counted.observed_s, counted.blocks)


def _signal(
    model: str,
    measure: Measure,
    pair: tuple[Blocks | None, Blocks | None],
    wanted: Mapping[Statistic, Wanted],
    confidence: float,
    rises: bool | None,  # noqa: FBT001 - a finding, not a switch.
) -> SignalCompared:
    a, b = (None if blocks is None else blocks.counted() for blocks in pair)
    bare = SignalCompared(model=model, measure=measure, a=_extent(a), b=_extent(b))
    if a is None or b is None or not a.samples or not b.samples:
        missing = " and ".join(n for n, e in (("A", bare.a), ("B", bare.b)) if not e.samples)
        return replace(bare, why=f"insufficient: no samples in {missing}", unjudged=wanted)
    statistics = list(dict.fromkeys((*USUAL, *wanted)))
    levels = [statistic.level for statistic in statistics if statistic.level is not None]
    kl = divergence(a, b, confidence)
    raw = contrasts(a, b, levels)
    assert raw is not None  # Where all strata are alike, A and B have them in common.
    service = raw if measure.workload is None else None
    if service is None and kl is not None:
        service = contrasts(a, b, levels, kl.groups)
    if service is not None and service.share < _MIN_JUDGED_SHARE:
        service = None
    compared = [
        Compared(
            statistic=statistic,
            raw=(as_is := _of(raw, levels, statistic)),
            service=(equal := None if service is None else _of(service, levels, statistic)),
            attribution=_attribution(measure, as_is, equal, kl, confidence, rises),
            wanted=wanted.get(statistic),
        )
        for statistic in statistics
    ]
    return replace(bare, kl=kl, statistics=compared, why=_short(bare, kl, service))


def _of(found: Contrasts, levels: Sequence[float], statistic: Statistic) -> Contrast:
    if statistic.level is None:
        return found.mean
    return found.quantiles[levels.index(statistic.level)]


def _short(signal: SignalCompared, kl: Divergence | None, service: Contrasts | None) -> str | None:
    """Return what is missing for intervals or for the service's part, in words."""
    for name, extent in (("A", signal.a), ("B", signal.b)):
        if extent.blocks < MIN_BLOCKS:
            return (
                f"insufficient: {extent.samples} samples in {extent.blocks} different seconds on "
                f"side {name}; at least {MIN_BLOCKS} are needed"
            )
    if kl is None and service is None:
        return "insufficient: under 60 samples on a side; no workload can be told from another"
    if service is None and kl is not None:
        return (
            f"the workloads hardly overlap: A knows the like of {kl.judged_share:.0%} of B's "
            "samples, so the service cannot be compared"
        )
    return None


def _attribution(
    measure: Measure,
    raw: Contrast,
    service: Contrast | None,
    kl: Divergence | None,
    confidence: float,
    rises: bool | None,  # noqa: FBT001 - a finding, not a switch.
) -> Attribution:
    """Return what a difference comes from, as far as it is beyond chance."""
    is_there = _is_there(raw, confidence)
    if service is None:
        return "mixed" if is_there else "none"
    changed = kl is not None and kl.workload_changed
    if _is_there(service, confidence):
        of_workload = abs(raw.difference - service.difference)
        named = of_workload > _SOME * (of_workload + abs(service.difference))
        return "mixed" if named and changed else "service"
    if not is_there or not changed:
        return "none"
    # By Little's law more are in flight just as well because each takes longer.
    return "mixed" if measure.workload in IN_FLIGHT and rises is False else "workload"


def _is_there(contrast: Contrast, confidence: float) -> bool:
    low, high = contrast.interval(confidence)
    return low > 0.0 or high < 0.0


def _judged(signals: Sequence[SignalCompared], confidence: float, judged_on: JudgedOn) -> Result:
    """Decide all tolerances together."""
    asked: list[tuple[Contrast, Wanted]] = []
    for signal in signals:
        for each in signal.statistics:
            judged = each.on(judged_on)
            if each.wanted is not None and judged is not None:
                asked.append((judged, each.wanted))
    decided = iter(decide([(c, w.tolerance) for c, w in asked], confidence))
    done: list[SignalCompared] = []
    for signal in signals:
        statistics = []
        for each in signal.statistics:
            judged = each.on(judged_on)
            if each.wanted is None:
                statistics.append(each)
                continue
            decision = Decision("undecided") if judged is None else next(decided)
            why = _why(signal, decision, each.wanted) if decision.verdict == "undecided" else None
            statistics.append(replace(each, decision=decision, why=why))
        done.append(replace(signal, statistics=statistics))
    return Result(done, _outcome(done, confidence))


def _why(signal: SignalCompared, decision: Decision, wanted: Wanted) -> str:
    """Return what it takes to decide, in words."""
    if decision.too_fine:
        return f"{wanted.text} is finer than what a histogram resolves, 0.1 % of the value"
    if not decision.known:
        return signal.why or (
            "insufficient: neighbouring blocks depend on one another too much; it takes much longer"
        )
    seeming = _amount(signal, decision.seeming)
    if decision.factor is None:
        if seeming is None:
            return f"as good as {wanted.text}: no amount of samples would tell"
        return f"if the difference is what it seems to be, it takes {seeming}"
    planned = _amount(signal, decision.factor) or "over 10,000 times as much"
    told = f"to tell {wanted.text} from nothing, it takes {planned}"
    if seeming is not None and (decision.seeming or math.inf) < decision.factor:
        told += f"; if the difference is what it seems to be, {seeming}"
    return told


def _amount(signal: SignalCompared, factor: float | None) -> str | None:
    """Return so many times as much as there is, in words; None if nobody can wait for it."""
    needed = needed_samples(signal, factor)
    if factor is None or needed is None:
        return None
    times = f"{factor:.1f}" if factor < _TEN else f"{factor:,.0f}"
    long = duration_words(needed[2])
    return f"{times} times as much of both: B {needed[1]:,} samples in {long}"


def duration_words(seconds: float) -> str:
    """Return a duration in the largest unit of which there are two or more, or in seconds."""
    for unit_s, unit in _UNITS_S:
        if seconds >= 2.0 * unit_s:
            number = seconds / unit_s
            return f"{number:.1f} {unit}" if number < _TEN else f"{number:,.0f} {unit}"
    return f"{seconds:.0f} s"


def _rounded(number: float) -> int:
    """Return ``number`` rounded up to two digits."""
    size = 10.0 ** max(math.floor(math.log10(max(number, 1.0))) - 1, 0)
    return int(math.ceil(number / size) * size)


def needed_samples(signal: SignalCompared, factor: float | None) -> tuple[int, int, float] | None:
    """Return the samples of A and of B and the seconds of B that are ``factor`` times as many."""
    if factor is None or not math.isfinite(factor):
        return None
    a, b = (_rounded(factor * extent.samples) for extent in (signal.a, signal.b))
    return a, b, factor * signal.b.seconds


def _outcome(signals: Sequence[SignalCompared], confidence: float) -> Outcome:
    verdicts = [s.verdict for signal in signals for s in signal.statistics if s.verdict]
    if "beyond" in verdicts:
        return "beyond"
    if any(signal.undecided for signal in signals):
        return "undecided"
    if verdicts:
        return "within"
    known = (s.raw.interval(confidence) for signal in signals for s in signal.statistics)
    return "compared" if any(np.isfinite(interval).any() for interval in known) else "insufficient"
