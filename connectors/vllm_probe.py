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
from zlib import crc32

import msgspec

from connectors.probe_settings import ProbeSettings, read_probe_settings
from connectors.reporter import Reporter
from connectors.vllm_config import describe_config
from connectors.vllm_gpus import EngineGpus, Values, gpus_an_engine
from connectors.vllm_stats import EngineStats
from daom.errors import ConfigError
from daom.events import ChangeEvent, ChangeKind, GpuSample, Record, Source

Taken = tuple[int, Any, Any]
"""Engine, SchedulerStats, IterationStats."""

_MAX_TAKEN: Final = 16_384
"""Steps that are kept should the thread not get to run: a minute or more."""
_PORTION: Final = 8
"""Steps that are worked through before the lock is let go: some 0.1 ms."""
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
        self._settings = settings
        self._config = vllm_config
        self._version = version
        self._is_first = rank <= 0
        self._boot = run_id(os.getppid() if frontends > 1 else os.getpid())
        self._frontend = str(rank) if frontends > 1 else None
        self._engines = {
            index: _Engine(
                name=settings.engine_name(index, max(count, len(engines))),
                stats=EngineStats(is_only_frontend=frontends == 1),
            )
            for index in engines
        }
        self._changes: deque[tuple[int, ChangeKind, str]] = deque(maxlen=256)
        reads_gpus = settings.probe.gpu and self._is_first
        self._gpus = EngineGpus(
            settings.devices, gpus_an_engine(vllm_config), engines if reads_gpus else []
        )
        self._ahead_s = time.time() - time.monotonic()
        self._own = {"probe_lost_steps_total": 0.0, "clock_jumps_total": 0.0}
        self._reporter = Reporter(
            settings.client,
            settings.topic,
            self.collect,
            period_s=settings.probe.period_s,
            buffer_bytes=round(settings.probe.buffer_mb * 2**20),
        )

    def start(self) -> None:
        """Begin to report, with what is configured as the first record."""
        for index in self._engines:
            self.note_change(index, "restart", describe_config(self._config, self._version))
        self._reporter.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Send what is there and end, within two seconds."""
        self._reporter.stop()

    def record(self, engine: int, scheduler: Any, iteration: Any) -> None:
        """Take references to a step's statistics: see the module's text."""
        self._taken.append((engine, scheduler, iteration))
        self._steps += 1

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
        self._work_through(now_s)
        for engine in self._engines.values():
            is_due = now_s >= engine.sent_s + _HEARTBEAT_S
            if engine.stats.has_news or is_due:
                yield self._batch(engine, now_s)

    def _work_through(self, now_s: float) -> None:
        for number in range(len(self._taken)):
            index, scheduler, iteration = self._taken.popleft()
            self._consumed += 1
            engine = self._engines.get(index)
            if engine is not None:
                engine.stats.take(scheduler, iteration, now_s)
            if number % _PORTION == _PORTION - 1:
                time.sleep(0)
        lost = float(self._steps - self._consumed - len(self._taken))
        self._own["probe_lost_steps_total"] = max(self._own["probe_lost_steps_total"], lost)

    def _batch(self, engine: _Engine, now_s: float) -> tuple[str, Record]:
        counts = self._reporter.counts
        own = {
            **self._own,
            "probe_dropped_total": float(counts.dropped + counts.refused),
            "probe_errors_total": float(sum((counts.errors or {}).values())),
        }
        engine.seq += 1
        source = msgspec.structs.replace(self._source(engine), seq=engine.seq)
        start_s = engine.sent_s or now_s - self._settings.probe.period_s
        engine.sent_s = now_s
        # The clock may have been put back.
        batch = engine.stats.batch(source, min(start_s, now_s), now_s, own)
        return self._key(engine.name), batch

    def _sample(self, engine: _Engine, gpus: Values, now_s: float) -> tuple[str, Record]:
        sample = GpuSample(source=self._source(engine), time_s=now_s, gpus=gpus)
        return self._key(engine.name), sample

    def _change(self, index: int, kind: ChangeKind, detail: str) -> tuple[str, Record]:
        engine = self._engines[index]
        source = self._source(engine)
        event = ChangeEvent(
            source=source, time_s=time.time(), kind=kind, version=source.version, detail=detail
        )
        return self._key(engine.name), event

    def _source(self, engine: _Engine) -> Source:
        probe = self._settings.probe
        return Source(
            model=probe.model or served_name(self._config),
            engine=engine.name,
            version=probe.version or self._version,
            boot=self._boot,
            frontend=self._frontend,
            tenant=probe.tenant,
            region=probe.region,
            host=self._settings.host,
        )

    def _key(self, engine: str) -> str:
        probe = self._settings.probe
        model = probe.model or served_name(self._config)
        return model if probe.cells == 1 else f"{model}/{crc32(engine.encode()) % probe.cells}"

    def _watch_clock(self) -> None:
        ahead_s = time.time() - time.monotonic()
        if abs(ahead_s - self._ahead_s) > _CLOCK_JUMP_S:
            self._own["clock_jumps_total"] += 1.0
            _LOGGER.warning("daom: the clock jumped by %+.3f s", ahead_s - self._ahead_s)
        self._ahead_s = ahead_s


class _Engine:
    """One engine, as this process knows it."""

    __slots__ = ("name", "sent_s", "seq", "stats")

    def __init__(self, name: str, stats: EngineStats) -> None:
        self.name = name
        self.stats = stats
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
        ", ".join(settings.engine_name(index, len(engines)) for index in engines),
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
