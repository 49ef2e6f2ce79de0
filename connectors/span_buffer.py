"""Requests on their way from spans to batches: each counts once, and all of it is bounded.

The receiver puts rows in; the reporter's thread takes batches out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from connectors.otlp import NUMBERS, Mapped, RequestRow
from daom.bounded import put
from daom.codec import MAX_BATCH_SPAN_S
from daom.events import Record, Source, Table, TelemetryBatch, cell_of

REMEMBERED_SPANS: Final = 65_536
"""Exporters send again within minutes, or not at all."""
WAITING_ROWS: Final = 65_536
BATCH_ROWS: Final = 4_096
MAX_ENGINES: Final = 10_000


@dataclass(slots=True)
class SpanCounts:
    """What has become of the spans.

    Attributes:
        spans: All that came.
        requests: Those that became rows.
        duplicates: Requests that had come before.
        ignored: Spans that are not of a request,
        of_clients: and those of clients, where these do not count.
        rejected: Requests that could not be used.
        values_left_out: Values that cannot be a measurement.
        dropped: Rows forgotten because too many were waiting, or of too many engines.
    """

    spans: int = 0
    requests: int = 0
    duplicates: int = 0
    ignored: int = 0
    of_clients: int = 0
    rejected: int = 0
    values_left_out: int = 0
    dropped: int = 0


class _Origin(NamedTuple):
    model: str
    engine: str
    run: str


class SpanBuffer:
    """Rows in, batches by engine out.

    Args:
        receiver: Names this run of the receiver: its batches are numbered anew, although the
            engines go on.
        clock: The time at which a batch is logged, Unix seconds.
        remembered_spans: So many spans are known when they come again.
        waiting_rows: So many rows wait to be collected; then the oldest are dropped.
        cells: A model is cut into so many, by its engines' names.
    """

    def __init__(
        self,
        receiver: str,
        clock: Callable[[], float],
        *,
        remembered_spans: int = REMEMBERED_SPANS,
        waiting_rows: int = WAITING_ROWS,
        cells: int = 1,
    ) -> None:
        self._cells = cells
        self.counts = SpanCounts()
        self._receiver = receiver
        self._clock = clock
        self._remembered_spans = remembered_spans
        self._seen: dict[bytes, None] = {}
        # Only the collecting thread takes from it: an append to a full one drops by itself.
        self._rows: deque[RequestRow] = deque(maxlen=waiting_rows)
        self._next_seq: dict[_Origin, int] = {}

    def take(self, mapped: Mapped) -> None:
        """Keep the rows of an export that are new; count everything."""
        counts, rejected = self.counts, mapped.rejected.total()
        counts.spans += len(mapped.rows) + mapped.ignored + mapped.of_clients + rejected
        counts.ignored += mapped.ignored
        counts.of_clients += mapped.of_clients
        counts.rejected += rejected
        counts.values_left_out += mapped.left_out
        for row in mapped.rows:
            if self._is_known(row.span):
                counts.duplicates += 1
                continue
            counts.requests += 1
            counts.dropped += len(self._rows) == self._rows.maxlen
            self._rows.append(row)

    def _is_known(self, span: bytes | None) -> bool:
        if span is None:
            return False
        if span in self._seen:
            return True
        put(self._seen, span, None, self._remembered_spans)
        return False

    def collect(self) -> Iterator[tuple[str, Record]]:
        """Return what has come since, by cell."""
        # Only what is there now: the other thread goes on.
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        rows.sort(key=lambda row: (_origin(row), row.end_s))
        for origin, own in groupby(rows, key=_origin):
            for part in _parts(own):
                seq = self._next_seq.get(origin, 0)
                if not seq and len(self._next_seq) >= MAX_ENGINES:
                    self.counts.dropped += len(part)
                    continue
                self._next_seq[origin] = seq + 1
                batch = self._batch(origin, part, seq)
                yield cell_of(batch.source, self._cells), batch

    def _batch(self, origin: _Origin, rows: list[RequestRow], seq: int) -> TelemetryBatch:
        source = Source(
            model=origin.model,
            engine=origin.engine or None,
            boot=origin.run,
            frontend=self._receiver,
            seq=seq,
        )
        return TelemetryBatch(
            source=source,
            start_s=rows[0].end_s,
            end_s=rows[-1].end_s,
            requests=_table(rows),
            logged_s=self._clock(),
        )


def _origin(row: RequestRow) -> _Origin:
    return _Origin(row.model, row.engine or "", row.run)


def _parts(rows: Iterable[RequestRow]) -> Iterator[list[RequestRow]]:
    """Cut rows that are in order into what one batch may hold."""
    part: list[RequestRow] = []
    for row in rows:
        if part and (row.end_s - part[0].end_s > MAX_BATCH_SPAN_S or len(part) == BATCH_ROWS):
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def _table(rows: list[RequestRow]) -> Table:
    held = [name for name in NUMBERS if any(name in row.numbers for row in rows)]
    reasons = [row.finish_reason for row in rows]
    return Table(
        end_s=np.array([row.end_s for row in rows], np.float64),
        columns={
            name: np.array([row.numbers.get(name, math.nan) for row in rows], np.float32)
            for name in held
        },
        text={"finish_reason": reasons} if any(reasons) else {},
    )
