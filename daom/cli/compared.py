"""What ``daom compare`` found: tables for people, one object for scripts."""

from __future__ import annotations

import math
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from daom.compare import Compared, JudgedOn, Result, SignalCompared, duration_words, needed_samples
from daom.series import significant
from daom.tolerances import Wanted
from detectors.comparison import Contrast, Interval
from detectors.decision import POWER
from detectors.two_samples import Divergence

_SCALES_S: Final = ((1e-6, "ns", 1e-9), (1e-3, "µs", 1e-6), (1.0, "ms", 1e-3))
"""Below the first, in the second, which is the third."""
_COLOURS: Final = {"within": "green", "beyond": "bold red", "undecided": "yellow"}
_HALF_BARS: Final = ((110, 12), (96, 6))
"""In a terminal so wide there is room for a bar with halves so wide."""
_BEYOND: Final = 1.5
"""A bar reaches so far beyond the tolerance, or the interval."""
_OUTCOMES: Final = {
    "within": "within: every difference is within its tolerance",
    "beyond": "beyond: a difference is larger than its tolerance",
    "undecided": "undecided: it takes more samples to say",
    "insufficient": "insufficient: there is too little to tell by how much the sides differ",
    "compared": "",
}


# For people


def print_result(
    result: Result, names: tuple[str, str], confidence: float, judged_on: JudgedOn
) -> None:
    """Print a table for every signal, and what comes of it."""
    console = Console()
    for letter, name in zip("AB", names, strict=True):
        console.print(f"{letter}: {name}", highlight=False, markup=False)
    for signal in result.signals:
        console.print()
        _print_signal(console, signal, confidence, judged_on)
    console.print()
    console.print(
        f"[ .. ]: the difference is in there at {confidence:.4g}; each by itself. at equal "
        "workload: A's samples counted as often as B has the like. *: beyond chance.",
        highlight=False,
        markup=False,
    )
    if _OUTCOMES[result.outcome]:
        judged = "at equal workload" if judged_on == "service" else "as they are"
        text = Text(_OUTCOMES[result.outcome], style=_COLOURS.get(result.outcome, "yellow"))
        console.print(text.append(f"; judged {judged}, all together at {confidence:.4g}"))


def _print_signal(
    console: Console, signal: SignalCompared, confidence: float, judged_on: JudgedOn
) -> None:
    extents = ", ".join(
        f"{name} {extent.samples:,} samples in {duration_words(extent.seconds)}"
        for name, extent in (("A", signal.a), ("B", signal.b))
    )
    title = f"{signal.measure.name} of {signal.model}"
    console.print(Text(title, style="bold").append(f": {extents}", style="not bold"))
    if signal.kl is not None:
        console.print(f"  {_kl_words(signal.kl)}", highlight=False)
    if signal.statistics:
        console.print(_table(console, signal, confidence, judged_on))
    if signal.why is not None:
        console.print(f"  {signal.why}", highlight=False, markup=False)
    for statistic, wanted in signal.unjudged.items():
        console.print(f"  {statistic.name} {wanted.text}: undecided", highlight=False)
    for each in signal.statistics:
        if each.why is not None and each.why != signal.why:
            line = f"  {each.statistic.name}: {each.why}"
            console.print(line, highlight=False, markup=False)


def _kl_words(kl: Divergence) -> str:
    def part(nats: float, changed: bool) -> str:  # noqa: FBT001 - a finding, not a switch.
        return f"{nats:.3f}{'*' if changed else ''}"

    return (
        f"KL(B || A) {part(kl.latency_nats, kl.latency_changed)} nats: workload "
        f"{part(kl.workload_nats, kl.workload_changed)}, service "
        f"{part(kl.service_nats, kl.service_changed)}"
    )


