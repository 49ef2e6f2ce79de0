"""Several settings over one source in one pass: each record is decoded once and folded by each.

The first setting is the one that the report is about. Two are always there to compare with: preset
``sits2026``, and a static threshold. Both need a limit for each signal, its ``slo_s``. Where none
is configured, it is what an operator would have read off a calm hour: the first threshold that the
default preset learns for all engines of a cell together, the reference's P99 plus headroom. Until
that is learned they say nothing of that signal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from daom.codec import decode
from daom.config import Config
from daom.errors import MalformedRecord
from daom.events import DriftVerdict, Output, Record, SloThreshold
from daom.fold import Fold, Folded
from daom.heard import Survey, recorded_of
from daom.labels import Recorded
from daom.presets import cell_settings
from daom.replay import Tally
from daom.report.said import Said, Stream
from daom.report.static import StaticWatch
from daom.report.timeline import Timeline

SITS2026: Final = "sits2026"
STATIC: Final = "static threshold"
_LEARNED: Final = "learned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A configuration under a name; ``is_static``: a fixed limit of P99 in place of its preset."""

    name: str
    config: Config
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Slo:
    """A limit of P99 that a setting goes by, and where it is from; ``since_s``: None: always."""

    limit_s: float
    source: str
    since_s: float | None = None


@dataclass(slots=True)
class Contestant:
    """A setting, and what it said."""

    setting: Setting
    said: Said = field(default_factory=Said)

    @property
    def needs_slo(self) -> bool:
        """Whether it says nothing of a signal for which there is no limit."""
        return self.setting.is_static or self.setting.config.preset == SITS2026


def line_up(config: Config, against: Sequence[Setting]) -> list[Setting]:
    """Return the settings of a report: ``config``, those it is held ``against``, and the rest.

    Preset default is needed for the limits of the others, and to show P99 pane by pane.
    """
    lined = [Setting(name=config.preset, config=config), *against]
    presets = {setting.config.preset for setting in lined}
    for preset in ("default", SITS2026):
        if preset not in presets:
            # Not validated: its limits come later.
            other = config.model_copy(update={"preset": preset})
            lined.append(Setting(name=preset, config=other))
    base = next(setting for setting in lined if setting.config.preset == "default")
    lined.append(Setting(name=STATIC, config=base.config, is_static=True))
    return lined


class Contest:
    """Folds a source for several settings; ``open`` gives a fold for each part of it.

    Args:
        settings: As ``line_up`` returns them.

    Attributes:
        broken_off: Why a part of the source could not be read to its end, in words.
    """

    def __init__(self, settings: Sequence[Setting]) -> None:
        self.contestants = [Contestant(setting) for setting in settings]
        self.config = settings[0].config
        self.surveys = [Survey.under(self.config)]
        self.timelines: dict[Stream, Timeline] = {}
        self.models: dict[str, str] = {}
        self.slos: dict[tuple[str, str], Slo] = {}
        self.tally = Tally()
        self.lines = 0
        self.broken_off: list[str] = []

    @property
    def base(self) -> Contestant:
        """The one that the report is about."""
        return self.contestants[0]

    @property
    def scout(self) -> Contestant:
        """The one whose verdicts tell the others P99 and limits: the first of preset default."""
        return next(c for c in self.contestants if c.setting.config.preset == "default")

    def part(self) -> Contest:
        """Return a contest of the same settings for one part of the source: see ``absorb``."""
        return Contest([contestant.setting for contestant in self.contestants])

    def open(self, partition: int | None = None) -> ContestFold:
        """Return a fold for one part of the source: a recording, or a partition."""
        return ContestFold(self, partition)

    def absorb(self, part: Contest) -> None:
        """Take what was said of a part; a part is a process's own, so it can be pickled."""
        for contestant, of_part in zip(self.contestants, part.contestants, strict=True):
            contestant.said.absorb(of_part.said)
        for stream, timeline in part.timelines.items():
            known = self.timelines.setdefault(stream, timeline)
            if known is not timeline:
                known.absorb(timeline)
        self.models.update(part.models)
        self.slos.update(part.slos)
        self.surveys.extend(part.surveys)
        self.tally.absorb(part.tally)
        self.lines += part.lines
        self.broken_off.extend(part.broken_off)

    def recorded(self, name: str) -> Recorded | None:
        """Return what the source holds; None if it held no telemetry."""
        return recorded_of(self.surveys, name, self.lines)

    def note(self, contestant: Contestant, outputs: Sequence[Output]) -> None:
        """Take what a setting says."""
        for output in outputs:
            contestant.said.note(output)
            if contestant is self.base and isinstance(output, DriftVerdict):
                self._note_verdict(output)

    def _note_verdict(self, verdict: DriftVerdict) -> None:
        stream = Stream(verdict.cell, verdict.series.engine, verdict.series.signal)
        timeline = self.timelines.get(stream)
        if timeline is None:
            timeline = self.timelines[stream] = Timeline(self.config.time.pane_s)
            self.models[verdict.cell] = verdict.series.model
        timeline.note(verdict)


