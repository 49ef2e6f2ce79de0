"""What the circumstances of engines say: alerts of their own, remarks on drifts, and evidence.

See ``daom.gpu_conditions`` and ``daom.data_quality`` for what is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from daom.conditions import MEASUREMENT_CHANGE
from daom.context import ContextState, mean_shifts, newcomers
from daom.data_quality import (
    STEP_GAP_SIGNAL,
    doubts,
    has_measurement_jumped,
    measurement_condition,
)
from daom.engine import EngineState
from daom.events import ChangeEvent
from daom.gpu_conditions import throttle_condition
from daom.lifecycle import AlertLife, Condition
from daom.root_cause import CHANGE_WINDOW_S, NEW_S, Evidence
from detectors.protocol import DriftScore

DATA_QUALITY: Final = "data_quality"
_LOAD: Final = ("arrivals_per_s", "running", "waiting")
_LOAD_PANES: Final = 6


def circumstance_conditions(name: str, engine: EngineState, pane_s: float) -> Iterator[Condition]:
    """Yield what can be said of an engine's GPUs, and of what it measures."""
    for say in (throttle_condition, measurement_condition):
        condition = say(name, engine, pane_s)
        if condition is not None:
            yield condition


def remarks(
    contexts: Sequence[ContextState],
    signal: str,
    score: DriftScore,
    changes: Iterable[ChangeEvent],
    pane_s: float,
) -> dict[str, str]:
    """Return annotations for the drift of ``signal``: its load, what to doubt, whether it is one.

    What jumps while all else stays was measured otherwise only if somebody changed something.
    """
    if not score.drifting:
        return {}
    found = [words for name in _LOAD if (words := _usual_and_now(contexts, name))]
    said = {"load": ", ".join(found)} if found else {}
    if doubtful := doubts(contexts):
        said[DATA_QUALITY] = "; ".join(doubtful)
    changed = any(
        change.kind != "maintenance" and abs(score.end_s - change.time_s) <= CHANGE_WINDOW_S
        for change in changes
    )
    if changed and _has_jumped(contexts, signal, pane_s):
        said[MEASUREMENT_CHANGE] = "(e2e - ttft) / (tokens - 1) of the requests has not moved"
    return said


def evidence_for(
    condition: Condition,
    onset_s: float,
    panes: int,
    engines: Mapping[str, EngineState],
    changes: Iterable[ChangeEvent],
    lives: Iterable[AlertLife],
    pane_s: float,
) -> Evidence:
    """Return what is known about ``condition``, which began ``panes`` panes ago at ``onset_s``."""
    names = [name for name in engines if condition.engine in {name, None}]
    contexts = [engines[name].context for name in names]
    signal = condition.signal or ""
    drifting = {
        life.engine for life in lives if life.drifting and life.engine and life.signal == signal
    }
    new = newcomers({name: e.context for name, e in engines.items()}, panes + NEW_S / pane_s)
    return Evidence(
        signal=signal,
        onset_s=onset_s,
        attribution=condition.attribution,
        shifts=mean_shifts(contexts, panes),
        changes=[change for change in changes if change.source.engine in {None, *names}],
        engines=len(engines),
        drifting_engines=len(drifting),
        measurement_jumped=_has_jumped(contexts, signal, pane_s),
        newcomers=[name for name in new if name in names] if drifting.issubset(new) else [],
    )


def _has_jumped(contexts: Sequence[ContextState], signal: str, pane_s: float) -> bool:
    return signal == STEP_GAP_SIGNAL and has_measurement_jumped(contexts, pane_s)


def _usual_and_now(contexts: Sequence[ContextState], name: str) -> str | None:
    """Return how a quantity was and is, its mean over the engines that report it."""
    levels = [context.levels[name] for context in contexts if name in context.levels]
    if not levels:
        return None
    usual = sum(level.usual for level in levels) / len(levels)
    newest = [value for level in levels for value in level.recent[-_LOAD_PANES:]]
    return f"{name} {usual:.3g} -> {sum(newest) / len(newest):.3g}"
