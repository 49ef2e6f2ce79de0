"""What of a record a cell takes, so that it stays bounded whatever names producers invent.

What is known goes on; what is new is taken while there is room. So a producer that invents names
silences nobody who was there before it: its records do not move the clock, open no pane and count
for no series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from daom.cell import CellState
from daom.context import ContextState, gpu_quantity
from daom.errors import MalformedRecord
from daom.events import ChangeEvent, GpuSample, Record, TelemetryBatch
from daom.limit_conditions import note_hit
from daom.limits import LIMIT_WORDS, LimitName, Limits

_NAMED = 3
"""Of what is left out so many are named: a fault is read by people."""


class Admitted(NamedTuple):
    """What is to be folded of a record, None if nothing is; and what was left out, if any was."""

    record: Record | None
    fault: MalformedRecord | None


def admit(state: CellState, record: Record, limits: Limits) -> Admitted:
    """Return what of ``record`` there is room for; note in ``state`` what there is not."""
    match record:
        case TelemetryBatch():
            admitted = _admit_batch(state, record, limits)
        case GpuSample():
            admitted = _admit_gpus(state, record, limits)
        case ChangeEvent():
            admitted = _admit_change(state, record, limits)
        case _:
            return Admitted(record, None)
    if admitted.fault is not None:
        note(state, admitted.fault)
    return admitted


def note(state: CellState, fault: MalformedRecord) -> None:
    """Note in ``state`` that a record was beyond a limit; another fault is none of its business."""
    now_s = state.clock.now_s
    if fault.limit is not None and now_s is not None:
        note_hit(state.limits, fault.limit, fault.allowed, str(fault), now_s)


def _admit_batch(state: CellState, batch: TelemetryBatch, limits: Limits) -> Admitted:
    name = batch.source.engine_name
    engine = state.engines.get(name)
    if engine is None and len(state.engines) >= limits.engines:
        return Admitted(None, _beyond("engines", limits.engines, "source.engine", [name]))
    context = ContextState() if engine is None else engine.context
    refused = _without_room(context, batch.gauges, limits.quantities)
    if not refused:
        return Admitted(batch, None)
    kept = {n: value for n, value in batch.gauges.items() if n not in refused}
    fault = _beyond("quantities", limits.quantities, "gauges", refused)
    return Admitted(msgspec.structs.replace(batch, gauges=kept), fault)


def _admit_gpus(state: CellState, sample: GpuSample, limits: Limits) -> Admitted:
    names = dict.fromkeys(gpu_quantity(name) for gpu in sample.gpus for name in gpu)
    refused = list(
        dict.fromkeys(
            name
            for engine in state.engines_of(sample.source)
            for name in _without_room(engine.context, names, limits.quantities)
        )
    )
    if not refused:
        return Admitted(sample, None)
    kept = tuple(
        {name: value for name, value in gpu.items() if gpu_quantity(name) not in refused}
        for gpu in sample.gpus
    )
    fault = _beyond("quantities", limits.quantities, "gpus", refused)
    return Admitted(msgspec.structs.replace(sample, gpus=kept), fault)


def _admit_change(state: CellState, change: ChangeEvent, limits: Limits) -> Admitted:
    waiting = state.desk.maintenance if change.kind == "maintenance" else state.renewals
    if len(waiting) < limits.changes:
        return Admitted(change, None)
    return Admitted(None, _beyond("changes", limits.changes, "kind", [change.kind]))


def _without_room(context: ContextState, names: Iterable[str], at_most: int) -> list[str]:
    """Return those of ``names`` that are new to an engine which knows ``at_most``."""
    new = [name for name in names if not context.knows(name)]
    return new[max(0, at_most - context.size()) :] if new else []


def _beyond(limit: LimitName, allowed: int, field: str, names: Sequence[str]) -> MalformedRecord:
    named = ", ".join(repr(name) for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    reason = f"got {named}{more}, beyond the {allowed} {LIMIT_WORDS[limit]} allowed; left out"
    return MalformedRecord("limit", field, reason, limit=limit, allowed=allowed)
