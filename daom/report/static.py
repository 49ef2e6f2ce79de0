"""What a static threshold would have said: P99 above a fixed limit, for as long as alerts pend.

It sees the same P99 as the report shows, the verdicts'. An alert lives as DAOM's do (pending time,
resolve time, cooldown), and one incident speaks once: an engine's for its signals, the fleet's for
its engines. What no threshold can know is left out: whether a distribution has drifted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import msgspec

from daom.alerting import AlertDesk, AlertSettings, DeskState
from daom.conditions import ended_condition
from daom.config import AlertConfig
from daom.events import DriftVerdict, Output
from daom.lifecycle import Condition, Lifecycle
from daom.root_cause import Evidence
from daom.suppression import Cooldown, FewEngines, FleetWide, same_incident

ABOVE_LIMIT: Final = "P99AboveLimit"

Limits = Mapping[tuple[str, str], float]
"""By cell and signal: the limit of P99, seconds. What is not there has none, yet."""


@dataclass(slots=True)
class StaticWatch:
    """Holds the P99 of verdicts against fixed limits.

    Args:
        limits: They may be set while it watches.
        alerts: How long an alert pends, and so on.
        signals: The monitored ones, most important first.
    """

    limits: Limits
    alerts: AlertConfig
    signals: Sequence[str]
    desks: dict[str, DeskState] = field(default_factory=dict)

    def take(self, outputs: Iterable[Output]) -> Iterator[Output]:
        """Yield what the verdicts among ``outputs`` make due: verdicts of its own, and alerts."""
        verdicts = (o for o in outputs if isinstance(o, DriftVerdict) and o.p99_s is not None)
        cycles = groupby(verdicts, key=lambda verdict: (verdict.cell, verdict.event_time_s))
        for (cell, now_s), cycle in cycles:
            known = [v for v in cycle if (cell, v.series.signal) in self.limits]
            if known:
                yield from map(self._judged, known)
                yield from self._walk(cell, now_s, known)

    def _is_above(self, verdict: DriftVerdict) -> bool:
        # Of a P99 that is known to within a bucket only its lower edge is sure.
        surely_s = verdict.evidence.get("bucket_from_s", verdict.p99_s)
        limit_s = self.limits[verdict.cell, verdict.series.signal]
        return surely_s is not None and surely_s > limit_s

    def _judged(self, verdict: DriftVerdict) -> DriftVerdict:
        above = self._is_above(verdict)
        limit_s = self.limits[verdict.cell, verdict.series.signal]
        return msgspec.structs.replace(
            verdict,
            threshold_s=limit_s,
            drifting=above,
            why=None,
            direction="slower" if above else "none",
            attribution="none",
        )

    def _walk(self, cell: str, now_s: float, verdicts: Sequence[DriftVerdict]) -> Iterator[Output]:
        settings = AlertSettings(
            drift=Lifecycle(self.alerts.pending_s, self.alerts.resolve_s),
            presence=Lifecycle(),
            rules=(
                FleetWide(self.alerts.fleet_share),
                FewEngines(self.alerts.fleet_share),
                same_incident,
                Cooldown(self.alerts.cooldown_s),
            ),
            # A threshold looks for no causes.
            root_cause_after_s=math.inf,
        )
        state = self.desks.setdefault(cell, DeskState())
        conditions = [self._condition(verdict) for verdict in verdicts]
        told = {condition.key for condition in conditions}
        gone = [life for key, life in state.lives.items() if key not in told]
        conditions += [ended_condition(life, "there is no P99 any more") for life in gone]
        judged: dict[str, set[str]] = {signal: set() for signal in self.signals}
        for verdict in verdicts:
            if verdict.series.engine is not None:
                judged[verdict.series.signal].add(verdict.series.engine)
        desk = AlertDesk(cell, {"model": verdicts[0].series.model}, settings)
        yield from desk.walk(state, conditions, judged, now_s, _no_evidence)

    def _condition(self, verdict: DriftVerdict) -> Condition:
        series, above = verdict.series, self._is_above(verdict)
        limit_s = self.limits[verdict.cell, series.signal]
        whose = f"engine {series.engine}" if series.engine else "the fleet"
        found = f"{verdict.p99_s:.3g} s, its fixed limit {limit_s:.3g} s"
        return Condition(
            name=ABOVE_LIMIT,
            engine=series.engine,
            signal=series.signal,
            active=above,
            clear=not above,
            severity="warning",
            drifting=above,
            annotations={"summary": f"P99 of {series.signal} of {whose} is {found}"},
        )


def _no_evidence(condition: Condition, onset_s: float) -> Evidence:
    raise AssertionError(f"no cause is looked for of {condition.key}, begun at {onset_s}")
