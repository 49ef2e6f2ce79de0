"""One series: its open panes, its detector's state, the threshold in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from daom.events import AuditEntry, DriftVerdict, Output, Series, SloThreshold, digest
from daom.threshold import Move, ThresholdPolicy
from detectors.peers import Peers
from detectors.protocol import Detector, DriftScore, Pane

_MOSTLY_KNOWN: Final = 0.5
IN_FLIGHT: Final = frozenset({"running", "waiting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSettings:
    """A monitored column.

    Attributes:
        name: The signal's name, that of its column unless ``column`` says otherwise.
        table: The table that the column is in.
        workload: The column that explains it: like is compared with like,
        workload_part: and the one that says which part of that costs little.
        peers: Compares the engines with one another; None: they are not.
        ceiling_s: P99 may not be above this, drift or no drift; None: no limit.
        takes_buckets: Its detector's panes take bucket counts too (``detectors.buckets``).
    """

    name: str
    table: Literal["requests", "steps"]
    column: str
    workload: str | None
    workload_part: str | None
    detector: Detector[Any]
    threshold: ThresholdPolicy
    peers: Peers | None = None
    ceiling_s: float | None = None
    takes_buckets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounding:
    """What is known around a series when it is judged.

    Attributes:
        n_series: How many series share the false alarms that are allowed.
        surges: Whether far more requests arrive than usual.
        arrivals_rise: Whether more arrive than usual; None where it is not known.
        evidence: Further numbers for its verdict.
    """

    n_series: int
    surges: Callable[[], bool]
    arrivals_rise: Callable[[], bool | None]
    evidence: Mapping[str, float] = field(default_factory=dict)


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
    around: Surrounding,
) -> tuple[Sequence[DriftScore], list[Output]]:
    """Hand a closed pane to the detector; return its scores and what they publish."""
    found = signal.detector.update(state.detector, pane, end_s, series=around.n_series)
    scores = [_attributed(score, signal, around) for score in found]
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
        told = replace(score, evidence=score.evidence | dict(around.evidence))
        outputs.append(_verdict(cell, series, state, told))
    return scores, outputs


def _attributed(score: DriftScore, signal: SignalSettings, around: Surrounding) -> DriftScore:
    """Return ``score`` with the attribution that the traffic bears out.

    A service that slows under a surge of requests has not changed by itself alone. And where the
    workload is the number of requests in flight, that number rises, by Little's law, just as well
    because each takes longer: without more arrivals, and of batches that are fuller than any the
    reference knows, nobody can say which it was.
    """
    if score.drifting and score.attribution == "service" and around.surges():
        return replace(score, attribution="mixed")
    is_load = signal.workload in IN_FLIGHT and score.attribution == "workload"
    unknown = score.evidence.get("judged_share", 1.0) < _MOSTLY_KNOWN
    if is_load and unknown and around.arrivals_rise() is False:
        return replace(score, attribution="mixed")
    return score


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


def unresolved(evidence: Mapping[str, float]) -> str | None:
    """Return in words what keeps P99 from being known exactly; None if nothing does.

    Its bucket (``detectors.buckets``), or a cap that hides the tail (``detectors.saturation``).
    """
    from_s, to_s = evidence.get("bucket_from_s"), evidence.get("bucket_to_s")
    if from_s is not None:
        where = f"beyond {from_s:.6g} s, the largest edge"
        if to_s is not None:
            where = f"between {from_s:.6g} s and {to_s:.6g} s"
        return f"resolution limited by buckets: P99 is {where}"
    share = evidence.get("saturated_share")
    if share is None:
        return None
    return (
        f"P99 is saturated: {share:.1%} of the samples are exactly "
        f"{evidence['saturated_at_s']:.6g} s, the largest: it is that or more"
    )


def _verdict(cell: str, series: Series, state: SeriesState, score: DriftScore) -> DriftVerdict:
    # Behind a cap P99 may have moved or not: that no drift is seen does not say that all is calm.
    is_capped = "saturated_share" in score.evidence
    says_nothing = score.drifting is None or (is_capped and not score.drifting)
    return DriftVerdict(
        id=digest(cell, series.key, "verdict", score.end_s),
        event_time_s=score.end_s,
        cell=cell,
        series=series,
        samples=score.samples,
        kl_nats=_maybe(score.kl_nats),
        p99_s=_maybe(score.p99_s),
        threshold_s=state.threshold_s,
        drifting="insufficient" if says_nothing else bool(score.drifting),
        why=score.why or unresolved(score.evidence),
        direction=score.direction,
        attribution=score.attribution,
        workload_nats=_maybe(score.workload_nats),
        service_nats=_maybe(score.service_nats),
        evidence={name: significant(value) for name, value in score.evidence.items()},
    )
