"""Labels: what is known to have happened in recordings, written down by a person.

A label file is a YAML or JSON list with an entry for each episode:

    - start: 2025-11-24T16:21:03Z   # or Unix seconds, or +21m3s: since the recording's start
      end: +23m21s
      kind: degradation             # or improvement, or workload
      engine: gpu-0                 # optional, as are model, signal, recording and note

``improvement`` and ``workload`` (the traffic changed, the service did not) are changes to know of,
but none to page anybody for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal, get_args

from daom.as_written import read_as_written
from daom.durations import parse_duration
from daom.errors import ConfigError
from daom.times import clock, parse_time
from detectors.evaluation import Episode

Kind = Literal["degradation", "improvement", "workload"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_NEEDED: Final = ("start", "end", "kind")
_OPTIONAL: Final = ("recording", "model", "engine", "signal", "note")
_ABSENT: Final = frozenset({"", "null", "~"})
_TIMES: Final = (
    "ISO 8601 such as 2025-11-24T16:21:03Z (UTC unless it says otherwise), Unix seconds, "
    "or since the recording's start such as +20m or +1h30m15s"
)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as a label gives it: Unix seconds, or seconds since the recording's start."""

    time_s: float
    is_relative: bool

    def at(self, start_s: float) -> float:
        """Return the time in a recording that starts at ``start_s``, Unix seconds."""
        return start_s + self.time_s if self.is_relative else self.time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One entry of a label file; ``where`` names file and entry. None means any."""

    where: str
    start: Moment
    end: Moment
    kind: Kind
    recording: str | None = None
    model: str | None = None
    engine: str | None = None
    signal: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a recording holds, as far as labels need to know.

    Attributes:
        name: Its path.
        start_s: Event time at which its first batch begins.
        end_s: Event time of its end.
        engines: The engines of each model.
        silences: By model, the times in which nothing of it was recorded.
        lines: How many lines it has, usable or not.
    """

    name: str
    start_s: float
    end_s: float
    engines: Mapping[str, Collection[str]]
    silences: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An episode of one recording, and what it is about."""

    episode: Episode
    label: Label

    def concerns(self, model: str, engine: str | None, signal: str | None) -> bool:
        """Return whether it is about this series or alert.

        The fleet (engine None) is every engine's, and an alert that is about no one signal (a
        stall, say) is every signal's.
        """
        label = self.label
        return (
            label.model in {None, model}
            and (label.engine is None or engine in {None, label.engine})
            and (label.signal is None or signal in {None, label.signal})
        )


@dataclass(slots=True)
class Placed:
    """The episodes of each recording, in its order, and what is odd about the labels."""

    episodes: list[list[Labelled]]
    warnings: list[str] = field(default_factory=list)


def read_labels(path: Path) -> list[Label]:
    """Return the entries of a label file; an empty list says that nothing happened.

    Raises:
        ConfigError: If it cannot be read or an entry is wrong; every fault is a line of its own.
    """
    entries = read_as_written(path)
    if not isinstance(entries, list):
        raise ConfigError(
            f"{path}: got a {_type_of(entries)}; a list of episodes is needed, [] if there was none"
        )
    labels: list[Label] = []
    faults: list[str] = []
    for number, entry in enumerate(entries, start=1):
        where = f"{path}: entry {number}"
        found = list(_faults(entry))
        faults.extend(f"{where}: {fault}" for fault in found)
        if not found:
            labels.append(_label(where, entry))
    if faults:
        raise ConfigError("\n".join(faults))
    return labels


def _type_of(value: object) -> str:
    names: Mapping[type, str] = {dict: "map", str: "single value", list: "list"}
    return names.get(type(value), "file without a value")


def _faults(entry: object) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"got a {_type_of(entry)}; a map with {', '.join(_NEEDED)} is needed"
        return
    for name in sorted(set(entry) - {*_NEEDED, *_OPTIONAL}):
        yield f"{name}: unknown; allowed here: {', '.join((*_NEEDED, *_OPTIONAL))}"
    for name in _NEEDED:
        if _text(entry, name) is None and not isinstance(entry.get(name), list | dict):
            yield f"{name}: missing; needed is {_TIMES if name != 'kind' else ', '.join(KINDS)}"
    for name, value in entry.items():
        if isinstance(value, list | dict):
            yield f"{name}: got a {_type_of(value)}; one value is needed"
    for name in ("start", "end"):
        text = _text(entry, name)
        if text is not None and moment_of(text) is None:
            yield f"{name}: got {text!r}; needed is {_TIMES}"
    kind = _text(entry, "kind")
    if kind is not None and kind not in KINDS:
        yield f"kind: got {kind!r}; allowed: {', '.join(KINDS)}"


def _text(entry: Mapping[str, Any], name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) and value not in _ABSENT else None


def moment_of(text: str) -> Moment | None:
    """Return the time that ``text`` gives; None if it gives none."""
    if text.startswith("+"):
        since_s = parse_duration(text.removeprefix("+"))
        return None if since_s is None else Moment(since_s, is_relative=True)
    time_s = parse_time(text)
    return None if time_s is None else Moment(time_s, is_relative=False)


def _label(where: str, entry: Mapping[str, Any]) -> Label:
    start, end = (moment_of(entry[name]) for name in ("start", "end"))
    assert start is not None
    assert end is not None
    others: dict[str, str | None] = {name: _text(entry, name) for name in _OPTIONAL}
    return Label(where=where, start=start, end=end, kind=entry["kind"], **others)


def place(
    labels: Sequence[Label], recordings: Sequence[Recorded], signals: Collection[str]
) -> Placed:
    """Return the episodes of each recording.

    A label that names a recording (its path, or its file's name) is of that one. Of the others one
    with a relative start is of every recording, and one at a time of day of those that it is in.

    Args:
        labels: Of one file or several.
        recordings: Those that are judged.
        signals: Those that are monitored.

    Raises:
        ConfigError: If a label fits no recording, names what is unknown, or overlaps another one
            of the same series; every fault is a line of its own.
    """
    placed = Placed([[] for _ in recordings])
    faults: list[str] = []
    for label in labels:
        named = [n for n, r in enumerate(recordings) if _is_named(label.recording, r)]
        if not named:
            placed.warnings.append(
                f"{label.where}: left out: its recording {label.recording!r} is not judged here"
            )
            continue
        if label.recording is None and not label.start.is_relative:
            inside = [n for n in named if _is_inside(label, recordings[n])]
            named = inside or named
        for n in named:
            found = list(_misfits(label, recordings[n], signals))
            faults.extend(f"{label.where}: {fault}" for fault in found)
            if not found:
                placed.episodes[n].append(_placed(label, recordings[n], placed.warnings))
    for episodes in placed.episodes:
        faults.extend(_overlaps(episodes))
    if faults:
        raise ConfigError("\n".join(dict.fromkeys(faults)))
    return placed


def _is_named(name: str | None, recording: Recorded) -> bool:
    return name is None or name in {recording.name, Path(recording.name).name}


def _is_inside(label: Label, recording: Recorded) -> bool:
    return recording.start_s <= label.start.at(recording.start_s) < recording.end_s


def _misfits(label: Label, recording: Recorded, signals: Collection[str]) -> Iterator[str]:
    start_s, end_s = (time.at(recording.start_s) for time in (label.start, label.end))
    if end_s <= start_s:
        yield f"end: {clock(end_s)} is not after start, {clock(start_s)}"
    if not _is_inside(label, recording):
        yield (
            f"start: {clock(start_s)} is outside {recording.name}, "
            f"which goes from {clock(recording.start_s)} to {clock(recording.end_s)}"
        )
    known = recording.engines
    if label.model is not None and label.model not in known:
        yield f"model: {label.model!r} is not in {recording.name}; it has {_listed(known)}"
        return
    engines = {
        engine for model, names in known.items() if label.model in {None, model} for engine in names
    }
    if label.engine is not None and label.engine not in engines:
        yield f"engine: {label.engine!r} is not in {recording.name}; it has {_listed(engines)}"
    if label.signal is not None and label.signal not in signals:
        yield f"signal: {label.signal!r} is not monitored; the signals are {_listed(signals)}"


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


def _placed(label: Label, recording: Recorded, warnings: list[str]) -> Labelled:
    start_s, end_s = (time.at(recording.start_s) for time in (label.start, label.end))
    if end_s > recording.end_s:
        warnings.append(
            f"{label.where}: end: {clock(end_s)} is after the end of {recording.name}, "
            f"{clock(recording.end_s)}, and was cut to it"
        )
    return Labelled(episode=Episode(start_s, min(end_s, recording.end_s)), label=label)


def _overlaps(episodes: Sequence[Labelled]) -> Iterator[str]:
    for first, second in combinations(episodes, 2):
        begins_s = max(first.episode.start_s, second.episode.start_s)
        ends_s = min(first.episode.end_s, second.episode.end_s)
        if begins_s < ends_s and _share_a_series(first.label, second.label):
            number = first.label.where.rpartition(" ")[2]
            yield (
                f"{second.label.where}: overlaps entry {number} from {clock(begins_s)} to "
                f"{clock(ends_s)}; episodes of one series must not: join them, or name engines "
                "or signals that differ"
            )


def _share_a_series(first: Label, second: Label) -> bool:
    scopes = ("model", "engine", "signal")
    pairs = [(getattr(first, name), getattr(second, name)) for name in scopes]
    return all(None in pair or pair[0] == pair[1] for pair in pairs)