def _table(
    console: Console, signal: SignalCompared, confidence: float, judged_on: JudgedOn
) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("A\nB", "B - A", "at equal\nworkload"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("comes\nfrom", no_wrap=True)
    is_judged = any(each.wanted for each in signal.statistics)
    if is_judged:
        table.add_column("verdict\ntolerance", no_wrap=True)
    half = next((half for width, half in _HALF_BARS if console.width >= width), 0)
    if half:
        table.add_column("", no_wrap=True)
    for each in signal.statistics:
        cells = _cells(signal.measure.column, each, confidence)
        if not is_judged:
            cells.pop()
        shown = each.raw if judged_on == "raw" or each.service is None else each.service
        if half:
            cells.append(_bar(shown, shown.interval(confidence), each.wanted, half))
        table.add_row(*cells)
    return table


def _cells(column: str, each: Compared, confidence: float) -> list[str]:
    unit, by = _unit(column, max(abs(each.raw.a.value), abs(each.raw.b.value)))
    verdict = each.verdict or ""
    limit = "" if each.wanted is None else _tolerance_words(each.wanted)
    judged = [f"[{_COLOURS[verdict]}]{verdict}[/]\n{limit}"] if verdict else [""]
    return [
        f"  {each.statistic.name}{unit and ', '}{unit}",
        f"{_number(each.raw.a.value / by)}\n{_number(each.raw.b.value / by)}",
        _difference(each.raw, confidence, by),
        "?" if each.service is None else _difference(each.service, confidence, by),
        "" if each.attribution == "none" else each.attribution,
        *judged,
    ]


def _tolerance_words(wanted: Wanted) -> str:
    tolerance, bare = wanted.tolerance, wanted.text.lstrip("+-± ")
    if tolerance.increase is not None and tolerance.decrease is not None:
        return f"±{bare}"
    return f"+{bare}" if tolerance.decrease is None else f"-{bare}"


def _difference(contrast: Contrast, confidence: float, by: float) -> str:
    """Return the difference, and below it its limits, in units of ``by``."""
    low, high = (_number(end / by, sign=True) for end in contrast.interval(confidence))
    return f"{_number(contrast.difference / by, sign=True)}\n\\[{low} .. {high}]"


def _bar(contrast: Contrast, interval: Interval, wanted: Wanted | None, half: int) -> str:
    """Return the interval as a bar around zero; < and > mark a tolerance."""
    size = _size(contrast, wanted)
    finite = [abs(end) for end in interval if math.isfinite(end)]
    reach = _BEYOND * max([size, abs(contrast.difference), *(finite if not size else [])])
    if not reach > 0.0 or not math.isfinite(reach):
        return ""

    def cell(value: float) -> int:
        return half + round(min(max(value / reach, -1.0), 1.0) * half)

    bar = [" "] * (2 * half + 1)
    low, high = cell(interval[0]), cell(interval[1])
    bar[low : high + 1] = "━" * (high + 1 - low)
    bar[half] = "┼" if bar[half] == "━" else "│"
    bar[cell(contrast.difference)] = "●"
    if wanted is not None:
        if wanted.tolerance.decrease is not None:
            bar[cell(-size)] = "<"
        if wanted.tolerance.increase is not None:
            bar[cell(size)] = ">"
    return "".join(bar)


def _size(contrast: Contrast, wanted: Wanted | None) -> float:
    if wanted is None:
        return 0.0
    size = max(wanted.tolerance.increase or 0.0, wanted.tolerance.decrease or 0.0)
    return size * abs(contrast.a.value) if wanted.tolerance.relative else size


def _unit(column: str, size: float) -> tuple[str, float]:
    """Return the unit of a column whose numbers are of such a size, and how large it is."""
    if not column.endswith("_s"):
        return "", 1.0
    scales = ((unit, by) for below, unit, by in _SCALES_S if 0.0 < size < below)
    return next(scales, ("s", 1.0))


def _number(value: float, *, sign: bool = False) -> str:
    if not math.isfinite(value):
        return "?"
    return f"{value:+.3g}" if sign else f"{value:.4g}"


# For scripts


def report(
    result: Result, names: tuple[str, str], confidence: float, judged_on: JudgedOn
) -> dict[str, Any]:
    """Return all as JSON; null stands for what is not known."""
    return {
        "a": names[0],
        "b": names[1],
        "confidence": confidence,
        "judged_on": judged_on,
        "power": POWER,
        "outcome": result.outcome,
        "signals": [_signal(signal, confidence) for signal in result.signals],
    }


def _signal(signal: SignalCompared, confidence: float) -> dict[str, Any]:
    kl = signal.kl
    return {
        "model": signal.model,
        "signal": signal.measure.name,
        "table": signal.measure.table,
        "a": {"samples": signal.a.samples, "observed_s": significant(signal.a.seconds)},
        "b": {"samples": signal.b.samples, "observed_s": significant(signal.b.seconds)},
        "kl_nats": None if kl is None else significant(kl.workload_nats + kl.service_nats),
        "workload_nats": None if kl is None else significant(kl.workload_nats),
        "service_nats": None if kl is None else significant(kl.service_nats),
        "latency_nats": None if kl is None else significant(kl.latency_nats),
        "workload_changed": None if kl is None else kl.workload_changed,
        "service_changed": None if kl is None else kl.service_changed,
        "judged_share": None if kl is None else significant(kl.judged_share),
        "why": signal.why,
        "statistics": [_statistic(signal, each, confidence) for each in signal.statistics],
        "unjudged": {s.name: wanted.text for s, wanted in signal.unjudged.items()},
    }


def _statistic(signal: SignalCompared, each: Compared, confidence: float) -> dict[str, Any]:
    decision = each.decision
    return {
        "name": each.statistic.name,
        "raw": _contrast(each.raw, confidence),
        "service": None if each.service is None else _contrast(each.service, confidence),
        "attribution": each.attribution,
        "tolerance": None if each.wanted is None else each.wanted.text,
        "verdict": each.verdict,
        "why": each.why,
        "needed": decision and _needed(signal, decision.factor),
        "needed_if_as_it_seems": decision and _needed(signal, decision.seeming),
    }


def _needed(signal: SignalCompared, factor: float | None) -> dict[str, float] | None:
    needed = needed_samples(signal, factor)
    if needed is None:
        return None
    return {"a_samples": needed[0], "b_samples": needed[1], "b_s": significant(needed[2])}


def _contrast(contrast: Contrast, confidence: float) -> dict[str, float | None]:
    low, high = contrast.interval(confidence)
    numbers = {
        "a": contrast.a.value,
        "b": contrast.b.value,
        "difference": contrast.difference,
        "low": low,
        "high": high,
    }
    return {n: significant(v) if math.isfinite(v) else None for n, v in numbers.items()}
