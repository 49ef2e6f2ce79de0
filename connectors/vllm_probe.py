"""The probe in a vLLM API process: takes references to statistics, and reports from a thread.

``record`` runs in vLLM's event loop, once a step, between the outputs and their way to the clients:
each microsecond in it is one of every stream's latency, and an exception ends serving. So all it
does is to append to a bounded queue. The thread wakes a few times a second, works through what
is there in small portions and lets go of the interpreter's lock after each.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from connectors.probe_settings import ProbeSettings, read_probe_settings
from connectors.reporter import Reporter
from connectors.vllm_config import describe_config
from connectors.vllm_gpus import EngineGpus, Values, gpus_an_engine
from connectors.vllm_stats import EngineStats
from daom.codec import MAX_BATCH_SPAN_S
from daom.errors import ConfigError
from daom.events import ChangeEvent, ChangeKind, GpuSample, Record, Source, cell_of

Taken = tuple[int, Any, Any]
"""Engine, SchedulerStats, IterationStats."""

_MAX_TAKEN: Final = 16_384
"""Steps that are kept should the thread not get to run: a minute or more."""
_PORTION: Final = 8
"""Steps that are worked through before the lock is let go: some 0.1 ms."""
_BATCH_ROWS: Final = 1_024
"""A batch of so many rows goes out before its time: to make one of more would hold the lock for
longer than 1 ms."""
_LONGEST_WAIT_S: Final = 0.25
"""However seldom batches go out, what is taken is looked at so often: else it might be too much."""
_HEARTBEAT_S: Final = 2.0
"""An idle engine goes on sending its gauges."""
_CLOCK_JUMP_S: Final = 0.5
_MAX_OWN: Final = 16
_LOGGER: Final = logging.getLogger("vllm.daom")
_AIOKAFKA_LOGGER: Final = logging.getLogger("aiokafka")


class Probe:
    """Reports the engines that one API process serves.

    Args:
        settings: Where to, and under which names.
        vllm_config: vLLM's configuration.
        engines: Numbers of the engines.
        version: vLLM's version.
    """

    def __init__(
        self, settings: ProbeSettings, vllm_config: Any, engines: list[int], version: str
    ) -> None:
        parallel = getattr(vllm_config, "parallel_config", None)
        count = int(getattr(parallel, "data_parallel_size", None) or len(engines))
        frontends = int(getattr(parallel, "_api_process_count", None) or 1)
        rank = int(getattr(parallel, "_api_process_rank", None) or 0)
        self._taken: deque[Taken] = deque(maxlen=_MAX_TAKEN)
        self._steps = 0
        self._consumed = 0
        self._configured = describe_config(vllm_config, version, settings.attention)
        self._is_first = rank <= 0
        source = _source(settings, vllm_config, version, frontends, rank)
        names = {i: settings.engine_name(i, max(count, len(engines))) for i in engines}
        self._engines = {
            index: _Engine(
                msgspec.structs.replace(source, engine=name),
                cells=settings.probe.cells,
                is_only_frontend=frontends == 1,
            )
            for index, name in names.items()
        }
        self._changes: deque[tuple[int, ChangeKind, str]] = deque(maxlen=256)
        with_gpus = engines if settings.probe.gpu and self._is_first else []
        self._gpus = EngineGpus(settings.devices, gpus_an_engine(vllm_config), with_gpus)
        self._ahead_s = time.time() - time.monotonic()
        self._own = {"probe_lost_steps_total": 0.0, "clock_jumps_total": 0.0}
        self._period_s = settings.probe.period_s
        self._wait_s = min(self._period_s, _LONGEST_WAIT_S)
        self._is_stopping = False
        self._reporter = Reporter(
            settings.client,
            settings.topic,
            self.collect,
            period_s=self._wait_s,
            buffer_bytes=round(settings.probe.buffer_mb * 2**20),
        )

    @property
    def names(self) -> list[str]:
        """The names of its engines."""
        return [engine.source.engine or "" for engine in self._engines.values()]

    def start(self) -> None:
        """Begin to report, with what is configured as the first record."""
        for index in self._engines:
            self.note_change(index, "restart", self._configured)
        self._reporter.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Send what is there and end, within two seconds."""
        self._is_stopping = True
        self._reporter.stop()

    def record(self, engine: int, scheduler: Any, iteration: Any) -> None:
        """Take references to a step's statistics: see the module's text."""
        self._taken.append((engine, scheduler, iteration))
        self._steps += 1

    def note_error(self, error: Exception, what: str) -> None:
        """Count an exception that was caught; the first of its type is logged."""
        self._reporter.note_error(error, what)

    def note_change(self, engine: int, kind: ChangeKind, detail: str) -> None:
        """Report a change of ``engine``; of several frontends the first one does."""
        if self._is_first:
            self._changes.append((engine, kind, detail))

    def note_sleep(self, is_asleep: bool, level: int) -> None:  # noqa: FBT001 - as vLLM says it.
        """Report that the engines have been put to sleep, or woken."""
        for index in self._engines:
            self.note_change(index, "other", f"sleep level {level}" if is_asleep else "wake")

    def note_rejection(self, reason: str) -> None:
        """Count a request that was not let in."""
        name = f"rejected_{reason}_total" if reason.isidentifier() else "rejected_total"
        if name in self._own or len(self._own) < _MAX_OWN:
            self._own[name] = self._own.get(name, 0.0) + 1.0

    def collect(self) -> Iterator[tuple[str, Record]]:
        """Yield what has happened since the last call, as records and their keys."""
        self._watch_clock()
        while self._changes:
            yield self._change(*self._changes.popleft())
        now_s = time.time()
        for index, gpus in self._gpus.read(now_s).items():
            yield self._sample(self._engines[index], gpus, now_s)
        yield from self._work_through(now_s)
        for engine in self._engines.values():
            if self._is_due(engine, now_s):
                yield self._batch(engine, now_s)
                engine.sent_s = now_s

    def _is_due(self, engine: _Engine, now_s: float) -> bool:
        since_s = now_s - engine.sent_s
        # The thread wakes a little early or late; and the clock may have been put back.
        is_time = not 0.0 <= since_s < self._period_s - 0.5 * self._wait_s
        if engine.stats.has_news:
            return is_time or self._is_stopping
        return not 0.0 <= since_s < max(_HEARTBEAT_S, self._period_s)

    def _work_through(self, now_s: float) -> Iterator[tuple[str, Record]]:
        for number in range(len(self._taken)):
            index, scheduler, iteration = self._taken.popleft()
            self._consumed += 1
            engine = self._engines.get(index)
            try:
                if engine is not None:
                    engine.stats.take(scheduler, iteration, now_s)
            except Exception as error:  # noqa: BLE001 - the other steps are worth reporting.
                self.note_error(error, "a part of a step is not reported")
            if engine is not None and engine.stats.rows >= _BATCH_ROWS:
                yield self._batch(engine, now_s)
            if number % _PORTION == _PORTION - 1:
                time.sleep(0)
        lost = float(self._steps - self._consumed - len(self._taken))
        self._own["probe_lost_steps_total"] = max(self._own["probe_lost_steps_total"], lost)

    def _batch(self, engine: _Engine, now_s: float) -> tuple[str, Record]:
        counts = self._reporter.counts
        own = {
            **self._own,
            "probe_dropped_total": float(counts.dropped + counts.refused),
            "probe_errors_total": float(sum(counts.errors.values())),
        }
        engine.seq += 1
        source = msgspec.structs.replace(engine.source, seq=engine.seq)
        start_s = engine.sent_s or now_s - self._period_s
        # The clock may have been put back, or forward by more than a batch may span.
        start_s = min(max(start_s, now_s - MAX_BATCH_SPAN_S), now_s)
        batch = engine.stats.batch(source, start_s, now_s, own)
        return engine.cell, batch

    def _sample(self, engine: _Engine, gpus: Values, now_s: float) -> tuple[str, Record]:
        return engine.cell, GpuSample(source=engine.source, time_s=now_s, gpus=gpus)

    def _change(self, index: int, kind: ChangeKind, detail: str) -> tuple[str, Record]:
        engine = self._engines[index]
        event = ChangeEvent(
            source=engine.source,
            time_s=time.time(),
            kind=kind,
            version=engine.source.version,
            detail=detail,
        )
        return engine.cell, event

    def _watch_clock(self) -> None:
        ahead_s = time.time() - time.monotonic()
        if abs(ahead_s - self._ahead_s) > _CLOCK_JUMP_S:
            self._own["clock_jumps_total"] += 1.0
            _LOGGER.warning("daom: the clock jumped by %+.3f s", ahead_s - self._ahead_s)
        self._ahead_s = ahead_s


