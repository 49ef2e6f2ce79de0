"""The messages: what goes into a cell and what comes out of it.

Inputs are the records of the telemetry topic; outputs are the verdicts, thresholds, alerts,
suppressions, root-cause triggers and audit entries of one cell. Names carry units: ``_s`` is
seconds, ``_nats`` natural units of information, ``_total`` a counter since the producer's start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, NDArray[np.float32]]
ChangeKind = Literal[
    "deploy", "config", "lora", "restart", "scale", "stop", "maintenance", "accept", "other"
]
AlertState = Literal["pending", "firing", "resolved"]
Attribution = Literal["service", "workload", "mixed", "none"]
Direction = Literal["slower", "faster", "none"]


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who sent a record. ``boot`` names a run of the probe, ``seq`` counts its records.

    An engine that several processes serve has a ``frontend`` for each: they share its boot, and
    each counts for itself. ``cell`` is for recordings, which have no key: the cell that the log
    filed the record under; on a topic the key says so, whatever is here.
    """

    model: str
    engine: str | None = None
    version: str | None = None
    boot: str | None = None
    frontend: str | None = None
    seq: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    tenant: str | None = None
    lora: str | None = None
    region: str | None = None
    host: str | None = None
    cell: str | None = None

    @property
    def engine_name(self) -> str:
        """What its cell knows the engine by: one without a name has its model's."""
        return self.engine or self.model

    @property
    def names(self) -> tuple[str, ...]:
        """Every word in it."""
        words = (self.model, self.engine, self.version, self.boot, self.frontend)
        more = (self.tenant, self.lora, self.region, self.host, self.cell)
        return tuple(word for word in words + more if word is not None)

    @property
    def numbering(self) -> tuple[str | None, int | None, str | None]:
        """What tells a record that is sent twice: boot, seq, frontend."""
        return self.boot, self.seq, self.frontend


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one kind as columns of one length.

    Attributes:
        end_s: Event time of each row, Unix seconds, float64, shape ``(rows,)``.
        columns: Numeric columns, float32, shape ``(rows,)`` each; NaN means not measured.
        text: Columns of words, such as ``finish_reason``.
    """

    end_s: NDArray[np.float64]
    columns: Columns
    text: Mapping[str, list[str | None]] = {}

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.end_s.size)


EMPTY_TABLE = Table(end_s=np.empty(0, np.float64), columns={})


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine counted by buckets since the batch before.

    Attributes:
        le_s: Upper edge of each bucket, seconds, ascending, float64, shape ``(buckets,)``; the last
            may be infinite. The lower edge of the first is 0.
        counts: Samples in each, int64, the same shape.
    """

    le_s: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def total(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())


class TelemetryBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's samples of one short interval.

    ``start_s`` and ``end_s`` span all rows: the decoder sees to it. ``histograms`` are by the name
    of the column that they stand for: counts from an engine whose samples nobody can see.
    """

    source: Source
    start_s: float
    end_s: float
    requests: Table = EMPTY_TABLE
    steps: Table = EMPTY_TABLE
    gauges: Mapping[str, float] = {}
    histograms: Mapping[str, Histogram] = {}
    logged_s: float | None = None


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of an engine's or a host's GPUs: a mapping of numbers for each GPU."""

    source: Source
    time_s: float
    gpus: tuple[Mapping[str, float | str], ...] = ()
    logged_s: float | None = None


class ChangeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody changed something: the first thing to look at when latency drifts after it.

    ``accept`` says that what is there now is normal.
    """

    source: Source
    time_s: float
    kind: ChangeKind
    version: str | None = None
    detail: str | None = None
    until_s: float | None = None
    logged_s: float | None = None

    def words(self) -> str:
        """Return what was changed, for a person: ``deploy 2026-11-30 new kernels``."""
        return " ".join(word for word in (self.kind, self.version, self.detail) if word)


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Real time, as a record: the cell's owner appends it when the cell has fallen silent."""

    source: Source
    time_s: float
    logged_s: float | None = None


