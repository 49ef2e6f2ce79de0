"""The detectors of this project as columns of the benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bench.detection.alarms import Alarm, Watched, joined
from bench.detection.streams import PANE_S, Stream
from daom.config import Config
from daom.presets import cell_settings
from detectors.protocol import Detector, DriftScore
from detectors.sits2026 import Sits2026Detector

DEFAULT_INTERVAL_S: Final = Config().detector.false_alarm_interval_s


def daom_detector(*, workload: bool, false_alarm_interval_s: float) -> Detector[Any]:
    """Return the product's default detector of one series, with a workload column or without."""
    signal = {"workload": "prompt_tokens"} if workload else {}
    settings = {
        "signals": {"ttft_s": signal},
        "time": {"pane_s": PANE_S},
        "detector": {"false_alarm_interval_s": false_alarm_interval_s},
    }
    return cell_settings(Config.model_validate(settings)).signals[0].detector


def scores(detector: Detector[Any], stream: Stream) -> Iterator[DriftScore]:
    """Yield what ``detector`` says of ``stream``, pane by pane."""
    state = detector.initial()
    panes = int(np.ceil((stream.end_s - stream.start_s) / PANE_S))
    ends_s = stream.start_s + PANE_S * np.arange(1, panes + 1)
    stops = np.searchsorted(stream.times_s, ends_s).tolist()
    values = stream.values_s.astype(np.float32)
    workload = None if stream.workload is None else stream.workload.astype(np.float32)
    begin = 0
    for stop, end_s in zip(stops, ends_s.tolist(), strict=True):
        pane = detector.new_pane()
        if stop > begin:
            rows = slice(begin, stop)
            of_rows = None if workload is None else workload[rows]
            pane.add(values[rows], stream.times_s[rows], of_rows)
        begin = stop
        yield from detector.update(state, pane, end_s)


def watch(detector: Detector[Any], stream: Stream, *, until_found: bool) -> Watched:
    """Return the alarms of ``detector``: its drifting verdicts, joined."""
    firings: list[Alarm] = []
    at_risk_s, judged_to_s = 0.0, stream.end_s
    for score in scores(detector, stream):
        if score.learned is not None:
            judged_to_s = score.end_s
        if score.drifting is None:
            continue
        if score.drifting:
            firings.append(Alarm(score.end_s, score.end_s, frozenset({score.attribution})))
            if until_found and stream.is_after_onset(score.end_s):
                break
        else:
            # A cycle need not be a pane: sits2026 judges every 300 samples.
            at_risk_s += max(0.0, score.end_s - judged_to_s)
        judged_to_s = score.end_s
    return Watched(at_risk_s, joined(firings))


@dataclass(frozen=True)
class Daom:
    """The default detector; it is told the workload where a stream has one."""

    name: str
    interval_s: float
    max_seeds: int | None = None

    def watch(self, stream: Stream, *, until_found: bool = False) -> Watched:
        has_workload = stream.workload is not None
        made = daom_detector(workload=has_workload, false_alarm_interval_s=self.interval_s)
        return watch(made, stream, until_found=until_found)


@dataclass(frozen=True)
class Sits2026:
    """The source document's rule, KL > 0.12; no setting sets how often it fires."""

    name: str = "sits2026"
    interval_s: float | None = None
    max_seeds: int | None = None

    def watch(self, stream: Stream, *, until_found: bool = False) -> Watched:
        return watch(Sits2026Detector(), stream, until_found=until_found)
