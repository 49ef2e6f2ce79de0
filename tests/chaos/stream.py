"""Telemetry of twenty engines for as long as it is needed: one recording, lap after lap."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count, groupby

import msgspec

from connectors.player import shifted
from connectors.recordings import Line, record_time_s
from daom.codec import decode, encode_json
from daom.events import Record
from tests.fleet import several_cells

MODELS = tuple(f"model-{number}" for number in range(10))
"""Each has the two engines of the recording."""
LAP_S = 2_250.0
"""A little longer than the recording."""


def slices(of_s: float, models: Collection[str] = MODELS) -> Iterator[list[Line]]:
    """Yield the telemetry of ``of_s`` seconds of event time after the other, without an end.

    In every lap the engines have another boot: they have been started anew.
    """
    lines = several_cells(models, until_s=float("inf"))
    for lap in count():
        records = (_in_lap(decode(line.value).record, lap) for line in lines)
        for _, members in groupby(records, key=lambda record: record_time_s(record) // of_s):
            yield [Line(n, encode_json(record)) for n, record in enumerate(members, start=1)]


def _in_lap(record: Record, lap: int) -> Record:
    source = msgspec.structs.replace(record.source, boot=f"lap-{lap}")
    return msgspec.structs.replace(shifted(record, lap * LAP_S), source=source)
