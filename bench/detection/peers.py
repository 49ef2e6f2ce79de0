"""Other people's detectors as columns of the benchmark.

River's take the logarithm of each latency, as ``detectors.river_adapters`` gives it to them, and
are driven directly. driftfdr is used as its documentation says: a step is the mean of a time bucket
(here the mean log latency of a pane), ``ECUSUM`` in sequential mode (recommended there for speed),
its own bootstrap on each series' first 300 steps, and ``alpha`` so that a window of 100 steps has
its share of the false-alarm interval. It looks for rises only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench.detection.alarms import Alarm, Column, Watched
from bench.detection.streams import PANE_S, Floats, Stream
from detectors.evaluation import alarm_every_n_baseline

WARMUP_SAMPLES: Final = 300
"""Firings among the first values do not count, as in ``detectors.river_adapters``."""


@dataclass(frozen=True)
class River:
    """One of river's detectors on log latency.

    Args:
        setting: Of the one parameter that sets its rate of false alarms.
        make: Returns a fresh one with that setting.
        memory_samples: So far back it looks; before that, a stream that changes need not be seen.
        law: A quicker detector with the same false alarms; None: it is quick enough itself.
    """

    name: str
    setting: float
    make: Callable[[float], Any] = field(repr=False)
    interval_s: float | None = None
    max_seeds: int | None = None
    memory_samples: int | None = None
    law: Column | None = None

    def watch(self, stream: Stream, *, until_found: bool = False) -> Watched:
        first = 0
        if until_found and self.memory_samples and stream.onset_s is not None:
            onset = int(np.searchsorted(stream.times_s, stream.onset_s))
            first = max(0, onset - WARMUP_SAMPLES - self.memory_samples)
        times_s = stream.times_s[first:]
        firings: list[Alarm] = []
        for index in _firings(self.make(self.setting), np.log(stream.values_s[first:])):
            if index >= WARMUP_SAMPLES:
                at_s = float(times_s[index])
                firings.append(Alarm(at_s, at_s))
                if until_found and stream.is_after_onset(at_s):
                    break
        return Watched.of_firings(stream.end_s - float(times_s[WARMUP_SAMPLES]), firings)


def _firings(detector: Any, logs: Floats) -> Iterator[int]:
    """Yield the index of each value at which ``detector`` fires."""
    update = detector.update
    for index, value in enumerate(logs.tolist()):
        update(value)
        if detector.drift_detected:
            yield index


@dataclass(frozen=True)
class DriftFdr:
    """driftfdr's monitor of one series, calibrated at its beginning and after each alarm."""

    interval_s: float
    name: str = "driftfdr"
    max_seeds: int | None = None
    reference_steps: int = 300
    window_steps: int = 100

    def watch(self, stream: Stream, *, until_found: bool = False) -> Watched:
        from driftfdr import ECUSUM, StreamingMonitor  # noqa: PLC0415 - an extra.

        monitor = StreamingMonitor(
            model_ids=["series"],
            detector_factory=ECUSUM,
            alpha=self.window_steps * PANE_S / self.interval_s,
            n_ref=self.reference_steps,
            window=self.window_steps,
            sequential=True,
        )
        firings, judged = [], 0
        for step, value in enumerate(pane_means(stream).tolist(), start=1):
            judged += monitor.models["series"].calibrated
            if monitor.update({"series": value}):
                at_s = stream.start_s + step * PANE_S
                firings.append(Alarm(at_s, at_s))
                if until_found and stream.is_after_onset(at_s):
                    break
        return Watched.of_firings(judged * PANE_S, firings)


def pane_means(stream: Stream) -> Floats:
    """Return the mean log latency of each pane; an empty one has that of the pane before it."""
    from driftfdr.preprocess import bucket_means  # noqa: PLC0415 - an extra.

    panes = ((stream.times_s - stream.start_s) // PANE_S).astype(np.int64)
    means: Floats = bucket_means(np.log(stream.values_s), panes)[0]
    return means


@dataclass(frozen=True)
class EveryN:
    """No detector at all: an alarm each time the interval has passed, whatever the samples.

    What a detector scores means little unless it beats this. The first alarm comes at a random
    share of the interval, drawn from a seed that is the stream's number of samples.
    """

    interval_s: float
    name: str = "alarm every n"
    max_seeds: int | None = None

    def watch(self, stream: Stream, *, until_found: bool = False) -> Watched:  # noqa: ARG002
        observed_s = stream.end_s - stream.start_s
        phase = 1.0 - np.random.default_rng(stream.times_s.size).random()
        since_s = alarm_every_n_baseline(observed_s, self.interval_s, phase=phase)
        firings = [Alarm(stream.start_s + t, stream.start_s + t) for t in since_s]
        return Watched.of_firings(observed_s, firings)


@dataclass(frozen=True)
class Never:
    """A peer of which no setting holds the interval: it is switched off."""

    name: str
    interval_s: float | None = None
    max_seeds: int | None = None

    def watch(self, stream: Stream, *, until_found: bool = False) -> Watched:  # noqa: ARG002
        return Watched(stream.end_s - stream.start_s, ())


def adwin(delta: float = 0.002) -> River:
    """Return river's ADWIN; its bound on a false cut is ``delta``."""
    from river import drift  # noqa: PLC0415 - an extra.

    return River("ADWIN", delta, lambda delta: drift.ADWIN(delta=delta))


def page_hinkley(threshold: float = 50.0) -> River:
    """Return river's Page-Hinkley test, which fires beyond ``threshold``."""
    from river import drift  # noqa: PLC0415 - an extra.

    return River("PageHinkley", threshold, lambda most: drift.PageHinkley(threshold=most))
