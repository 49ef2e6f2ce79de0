"""What is measured on synthetic streams: each table is a list of cases, each case gives a row."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Final

from bench.detection.alarms import Column
from bench.detection.calibrate import FIRST_SEED, TUNABLES, calibrated
from bench.detection.kswin import kswin
from bench.detection.measure import (
    Delays,
    FalseAlarms,
    Tick,
    delay_s,
    delays,
    false_alarms,
    lorden_bound_s,
)
from bench.detection.ours import DEFAULT_INTERVAL_S, Daom, Sits2026
from bench.detection.peers import DriftFdr, EveryN, Never, River, adwin, page_hinkley
from bench.detection.report import Figures, Row
from bench.detection.streams import (
    CREEP,
    DAY_HOURS,
    RATE_HZ,
    SHIFTS,
    WORKLOADS,
    Make,
    Shift,
    autocorrelated,
    moving_workload,
    shifted,
    slower_by,
    stationary,
)

NOISES: Final = {"independent": 0.0, "AR(1) 0.9": 0.9}
SLOWDOWN: Final = 0.2
"""Of the service, in the table of workloads."""
SHORT_COLUMNS: Final = ("daom", "daom default", "alarm every n")
SHORT_SHIFTS: Final = (slower_by(0.20), slower_by(0.50))


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for on the command line.

    Attributes:
        seeds: Of the measured streams.
        target_s: The false-alarm interval that detectors are built for.
        hours: Event time of a stationary stream.
        rates_hz: Samples a second in the table of shifts.
        stream: Only those whose name holds this.
        columns: Only those with these names; empty: all.
        options: As they were given, for the command of a row.
        short: Only ``SHORT_COLUMNS``, and fewer streams.
    """

    seeds: range
    target_s: float
    hours: float
    rates_hz: Sequence[float]
    stream: str = ""
    columns: Sequence[str] = ()
    options: str = ""
    short: bool = False

    def wants(self, stream: str, column: str) -> bool:
        """Return whether a row was asked for."""
        columns = self.columns or (SHORT_COLUMNS if self.short else ())
        return self.stream in stream and (not columns or column in columns)


@dataclass(frozen=True, slots=True)
class Case:
    """A row to be measured.

    Attributes:
        seeds: Of its streams; empty if nothing in it is random.
        measure: Is given a tick, and calls it after each stream.
    """

    table: str
    stream: str
    column: str
    seeds: range
    measure: Callable[[Tick], Figures] = field(repr=False)

    @property
    def runs(self) -> int:
        """How often ``measure`` calls its tick."""
        return max(1, len(self.seeds))

    def command(self, options: str) -> str:
        """Return the command that measures this row alone."""
        stream, column = shlex.quote(self.stream), shlex.quote(self.column)
        only = f"python -m bench.detection --only {self.table}"
        return f"{only} --stream {stream} --column {column} {options}".strip()

    def row(self, options: str, tick: Tick) -> Row:
        """Measure the row."""
        return Row(
            table=self.table,
            stream=self.stream,
            column=self.column,
            seeds=f"{self.seeds[0]}-{self.seeds[-1]}" if self.seeds else "-",
            command=self.command(options),
            options=options,
            figures=self.measure(tick),
        )


def stationary_cases(plan: Plan) -> Iterator[Case]:
    """Yield the cases in which every alarm is false."""
    columns: list[Column] = [
        Daom("daom", plan.target_s),
        Sits2026(),
        adwin(),
        page_hinkley(),
        # It fires about every ten minutes, so one seed has alarms enough.
        replace(kswin(), max_seeds=1),
        DriftFdr(plan.target_s),
        EveryN(plan.target_s),
    ]
    for name, make in stationary(plan.hours, plan.hours if plan.short else DAY_HOURS).items():
        for column in columns:
            seeds = plan.seeds[: column.max_seeds]
            measure = partial(_interval_figures, column, make, seeds, plan.target_s)
            yield Case("stationary", name, column.name, seeds, measure)


def _interval_figures(
    column: Column, make: Make, seeds: range, target_s: float, tick: Tick
) -> Figures:
    found = false_alarms(column, make, seeds, tick)
    low_s, high_s = found.limits_s
    return {
        "alarms_count": found.alarms,
        "at_risk_s": found.at_risk_s,
        "interval_s": found.interval_s,
        "at_least_s": low_s,
        "at_most_s": high_s,
        "of_target_ratio": found.interval_s / target_s,
    }


@cache
def _on_null(column: Column, phi: float, rate_hz: float, hours: float, seeds: range) -> FalseAlarms:
    """Return the false alarms of ``column`` where streams of the table of shifts do not shift."""
    law = column.law if isinstance(column, River) else None
    return false_alarms(law or column, autocorrelated(phi, hours, rate_hz), seeds)


def shift_cases(plan: Plan) -> Iterator[Case]:
    """Yield the cases in which the service changes once."""
    for rate_hz in plan.rates_hz:
        for noise, phi in NOISES.items():
            columns = [*_shift_columns(plan, rate_hz), *_calibrated_columns(plan, phi, rate_hz)]
            for shift in _shifts(plan, rate_hz):
                name = f"{shift.name}, {noise}, {rate_hz:g}/s"
                kl_nats_per_s = shift.kl_nats_per_s(phi, rate_hz)
                for column in columns:
                    if not plan.wants(name, column.name) or (
                        shift is CREEP and not _is_left_alone(column, plan)
                    ):
                        continue
                    seeds = plan.seeds[: column.max_seeds]
                    make = shifted(shift, phi, rate_hz)
                    null = partial(_on_null, column, phi, rate_hz, plan.hours, plan.seeds)
                    measure = partial(_delay_figures, column, make, seeds, kl_nats_per_s, null)
                    yield Case("shifts", name, column.name, seeds, measure)


