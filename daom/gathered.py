"""The samples of both sides of a comparison, gathered in one pass and in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daom.codec import DEFAULT_MAX_BYTES, decode
from daom.config import Config, SignalConfig
from daom.errors import ConfigError, MalformedRecord
from daom.events import ChangeEvent, Table, TelemetryBatch
from daom.intake import Intake
from daom.labels import Moment
from daom.limits import DEFAULT_LIMITS, Limits
from daom.replay import Sourced
from detectors.blocks import Blocks

TableName = Literal["requests", "steps"]
_TABLES: Final[tuple[TableName, ...]] = ("requests", "steps")
_MAX_NAMES: Final = 1_000
"""So many models, engines and versions are remembered, to be named to whoever asks for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A column to compare, ``name`` being what the user calls it."""

    name: str
    table: TableName
    column: str
    workload: str | None = None
    workload_part: str | None = None
    workload_base: float | None = None

    @property
    def key(self) -> str:
        """Its table and its name."""
        return f"{self.table}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows are a side's. None: any. Times are event times, the end not included."""

    model: str | None = None
    engine: str | None = None
    version: str | None = None
    since: Moment | None = None
    until: Moment | None = None


class Seen(NamedTuple):
    """The names that a source holds."""

    model: set[str]
    engine: set[str]
    version: set[str]


@dataclass(slots=True, eq=False)
class Gathered:
    """One side.

    Attributes:
        name: What it is called; source: what it is read from.
        models: By model and measure, its samples.
        requests: Finished requests of each model.
        seen: What its source holds, chosen or not.
        buckets: Columns that came as bucket counts.
        first_s: From when its source goes, event time; None: it holds no batch.
    """

    name: str
    source: str
    selection: Selection
    measures: Sequence[Measure]
    models: dict[str, dict[str, Blocks]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    seen: Seen = field(default_factory=lambda: Seen(set(), set(), set()))
    buckets: set[str] = field(default_factory=set)
    first_s: float | None = None

    def take(self, batch: TelemetryBatch, version: str | None) -> None:
        """Take what of ``batch`` is this side's."""
        source, chosen = batch.source, self.selection
        start_s = batch.start_s if self.first_s is None else self.first_s
        self.first_s = min(start_s, batch.start_s)
        for names, name in zip(self.seen, (source.model, source.engine_name, version), strict=True):
            if name is not None and len(names) < _MAX_NAMES:
                names.add(name)
        wanted = (
            chosen.model in {None, source.model}
            and chosen.engine in {None, source.engine_name}
            and chosen.version in {None, version}
        )
        if not wanted or (source.model not in self.models and len(self.models) >= _MAX_NAMES):
            return
        self.buckets.update(batch.histograms)
        requests = self._inside(batch.requests.end_s, start_s)
        self.requests[source.model] += int(requests.sum())
        self._add(source.model, "requests", batch.requests, requests)
        self._add(source.model, "steps", batch.steps, self._inside(batch.steps.end_s, start_s))

    def _inside(self, end_s: NDArray[np.float64], start_s: float) -> NDArray[np.bool_]:
        """Return which rows are in the time that was chosen."""
        inside = np.ones(end_s.size, np.bool_)
        if self.selection.since is not None:
            inside &= end_s >= self.selection.since.at(start_s)
        if self.selection.until is not None:
            inside &= end_s < self.selection.until.at(start_s)
        return inside

    def _add(self, model: str, name: TableName, table: Table, inside: NDArray[np.bool_]) -> None:
        if not inside.any():
            return
        rows = slice(None) if inside.all() else inside
        of_model = self.models.setdefault(model, {})
        for measure in self.measures:
            values = table.columns.get(measure.column) if measure.table == name else None
            if values is None:
                continue
            blocks = of_model.get(measure.key)
            if blocks is None:
                blocks = of_model[measure.key] = Blocks(measure.workload_base)
            columns = (measure.workload, measure.workload_part)
            found = (table.columns.get(column) if column else None for column in columns)
            chosen = (None if column is None else column[rows] for column in found)
            blocks.add(values[rows], table.end_s[rows], *chosen)


def gather(
    values: Iterable[Sourced],
    sides: Sequence[Gathered],
    faults: Counter[str],
    limits: Limits = DEFAULT_LIMITS,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> None:
    """Hand every batch of a source, each once, to the ``sides`` that are made of it.

    What could not be used is counted in ``faults``, by kind. A batch without a version has that of
    the newest deployment of its engine, or of its model.
    """
    intakes: dict[tuple[str, str], Intake] = {}
    versions: dict[tuple[str, str | None], str | None] = {}
    for sourced in values:
        try:
            record, found = decode(
                sourced.value, logged_s=sourced.logged_s, max_bytes=max_bytes, limits=limits
            )
        except MalformedRecord as error:
            faults[error.kind] += 1
            continue
        faults.update(fault.kind for fault in found)
        source = record.source
        if isinstance(record, ChangeEvent) and record.kind == "deploy" and record.version:
            if source.engine is None:
                versions = {key: v for key, v in versions.items() if key[0] != source.model}
            versions[source.model, source.engine] = record.version
        if not isinstance(record, TelemetryBatch):
            continue
        intake = intakes.setdefault((source.model, source.engine_name), Intake())
        if intake.see(*source.numbering) == "duplicate":
            continue
        deployed = versions.get((source.model, None))
        version = source.version or versions.get((source.model, source.engine), deployed)
        for side in sides:
            side.take(record, version)


def measures_of(
    config: Config, further: Collection[str], only: Collection[str] = ()
) -> list[Measure]:
    """Return the configured signals and the ``further`` columns, or those of ``only``.

    A column that is no signal and does not name its table may be in either.
    """
    signals = {name: _of_signal(name, signal) for name, signal in config.signals.items()}
    names = dict.fromkeys((*only, *further) if only else (*signals, *further))
    found: list[Measure] = []
    for name in names:
        table, _, column = name.partition(".")
        if name in signals:
            found.append(signals[name])
        elif table in _TABLES and column:
            where: TableName = "requests" if table == "requests" else "steps"
            found.append(Measure(name=name, table=where, column=column))
        elif "." in name:
            raise ConfigError(
                f"{name}: got the table {table!r}; it is requests or steps: requests.{column}"
            )
        else:
            found.extend(Measure(name=name, table=table, column=name) for table in _TABLES)
    return found


def _of_signal(name: str, signal: SignalConfig) -> Measure:
    return Measure(
        name=name,
        table=signal.table,
        column=signal.column or name,
        workload=signal.workload,
        workload_part=signal.workload_part,
        workload_base=signal.workload_base if signal.workload else None,
    )


def unknown_name(side: Gathered) -> str | None:
    """Return what of a side's selection its source does not hold, in words; None if it has it."""
    chosen: Mapping[str, str | None] = {
        "model": side.selection.model,
        "engine": side.selection.engine,
        "version": side.selection.version,
    }
    for what, name in chosen.items():
        names: set[str] = getattr(side.seen, what)
        if name is not None and name not in names:
            there = ", ".join(sorted(names)) or "none"
            return f"{side.source} has no {what} {name!r}; it has {there}"
    return None