Record = TelemetryBatch | GpuSample | ChangeEvent | Tick


class Series(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What a verdict is about: a signal of one engine, or of the whole fleet (engine None)."""

    model: str
    engine: str | None
    signal: str

    @property
    def key(self) -> str:
        """Key of the series on Kafka, readable in any tool."""
        return f"{self.model}|{self.engine or '*'}|{self.signal}"


class DriftVerdict(msgspec.Struct, frozen=True, kw_only=True, tag="verdict"):
    """What one cycle says of one series.

    ``drifting`` is true or false only where there was enough to say; else it is
    ``"insufficient"`` and ``why`` says what is missing.
    """

    id: str
    event_time_s: float
    cell: str
    series: Series
    samples: int
    kl_nats: float | None
    p99_s: float | None
    threshold_s: float | None
    drifting: bool | Literal["insufficient"]
    why: str | None = None
    direction: Direction = "none"
    attribution: Attribution = "none"
    workload_nats: float | None = None
    service_nats: float | None = None
    evidence: Mapping[str, float] = {}


class SloThreshold(msgspec.Struct, frozen=True, kw_only=True, tag="threshold"):
    """The P99 threshold now in force, and why it moved."""

    id: str
    event_time_s: float
    cell: str
    series: Series
    threshold_s: float
    previous_s: float | None
    why: str


class Alert(msgspec.Struct, frozen=True, kw_only=True, tag="alert"):
    """One alert in one of its states; its identity is its label set alone."""

    id: str
    event_time_s: float
    cell: str
    fingerprint: str
    name: str
    labels: Mapping[str, str]
    state: AlertState
    started_s: float
    attribution: Attribution = "none"
    annotations: Mapping[str, str] = {}


class Suppression(msgspec.Struct, frozen=True, kw_only=True, tag="suppression"):
    """An alert that was not raised, the rule that muted it, and until when."""

    id: str
    event_time_s: float
    cell: str
    fingerprint: str
    name: str
    labels: Mapping[str, str]
    rule: str
    why: str
    until_s: float | None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One possible cause, how well the evidence supports it (0 to 1), and that evidence."""

    cause: str
    score: float
    evidence: tuple[str, ...]


class RcaTrigger(msgspec.Struct, frozen=True, kw_only=True, tag="rca"):
    """Where to look first: causes ranked by evidence, or the single cause ``unknown``."""

    id: str
    event_time_s: float
    cell: str
    fingerprint: str
    name: str
    labels: Mapping[str, str]
    onset_s: float
    causes: tuple[Cause, ...]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, tag="audit"):
    """A change of a threshold or a reference, chained to the one before by its hash."""

    id: str
    event_time_s: float
    cell: str
    series: Series
    what: str
    who: str
    why: str
    before: float | None
    after: float | None
    previous_hash: str
    hash: str


Output = DriftVerdict | SloThreshold | Alert | Suppression | RcaTrigger | AuditEntry


def digest(*parts: str | float) -> str:
    """Return a 128-bit id of ``parts``, the same on every machine and in every run."""
    joined = "\x1f".join(repr(part) if isinstance(part, float) else part for part in parts)
    return hashlib.blake2b(joined.encode(), digest_size=16).hexdigest()


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return the identity of an alert: its label set, whatever the order."""
    return digest(*(f"{name}={labels[name]}" for name in sorted(labels)))


def cell_of(source: Source, cells: int) -> str:
    """Return the key of the cell of ``source``, of a model that is cut into ``cells``."""
    if cells == 1:
        return source.model
    return f"{source.model}/{crc32(source.engine_name.encode()) % cells}"


def is_cell_of(key: str, model: str) -> bool:
    """Return whether ``key`` names a cell of ``model``: ``model``, or ``model/n``."""
    if key == model:
        return True
    prefix, _, number = key.rpartition("/")
    return prefix == model and number.isdecimal()
