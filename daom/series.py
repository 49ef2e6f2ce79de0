"""One series: its open panes, its detector's state, the threshold in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from daom.events import AuditEntry, DriftVerdict, Output, Series, SloThreshold, digest
from daom.threshold import Move, ThresholdPolicy
from detectors.protocol import Detector, DriftScore, Pane


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSettings:
    """A monitored column.

    Attributes:
        name: The signal's name, that of its column unless ``column`` says otherwise.
        table: The table that the column is in.
        workload: The column that explains it: like is compared with like.
    """

    name: str
    table: Literal["requests", "steps"]
    column: str
    workload: str | None
    detector: Detector[Any]
    threshold: ThresholdPolicy


@dataclass(slots=True)
class SeriesState:
    """What is known of one series.

    Attributes:
        panes: The open ones, by number.
        judged: There has been enough to judge it at least once.
    """

    detector: Any
    panes: dict[int, Any] = field(default_factory=dict)
    threshold_s: float | None = None
    drift_since_s: float | None = None
    triggered: bool = False
    judged: bool = False
    audit_hash: str = ""


def significant(value: float) -> float:
    """Return ``value`` with six significant digits: what is published, the same on any machine."""
    return float(f"{value:.6g}")


def _maybe(value: float | None) -> float | None:
    return None if value is None else significant(value)


def judge(
    cell: str,
    series: Series,
    signal: SignalSettings,
    state: SeriesState,
    pane: Pane,
    end_s: float,
    is_surging: Callable[[], bool],
) -> tuple[Sequence[DriftScore], list[Output]]:
    """Hand a closed pane to the detector; return its scores and what they publish.

    A service that slows under a surge of requests (``is_surging``) has not changed by itself alone.
    """
    scores = [
        replace(score, attribution="mixed")
        if score.drifting and score.attribution == "service" and is_surging()
        else score
        for score in signal.detector.update(state.detector, pane, end_s)
    ]
    outputs: list[Output] = []
    for score in scores:
        state.judged = state.judged or score.drifting is not None
        if score.drifting:
            state.drift_since_s = (
                score.end_s if state.drift_since_s is None else state.drift_since_s
            )
        elif score.drifting is False:
            state.drift_since_s = None
            state.triggered = False
        move = signal.threshold(score, state.threshold_s)
        if move is not None:
            outputs.extend(_move_threshold(cell, series, state, move, score))
        outputs.append(_verdict(cell, series, state, score))
    return scores, outputs


def _move_threshold(
    cell: str, series: Series, state: SeriesState, move: Move, score: DriftScore
) -> Iterator[Output]:
    before = state.threshold_s
    after = significant(move.threshold_s)
    state.threshold_s = after
    yield SloThreshold(
        id=digest(cell, series.key, "threshold", score.end_s),
        event_time_s=score.end_s,
        cell=cell,
        series=series,
        threshold_s=after,
        previous_s=before,
        why=move.why,
    )
    what = "threshold" if score.learned is None else "reference"
    chained = digest(
        state.audit_hash, cell, series.key, what, move.why, repr(before), repr(after), score.end_s
    )
    yield AuditEntry(
        id=digest(cell, series.key, "audit", score.end_s),
        event_time_s=score.end_s,
        cell=cell,
        series=series,
        what=what,
        who="daom",
        why=move.why,
        before=before,
        after=after,
        previous_hash=state.audit_hash,
        hash=chained,
    )
    state.audit_hash = chained


def _verdict(cell: str, series: Series, state: SeriesState, score: DriftScore) -> DriftVerdict:
    return DriftVerdict(
        id=digest(cell, series.key, "verdict", score.end_s),
        event_time_s=score.end_s,
        cell=cell,
        series=series,
        samples=score.samples,
        kl_nats=_maybe(score.kl_nats),
        p99_s=_maybe(score.p99_s),
        threshold_s=state.threshold_s,
        drifting="insufficient" if score.drifting is None else score.drifting,
        why=score.why,
        direction=score.direction,
        attribution=score.attribution,
        workload_nats=_maybe(score.workload_nats),
        service_nats=_maybe(score.service_nats),
        evidence={name: significant(value) for name, value in score.evidence.items()},
    )
