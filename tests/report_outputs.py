"""What a large fleet might have said, put straight into a report: nothing is detected here."""

from __future__ import annotations

import math
from collections.abc import Iterator

from daom.config import Config
from daom.events import Alert, Cause, DriftVerdict, Output, RcaTrigger, Series, Suppression
from daom.labels import Recorded
from daom.report.contest import Contest, line_up
from daom.report.document import Replayed

T0 = 1_764_000_000.0
DAY_S = 86_400.0


def verdict(time_s: float, **said: object) -> DriftVerdict:
    """A calm verdict, but for what is ``said``."""
    plain = {
        "id": f"v{time_s}",
        "event_time_s": time_s,
        "cell": "m",
        "series": Series(model="m", engine="e0", signal="ttft_s"),
        "samples": 100,
        "kl_nats": 0.01,
        "p99_s": 0.4,
        "threshold_s": 0.5,
        "drifting": False,
    }
    return DriftVerdict(**(plain | said))  # type: ignore[arg-type]


def fleet_says(
    engines: int, days: float, pane_s: float, signals: tuple[str, ...] = ("ttft_s", "e2e_s")
) -> Iterator[Output]:
    """Yield a verdict of each series a pane; every seventh engine has an incident a week."""
    panes = int(days * DAY_S / pane_s)
    for pane in range(1, panes + 1):
        time_s = T0 + pane * pane_s
        for number in range(engines):
            for signal in signals:
                yield _pane_of(number, signal, pane, time_s, pane_s)
    for number in range(0, engines, 7):
        for week in range(math.ceil(days / 7.0)):
            yield from _incident(number, T0 + _onset_s(number, week), signals)


def _onset_s(number: int, week: int) -> float:
    return (week * 7.0 + 1.0 + (number * 37 % 100) / 20.0) * DAY_S


def _pane_of(number: int, signal: str, pane: int, time_s: float, pane_s: float) -> DriftVerdict:
    day = math.sin(2.0 * math.pi * (time_s / DAY_S + number / 40.0))
    noise = (pane * 7_919 + number * 104_729) % 1_000 / 1_000.0
    p99_s = (0.3 if signal == "ttft_s" else 4.0) * (1.0 + 0.2 * day + 0.1 * noise)
    since_s = time_s - T0 - _onset_s(number, int((time_s - T0) // (7.0 * DAY_S)))
    slow = number % 7 == 0 and 0.0 < since_s < 3.0 * 3_600.0
    shifted = number % 5 == 2 and noise > 0.97
    learning = pane * pane_s < 2.0 * 3_600.0
    return verdict(
        time_s,
        series=Series(model="m", engine=f"host-{number // 8:02}/{number % 8}", signal=signal),
        samples=60 + int(40 * noise),
        p99_s=p99_s * (3.0 if slow else 1.0),
        threshold_s=None if learning else (0.5 if signal == "ttft_s" else 6.5) * (1.0 + 0.15 * day),
        kl_nats=None if learning else 0.02 * noise + (0.6 if slow else 0.0),
        workload_nats=None if learning else 0.01 * noise,
        service_nats=None if learning else 0.01 * noise + (0.6 if slow else 0.0),
        drifting="insufficient" if learning else slow or shifted,
        direction="slower" if slow else "faster" if shifted and pane % 2 else "none",
        attribution="service" if slow else "workload" if shifted else "none",
        evidence={"evidence_nats": 40.0 if slow else 3.0 * noise, "threshold_nats": 14.0},
    )


def _incident(number: int, onset_s: float, signals: tuple[str, ...]) -> Iterator[Output]:
    engine = f"host-{number // 8:02}/{number % 8}"
    labels = {"alertname": "LatencyDrift", "model": "m", "engine": engine, "severity": "critical"}
    for state, after_s in (("pending", 20.0), ("firing", 90.0), ("resolved", 3.1 * 3_600.0)):
        yield Alert(
            id=f"{engine}{onset_s}{state}",
            event_time_s=onset_s + after_s,
            cell="m",
            fingerprint=engine,
            name="LatencyDrift",
            labels=labels | {"signal": signals[0]},
            state=state,  # type: ignore[arg-type]
            started_s=onset_s + 20.0,
            attribution="service",
            annotations={
                "incident": f"{engine}{onset_s}",
                "summary": f"{signals[0]} of engine {engine} is 3 times its reference",
            },
        )
    about = {"cell": "m", "fingerprint": engine, "name": "LatencyDrift"}
    yield RcaTrigger(
        id=f"r{engine}{onset_s}",
        event_time_s=onset_s + 90.0,
        labels=labels | {"signal": signals[0]},
        onset_s=onset_s + 20.0,
        causes=(Cause(cause="gpu_throttled", score=0.8, evidence=("sm_clock_mhz 1980 -> 1215",)),),
        **about,
    )
    yield Suppression(
        id=f"s{engine}{onset_s}",
        event_time_s=onset_s + 100.0,
        labels=labels | {"signal": signals[-1]},
        rule="same_incident",
        why=f"{signals[0]} of engine {engine} is already firing",
        until_s=None,
        **about,
    )


def replayed(outputs: Iterator[Output], end_s: float, pane_s: float = 10.0) -> Replayed:
    """Return a replay in which ``outputs`` were said under the default settings."""
    config = Config.model_validate({"time": {"pane_s": pane_s}})
    contest = Contest(line_up(config, []))
    for output in outputs:
        contest.note(contest.base, [output])
        contest.tally.records += 1
    engines = {s.engine for s in contest.timelines if s.engine is not None}
    recorded = Recorded(name="month", start_s=T0, end_s=end_s, engines={"m": engines})
    return Replayed(contest=contest, recorded=recorded)