def _shifts(plan: Plan, rate_hz: float) -> Sequence[Shift]:
    if plan.short:
        return SHORT_SHIFTS
    return (*SHIFTS, CREEP) if rate_hz == RATE_HZ else SHIFTS


def _is_left_alone(column: Column, plan: Plan) -> bool:
    """Return whether ``column`` is so quiet that an alarm in a day of creep means something."""
    return column.interval_s != plan.target_s and not column.name.startswith("KSWIN")


def _shift_columns(plan: Plan, rate_hz: float) -> Iterator[Column]:
    """Yield the detectors of the table of shifts that need no calibration."""
    yield Daom("daom", plan.target_s)
    if not plan.short:
        yield Daom("daom default", DEFAULT_INTERVAL_S)
    yield Sits2026()
    yield from (adwin(), page_hinkley())
    if rate_hz == RATE_HZ:
        yield kswin()
    yield DriftFdr(plan.target_s)
    yield EveryN(plan.target_s)


def _calibrated_columns(plan: Plan, phi: float, rate_hz: float) -> Iterator[Column]:
    """Yield the peers made to hold the target on what will be measured, before it shifts."""
    null = autocorrelated(phi, plan.hours, rate_hz)
    seeds = range(FIRST_SEED, FIRST_SEED + len(plan.seeds))
    for tunable in TUNABLES:
        if plan.wants(plan.stream, tunable.name) and rate_hz <= tunable.max_rate_hz:
            found = calibrated(tunable, null, seeds, plan.target_s)
            yield found or Never(tunable.name)


def _delay_figures(
    column: Column,
    make: Make,
    seeds: range,
    kl_nats_per_s: float | None,
    null: Callable[[], FalseAlarms],
    tick: Tick,
) -> Figures:
    found = delays(column, make, seeds, tick)
    # What takes no interval is held to the one that it has.
    interval_s = column.interval_s or null().interval_s
    bound_s = math.nan
    if kl_nats_per_s and math.isfinite(interval_s):
        bound_s = lorden_bound_s(interval_s, kl_nats_per_s)
    return {
        "median_delay_s": found.median_s,
        "missed_share": found.missed,
        "bound_s": bound_s,
        "of_bound_ratio": found.median_s / bound_s,
        "false_alarm_interval_s": null().interval_s,
        "in_alarm_count": found.in_alarm,
        "setting_text": _setting(column),
    }


def _setting(column: Column) -> str:
    """Return the one parameter that sets a peer's rate, as it was in the measurement."""
    if isinstance(column, Never):
        return "none holds"
    return f"{column.setting:.2g}" if isinstance(column, River) else "-"


def workload_cases(plan: Plan) -> Iterator[Case]:
    """Yield the cases in which prompts move: with the service as it was, and 20 % slower."""
    columns: list[Column] = [
        Daom("daom default", DEFAULT_INTERVAL_S),
        Sits2026(),
        adwin(),
        page_hinkley(),
        DriftFdr(DEFAULT_INTERVAL_S),
    ]
    for slowdown in (0.0, SLOWDOWN):
        service = f", service {slowdown:+.0%}" if slowdown else ", service unchanged"
        for change in _changes(plan, slowdown):
            make = moving_workload(change, slowdown)
            for column in columns:
                measure = partial(attribution_figures, column, make, plan.seeds)
                yield Case(
                    "workload", f"prompts {change}{service}", column.name, plan.seeds, measure
                )


def _changes(plan: Plan, slowdown: float) -> Sequence[str]:
    moving = WORKLOADS[-1:] if plan.short else WORKLOADS
    return ("none", *moving) if slowdown else moving


def attribution_figures(column: Column, make: Make, seeds: range, tick: Tick) -> Figures:
    """Measure what ``column`` puts a change down to, in shares of runs; NaN if it cannot tell.

    "service" is asked of the whole run; the rest from the onset on, of runs not in alarm then.
    """
    tells, in_alarm, services, found = False, 0, 0, 0
    delays_s: list[float] = []
    for seed in seeds:
        stream = make(seed)
        onset_s = stream.end_s if stream.onset_s is None else stream.onset_s
        watched = column.watch(stream)
        said, said_since = watched.attributions(), watched.attributions(onset_s)
        tells |= bool(said - {"none"})
        services += "service" in said
        found += bool(said_since & {"service", "mixed"})
        if watched.is_in_alarm(onset_s):
            in_alarm += 1
        else:
            delays_s.append(delay_s(watched, onset_s, stream.end_s))
        tick()
    since = Delays(tuple(delays_s), in_alarm)
    return {
        "drifting_share": 1.0 - since.missed,
        "service_share": services / len(seeds) if tells else math.nan,
        "service_or_mixed_share": found / len(seeds) if tells else math.nan,
        "median_delay_s": since.median_s,
        "in_alarm_count": in_alarm,
    }
