"""What a worker counts of itself, for Prometheus.

Labels are bounded: partitions that the worker owns, and words of DAOM's own. The gauges of a
partition are there as long as it is the worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from daom.fold import Folded
from streams.partition import PartitionFold
from streams.watch import Watched


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
        self.counted: dict[int, dict[str, int]] = {}

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
        """Note what the cells of a partition have counted, each time that it is saved."""
        self.counted[fold.number] = fold.fold.counters()


_GAUGES: Final[Mapping[str, tuple[str, Callable[[Watched], float | None]]]] = {
    "daom_end_offset": ("Where the log ends", lambda w: w.seen.end),
    "daom_position": ("Next offset to fold", lambda w: w.seen.position),
    "daom_saved_position": (
        "Offset that checkpoints cover",
        lambda w: None if w.standing is None else w.standing.saved,
    ),
    "daom_committed_offset": ("Offset that the group has committed", lambda w: w.seen.committed),
    "daom_lag": ("Records still to be folded", lambda w: w.seen.lag),
    "daom_event_time_seconds": (
        "Event time of the cell that is furthest",
        lambda w: None if w.standing is None else w.standing.event_s,
    ),
    "daom_waiting_seconds": (
        "Since when more is due and nothing moves; 0 where nothing is due",
        lambda w: w.waits_s,
    ),
    "daom_cells": ("Cells held", lambda w: None if w.standing is None else w.standing.cells),
    "daom_engines": ("Engines held", lambda w: None if w.standing is None else w.standing.engines),
}


class PartitionGauges(Collector):
    """How far a worker's partitions have come, as its watch last saw them.

    Args:
        owned: The partitions that are the worker's now.
        counted: What the cells of each have counted.
    """

    def __init__(
        self,
        owned: Callable[[], Mapping[int, Watched]],
        counted: Mapping[int, Mapping[str, int]],
    ) -> None:
        self._owned = owned
        self._counted = counted

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges; of what is not known, none."""
        owned = self._owned()
        for name, (words, value_of) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, words, labels=["partition"])
            for number, watched in owned.items():
                value = value_of(watched)
                if value is not None:
                    gauge.add_metric([str(number)], value)
            yield gauge
        words = "What the cells have counted: late samples, duplicates..."
        counts = GaugeMetricFamily("daom_counted", words, labels=["partition", "what"])
        for number in owned:
            for what, count in self._counted.get(number, {}).items():
                counts.add_metric([str(number), what], count)
        yield counts