class ContestFold:
    """The cells of one part of the source, under each setting; a ``daom.replay.Folding``.

    What it returns is what the first setting makes due.
    """

    def __init__(self, contest: Contest, partition: int | None) -> None:
        self._contest = contest
        self._folds = [
            (c, Fold(cell_settings(config), config.worker.max_message_bytes, partition))
            for c in contest.contestants
            for config in (c.setting.config,)
            if not c.setting.is_static
        ]
        scout = contest.scout
        # What the limits of the others come from goes first.
        self._folds.sort(key=lambda pair: pair[0] is not scout)
        self._first = next(fold for c, fold in self._folds if c is contest.base)
        self._limits: dict[tuple[str, str], float] = {}
        config = scout.setting.config
        self._watch = StaticWatch(self._limits, config.alerts, list(config.signals))

    def counters(self) -> dict[str, int]:
        """Return what the first setting's cells have counted."""
        return self._first.counters()

    def take(self, value: bytes | None, key: str | None, logged_s: float | None = None) -> Folded:
        """Fold one value in, under each setting."""
        contest, first = self._contest, self._first
        contest.lines += 1
        limits, max_bytes = first.settings.limits, first.max_message_bytes
        decoded: tuple[Record, tuple[MalformedRecord, ...]] | MalformedRecord
        try:
            decoded = decode(value, logged_s=logged_s, max_bytes=max_bytes, limits=limits)
            contest.surveys[0].note(decoded[0])
        except MalformedRecord as error:
            decoded = error
        found = Folded(None, (), ())
        for contestant, fold in self._folds:
            if (fold.settings.limits, fold.max_message_bytes) != (limits, max_bytes):
                folded = fold.take(value, key, logged_s)
            elif isinstance(decoded, MalformedRecord):
                folded = fold.refuse(decoded, key, logged_s)
            else:
                folded = fold.take_record(*decoded, key)
            contest.note(contestant, folded.outputs)
            if contestant is contest.scout:
                self._scout(folded.outputs)
            if fold is first:
                found = folded
        contest.tally.note(found)
        return found

    def _scout(self, outputs: Sequence[Output]) -> None:
        """Learn limits, and let the static thresholds see."""
        for output in outputs:
            match output:
                case SloThreshold(series=series, previous_s=None) if series.engine is None:
                    self._learn(output)
                case DriftVerdict():
                    self._know(output.cell, output.series.signal)
        told = list(self._watch.take(outputs))
        for contestant in self._contest.contestants:
            if contestant.setting.is_static:
                self._contest.note(contestant, told)

    def _know(self, cell: str, signal: str) -> None:
        """Take over a limit that is configured."""
        if (cell, signal) in self._limits:
            return
        slo_s = self._contest.scout.setting.config.signals[signal].slo_s
        if slo_s is not None:
            self._limits[cell, signal] = slo_s
            self._contest.slos[cell, signal] = Slo(slo_s, "slo_s")

    def _learn(self, threshold: SloThreshold) -> None:
        """Take the first threshold that the default preset learned for a limit."""
        cell, signal = threshold.cell, threshold.series.signal
        self._know(cell, signal)
        if (cell, signal) in self._limits:
            return
        self._limits[cell, signal] = threshold.threshold_s
        slo = Slo(threshold.threshold_s, _LEARNED, threshold.event_time_s)
        self._contest.slos[cell, signal] = slo
        for contestant, fold in self._folds:
            if contestant.needs_slo:
                config = contestant.setting.config
                fold.resettle(cell, cell_settings(_with_slos(config, dict(self._of(cell)))))

    def _of(self, cell: str) -> Iterator[tuple[str, float]]:
        for (of_cell, signal), limit_s in self._limits.items():
            if of_cell == cell:
                yield signal, limit_s


def _with_slos(config: Config, slos_s: dict[str, float]) -> Config:
    """Return ``config`` with base SLOs, seconds, for the signals that have none."""
    signals = {
        name: signal
        if signal.slo_s is not None
        else signal.model_copy(update={"slo_s": slos_s.get(name)})
        for name, signal in config.signals.items()
    }
    return config.model_copy(update={"signals": signals})
