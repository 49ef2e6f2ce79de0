"""How much may be held and taken: whatever a producer invents, a worker stays bounded.

A limit on one record refuses that record. A limit on what is remembered refuses what is *new*: what
is known goes on as if nothing had happened. Both are faults of the record, which say which limit it
was, so that they are dead-lettered, counted, and raise an alert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

LimitName = Literal[
    "cells",
    "engines",
    "quantities",
    "changes",
    "message_bytes",
    "columns",
    "rows",
    "gpus",
    "buckets",
    "name_chars",
    "detail_chars",
]
LIMIT_WORDS: Final[dict[LimitName, str]] = {
    "cells": "cells of a partition",
    "engines": "engines of a cell",
    "quantities": "gauges and GPU readings of an engine",
    "changes": "changes and maintenance windows to come",
    "message_bytes": "bytes of a message",
    "columns": "names of a map",
    "rows": "rows of a table",
    "gpus": "GPUs of a sample",
    "buckets": "buckets of a histogram",
    "name_chars": "characters of a name",
    "detail_chars": "characters of a change's version or detail",
}
"""What each limit counts, for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much at most.

    Attributes:
        cells: Cells of a partition.
        engines: Engines of a cell.
        quantities: Gauges and GPU readings of an engine, by name.
        changes: Changes and maintenance windows of a cell that are still to take effect or to end.
        columns: Columns of a table, gauges of a batch, histograms of a batch, numbers of a GPU.
        rows: Rows of a table.
        name_chars: Characters of a name: a model, an engine, a column.
    """

    cells: int = 1_000
    engines: int = 2_000
    quantities: int = 128
    changes: int = 64
    columns: int = 64
    rows: int = 100_000
    name_chars: int = 200


DEFAULT_LIMITS: Final = Limits()


@dataclass(slots=True)
class LimitHit:
    """How often a limit has been hit of late. Times are event times.

    Attributes:
        last_s: When it was hit last.
        count: Records since it has been hit without a pause.
        allowed: What the limit was.
        latest: What the newest was refused for.
    """

    last_s: float
    count: int = 0
    allowed: int = 0
    latest: str = ""