def _source(
    settings: ProbeSettings, vllm_config: Any, version: str, frontends: int, rank: int
) -> Source:
    """Return who sends for all of the engines; each has its name beside."""
    return Source(
        model=settings.probe.model or served_name(vllm_config),
        version=settings.probe.version or version,
        boot=run_id(os.getppid() if frontends > 1 else os.getpid()),
        frontend=str(rank) if frontends > 1 else None,
        tenant=settings.probe.tenant,
        region=settings.probe.region,
        host=settings.host,
    )


class _Engine:
    """One engine, as this process knows it."""

    __slots__ = ("cell", "sent_s", "seq", "source", "stats")

    def __init__(self, source: Source, *, cells: int, is_only_frontend: bool) -> None:
        self.source = source
        self.cell = cell_of(source, cells)
        self.stats = EngineStats(is_only_frontend=is_only_frontend)
        self.seq = 0
        self.sent_s = 0.0


def make_probe(
    environment: Mapping[str, str], vllm_config: Any, engines: list[int], version: str
) -> Probe | None:
    """Return the started probe; None, with one line that says why, if it is not to be."""
    try:
        settings = read_probe_settings(environment)
    except ConfigError as error:
        _LOGGER.error("daom: nothing is reported: %s", error)
        return None
    if not settings.probe.enabled:
        _LOGGER.info("daom: nothing is reported: probe.enabled is false")
        return None
    if _AIOKAFKA_LOGGER.level == logging.NOTSET:
        # It would say each failed attempt to reach a broker; the reporter says the first.
        _AIOKAFKA_LOGGER.setLevel(logging.CRITICAL)
    probe = Probe(settings, vllm_config, engines, version)
    probe.start()
    _LOGGER.info(
        "daom: reporting engines %s to %s at %s",
        ", ".join(probe.names),
        settings.topic,
        ",".join(settings.client["bootstrap_servers"]),
    )
    return probe


def served_name(vllm_config: Any) -> str:
    """Return the name under which the model is served."""
    model = getattr(vllm_config, "model_config", None)
    name = getattr(model, "served_model_name", None)
    if isinstance(name, list | tuple):
        name = name[0] if name else None
    return str(name or getattr(model, "model", None) or "unknown")


def run_id(pid: int) -> str:
    """Return what names a run of process ``pid``: it and when it began, where the system tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{pid}-{fields[19]}"
    except (OSError, IndexError):
        # Of another process nothing more is known, and it must be the same for all its children.
        return uuid.uuid4().hex[:16] if pid == os.getpid() else str(pid)
