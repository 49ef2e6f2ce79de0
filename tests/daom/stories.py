"""Stories: the telemetry of a small fleet, told chapter by chapter, and what a cell says of it.

``outputs(story(calm(20), chapter(10, e2=slower(1.6))))`` reads: twenty calm minutes of every
engine, then ten in which ``e2`` takes 1.6 times as long. All times are event times from ``T0`` on,
and every number comes from a generator seeded by story, engine and interval, so that what one
engine does changes nothing of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import msgspec
import numpy as np

from daom.cell import CellState
from daom.config import Config
from daom.events import (
    Alert,
    ChangeEvent,
    DriftVerdict,
    Output,
    RcaTrigger,
    Record,
    Source,
    Suppression,
    Table,
    TelemetryBatch,
    Tick,
)
from daom.pipeline import Cell
from daom.presets import cell_settings

T0: Final = 1_766_000_000.0
MODEL: Final = "llama-3-8b"
ENGINES: Final = ("e1", "e2", "e3")
BATCH_S: Final = 10.0
"""One batch an engine a pane: the fewest messages that tell the story."""
SHORT_TOKENS: Final = 60.0
LONG_TOKENS: Final = 1_000.0
_SPAN_S: Final = 9.9
"""A batch ends a little before its pane does."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What an engine serves in an interval of ``BATCH_S``, and how fast.

    Attributes:
        requests: Mean number of requests that finish.
        steps: Engine steps.
        ttft: Factor on the usual time to first token; ``itl`` on that between tokens.
        tail: Factor on the slowest twentieth of both.
        long_share: Share of the requests with a long prompt, ``LONG_TOKENS`` or so.
        hit_ratio: Share of the prefix queries that hit.
        gauges: Instead of, or beside, the usual ones; None leaves one out.
    """

    requests: float = 40.0
    steps: int = 30
    ttft: float = 1.0
    itl: float = 1.0
    tail: float = 1.0
    long_share: float = 0.2
    output_tokens: float = 150.0
    hit_ratio: float = 0.8
    gauges: Mapping[str, float | None] = field(default_factory=dict)


CALM: Final = Load()


def slower(factor: float) -> Load:
    """Return the usual load, everything taking ``factor`` times as long."""
    return Load(ttft=factor, itl=factor)


@dataclass(frozen=True, slots=True)
class Chapter:
    """Minutes of one load; engines named in ``of`` have their own (None: they send nothing)."""

    minutes: float
    load: Load | None
    of: Mapping[str, Load | None]


def chapter(minutes: float, load: Load | None = CALM, **of: Load | None) -> Chapter:
    """Return ``minutes`` in which every engine has ``load``, but those in ``of`` their own."""
    return Chapter(minutes, load, of)


def calm(minutes: float) -> Chapter:
    """Return ``minutes`` in which nothing happens."""
    return chapter(minutes)


def silence(minutes: float) -> Chapter:
    """Return ``minutes`` in which no engine sends anything."""
    return chapter(minutes, None)


def at(minutes: float) -> float:
    """Return the event time ``minutes`` after the beginning."""
    return T0 + 60.0 * minutes


def source(engine: str | None, seq: int | None = None, boot: str | None = "boot-1") -> Source:
    """Return who sends for ``engine``."""
    return Source(model=MODEL, engine=engine, boot=boot, seq=seq)


def story(
    *chapters: Chapter, engines: tuple[str, ...] = ENGINES, seed: int = 1, from_minutes: float = 0.0
) -> list[Record]:
    """Return the batches of ``engines`` through ``chapters``, by time, then by engine."""
    return list(_tell(chapters, engines, seed, round(from_minutes * 60.0 / BATCH_S)))


def _tell(
    chapters: Iterable[Chapter], engines: tuple[str, ...], seed: int, interval: int
) -> Iterator[TelemetryBatch]:
    totals: dict[str, dict[str, float]] = {engine: {} for engine in engines}
    for told in chapters:
        for _ in range(round(told.minutes * 60.0 / BATCH_S)):
            for number, engine in enumerate(engines):
                load = told.of.get(engine, told.load)
                if load is not None:
                    rng = np.random.default_rng((seed, number, interval))
                    yield _batch(engine, interval, load, rng, totals[engine])
            interval += 1


def _batch(
    engine: str, interval: int, load: Load, rng: np.random.Generator, totals: dict[str, float]
) -> TelemetryBatch:
    start_s = T0 + BATCH_S * interval
    gauges = {
        "running": float(rng.poisson(12)),
        "waiting": 0.0,
        "kv_usage": 0.4 + 0.02 * float(rng.standard_normal()),
        **_counted(load, rng, totals),
        **load.gauges,
    }
    return TelemetryBatch(
        source=source(engine, seq=interval),
        start_s=start_s,
        end_s=start_s + _SPAN_S,
        requests=_requests(start_s, load, rng),
        steps=_steps(start_s, load, rng),
        gauges={name: value for name, value in gauges.items() if value is not None},
    )


def _counted(load: Load, rng: np.random.Generator, totals: dict[str, float]) -> dict[str, float]:
    """Count one interval more; return how the counters stand."""
    queries = float(rng.poisson(400))
    hits = float(rng.binomial(int(queries), load.hit_ratio))
    for name, value in (("prefix_queries_total", queries), ("prefix_hits_total", hits)):
        totals[name] = totals.get(name, 0.0) + value
    return dict(totals)


def _requests(start_s: float, load: Load, rng: np.random.Generator) -> Table:
    rows = int(rng.poisson(load.requests))
    about = np.where(rng.uniform(size=rows) < load.long_share, LONG_TOKENS, SHORT_TOKENS)
    prompt = np.ceil(about * rng.lognormal(0.0, 0.25, rows))
    output = np.ceil(load.output_tokens * rng.lognormal(0.0, 0.5, rows))
    ttft_s = load.ttft * (0.02 + prompt / 20_000.0) * _spread(rng, rows, 0.25, load.tail)
    e2e_s = ttft_s + load.itl * 0.02 * output * rng.lognormal(0.0, 0.1, rows)
    return table(
        np.sort(rng.uniform(start_s, start_s + _SPAN_S, rows)),
        prompt_tokens=prompt,
        output_tokens=output,
        ttft_s=ttft_s,
        e2e_s=e2e_s,
    )


def _steps(start_s: float, load: Load, rng: np.random.Generator) -> Table:
    running = rng.poisson(12, load.steps)
    return table(
        np.sort(rng.uniform(start_s, start_s + _SPAN_S, load.steps)),
        itl_s=load.itl * 0.02 * _spread(rng, load.steps, 0.2, load.tail),
        running=running,
        tokens=running,
    )


def _spread(rng: np.random.Generator, rows: int, sigma: float, tail: float) -> np.ndarray:
    normal = rng.standard_normal(rows)
    return np.exp(sigma * normal) * np.where(normal > 1.645, tail, 1.0)


def table(end_s: Iterable[float], **columns: Iterable[float]) -> Table:
    """Return rows at ``end_s`` with ``columns``."""
    times = np.asarray(end_s, np.float64)
    return Table(
        end_s=times, columns={name: np.asarray(v, np.float32) for name, v in columns.items()}
    )


def batch(
    engine: str | None, start_s: float, end_s: float | None = None, **fields: object
) -> TelemetryBatch:
    """Return one batch of ``engine``, not numbered unless ``source`` is among ``fields``."""
    last_s = start_s if end_s is None else end_s
    values = {"source": source(engine, boot=None), "start_s": start_s, "end_s": last_s, **fields}
    return TelemetryBatch(**values)


def tick(time_s: float) -> Tick:
    """Return real time as a record."""
    return Tick(source=Source(model=MODEL), time_s=time_s)


def change(kind: str, time_s: float, engine: str | None = None, **fields: object) -> ChangeEvent:
    """Return the announcement of a change."""
    return ChangeEvent(source=source(engine, boot=None), time_s=time_s, kind=kind, **fields)


def ahead(record: TelemetryBatch, by_s: float) -> TelemetryBatch:
    """Return ``record`` as a clock that is ``by_s`` ahead would have stamped it."""
    tables = {
        name: msgspec.structs.replace(rows, end_s=rows.end_s + by_s)
        for name, rows in (("requests", record.requests), ("steps", record.steps))
    }
    return msgspec.structs.replace(
        record, start_s=record.start_s + by_s, end_s=record.end_s + by_s, **tables
    )


def by_time(*stories: Iterable[Record]) -> list[Record]:
    """Return the records of all ``stories`` in the order of their times."""
    records = [record for told in stories for record in told]
    return sorted(records, key=lambda r: r.end_s if isinstance(r, TelemetryBatch) else r.time_s)


def new_cell(
    config: Config | None = None, state: CellState | None = None, name: str = MODEL
) -> Cell:
    """Return a cell of the model that has seen nothing, or goes on from ``state``."""
    return Cell(name, MODEL, cell_settings(config or Config()), state)


def told(cell: Cell, records: Iterable[Record]) -> list[Output]:
    """Return what ``records`` make ``cell`` say."""
    return [output for record in records for output in cell.step(record)]


def outputs(records: Iterable[Record], config: Config | None = None) -> list[Output]:
    """Return what a new cell says of ``records``."""
    return told(new_cell(config), records)


LEARNED_MINUTES: Final = 15.0


@cache
def _learned_state(engines: tuple[str, ...]) -> CellState:
    cell = new_cell()
    told(cell, story(calm(LEARNED_MINUTES), engines=engines))
    return cell.state


def learned_cell(engines: tuple[str, ...] = ENGINES) -> Cell:
    """Return a cell that ``LEARNED_MINUTES`` calm minutes have taught what is usual."""
    return new_cell(state=deepcopy(_learned_state(engines)))


def from_here(*chapters: Chapter, engines: tuple[str, ...] = ENGINES) -> list[Record]:
    """Return the batches of ``chapters`` that follow those which a learned cell has seen."""
    records = story(calm(LEARNED_MINUTES), *chapters, engines=engines)
    return [record for record in records if record.start_s >= at(LEARNED_MINUTES)]


def after_learning(*chapters: Chapter, engines: tuple[str, ...] = ENGINES) -> list[Output]:
    """Return what a cell that has learned says of ``chapters``."""
    return told(learned_cell(engines), from_here(*chapters, engines=engines))


def alerts(outputs: Iterable[Output], state: str | None = None) -> list[Alert]:
    """Return the alerts, those in ``state`` if given."""
    return [o for o in outputs if isinstance(o, Alert) and state in {None, o.state}]


def moved(outputs: Iterable[Output], signal: str | None = None) -> list[Alert]:
    """The alerts that fired or resolved, those on ``signal`` if given."""
    chosen = [a for a in alerts(outputs) if a.state != "pending"]
    return [a for a in chosen if signal in {None, a.labels.get("signal")}]


def verdicts(outputs: Iterable[Output], signal: str | None = None) -> list[DriftVerdict]:
    """Return the verdicts, those on ``signal`` if given."""
    return [o for o in outputs if isinstance(o, DriftVerdict) and signal in {None, o.series.signal}]


def triggers(outputs: Iterable[Output]) -> list[RcaTrigger]:
    """Return the root-cause triggers."""
    return [o for o in outputs if isinstance(o, RcaTrigger)]


def rules(outputs: Iterable[Output]) -> set[tuple[str, str, str]]:
    """Return what was muted: rule, engine (``*``: the fleet) and signal."""
    return {
        (o.rule, o.labels.get("engine", "*"), o.labels.get("signal", ""))
        for o in outputs
        if isinstance(o, Suppression)
    }


def briefly(alerts: Iterable[Alert]) -> list[tuple[str, str, str, str]]:
    """Return of each alert its name, engine (``*``: the fleet), signal and state."""
    return [
        (a.name, a.labels.get("engine", "*"), a.labels.get("signal", ""), a.state) for a in alerts
    ]


def plain(record: Record) -> object:
    """Return ``record`` as plain data that compares by value; what was not measured is None."""
    if isinstance(record, TelemetryBatch):
        tables = {name: _plain_table(getattr(record, name)) for name in ("requests", "steps")}
        return msgspec.structs.asdict(record) | tables
    return record


def _plain_table(told: Table) -> dict[str, object]:
    columns = {
        name: [None if np.isnan(v) else v for v in values.tolist()]
        for name, values in told.columns.items()
    }
    return {"end_s": told.end_s.tolist(), **columns, **told.text}


def plain_floats(output: Output) -> list[float]:
    """Return every float in ``output``, however deep."""
    return list(_floats(msgspec.to_builtins(output)))


def _floats(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _floats(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _floats(inner)
