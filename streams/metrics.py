"""What a worker counts of itself, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from daom.fold import Folded
from streams.partition import PartitionFold


class WorkerMetrics:
    """Counters of one worker, in a registry of its own.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._records = Counter(
            "daom_records", "Telemetry records folded, by schema", ["schema"], registry=registry
        )
        self._outputs = Counter(
            "daom_outputs", "Outputs published, by type", ["type"], registry=registry
        )
        self._dead_letters = Counter(
            "daom_dead_letters", "Faults dead-lettered, by kind", ["kind"], registry=registry
        )
        self._limits = Counter(
            "daom_limit_hits", "Records beyond a limit, by limit", ["limit"], registry=registry
        )
        self._position = Gauge(
            "daom_position", "Next offset to fold", ["partition"], registry=registry
        )
        self._saved = Gauge(
            "daom_saved_position", "Offset that checkpoints cover", ["partition"], registry=registry
        )
        self._event_time = Gauge(
            "daom_event_time_seconds", "Clock of each cell", ["cell"], registry=registry
        )
        self._counted = Gauge(
            "daom_counted",
            "What the cells have counted: late samples, duplicates...",
            ["partition", "what"],
            registry=registry,
        )

    def record(self, folded: Folded) -> None:
        """Count one record and what came of it."""
        if folded.record is not None:
            self._records.labels(type(folded.record).__name__).inc()
        for output in folded.outputs:
            self._outputs.labels(type(output).__name__).inc()
        for fault in folded.faults:
            self._dead_letters.labels(fault.kind).inc()
            if fault.limit is not None:
                self._limits.labels(fault.limit).inc()

    def saved(self, fold: PartitionFold) -> None:
        """Note how far a partition has come, each time that it is saved."""
        self._position.labels(fold.number).set(fold.position)
        self._saved.labels(fold.number).set(fold.position)
        for name, cell in fold.fold.cells.items():
            self._event_time.labels(name).set(cell.state.clock.now_s or 0.0)
        for what, count in fold.fold.counters().items():
            self._counted.labels(fold.number, what).set(count)
