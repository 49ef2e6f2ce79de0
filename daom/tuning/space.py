"""The settings that are tried: dotted fields of the configuration, and the values of each.

    detector.false_alarm_interval_s: [1d, 7d, 30d]
    alerts.min_slowdown: {from: 0.05, to: 0.5}        # log: true; steps: 10
    preset: [default, sits2026]

Fields of two kinds are told apart. What a field of ``ALERTING`` says is asked after a pane has been
judged, so all its values are tried on one replay; every other value takes a replay of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, Final

import yaml

from daom.config import Config, SignalConfig
from daom.durations import parse_duration
from daom.errors import ConfigError

Value = str | int | float | bool | None
Setting = Mapping[str, Value]
"""Values by dotted field."""

SECTIONS: Final = ("preset", "signals", "time", "detector", "threshold", "alerts")
"""What changes what is said; the rest of the configuration is no matter of tuning."""
ALERTING: Final = frozenset(
    f"alerts.{name}"
    for name in (
        "pending_s",
        "resolve_s",
        "cooldown_s",
        "min_slowdown",
        "critical_slowdown",
        "fleet_share",
    )
)
MAX_VARIANTS: Final = 256
"""Combinations of alert settings that one replay may carry: each costs it a few hundredths."""
BUILT_IN: Final = """\
detector.false_alarm_interval_s: [1d, 7d, 30d]
alerts.min_slowdown: [0.1, 0.15, 0.2, 0.3, 0.4, 0.5]
alerts.pending_s: [0, 30, 60, 120, 180]
"""
"""The space that is searched where none is given."""

_RANGE_KEYS: Final = ("from", "to", "log", "steps")
_DEFAULT_STEPS: Final = 5
_MOST_NEAR: Final = 3
_DIGITS: Final = 3
"""Of a value between two ends: nobody wants to read more."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A field, and the values that it may have."""

    field: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """A field that may have any value from ``low`` to ``high``; ``whole`` numbers alone, or not."""

    field: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def rounded(self, value: float) -> Value:
        """Return ``value`` with few digits, within the ends."""
        short = min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)
        return round(short) if self.whole else short

    def cut(self, steps: int) -> Choice:
        """Return ``steps`` values from end to end, at equal distances or, if ``log``, ratios."""
        shares = [number / (steps - 1) for number in range(steps)]
        if self.log:
            found = [self.low * (self.high / self.low) ** share for share in shares]
        else:
            found = [self.low + (self.high - self.low) * share for share in shares]
        return Choice(self.field, tuple(dict.fromkeys(map(self.rounded, found))))


@dataclass(frozen=True, slots=True)
class Space:
    """The fields that are tried, in the order they were written."""

    fields: tuple[Choice | Range, ...]

    @property
    def judging(self) -> tuple[Choice | Range, ...]:
        """Those whose every value takes a replay of its own."""
        return tuple(field for field in self.fields if field.field not in ALERTING)

    @property
    def alerting(self) -> tuple[Choice, ...]:
        """Those whose values one replay tries all; a range is cut into a few."""
        found = (field for field in self.fields if field.field in ALERTING)
        return tuple(f if isinstance(f, Choice) else f.cut(_DEFAULT_STEPS) for f in found)

    def grid(self) -> list[Setting] | None:
        """Return every combination of the judging fields; None if one of them is a range."""
        choices = [field for field in self.judging if isinstance(field, Choice)]
        return _combined(choices) if len(choices) == len(self.judging) else None

    def variants(self) -> list[Setting]:
        """Return every combination of the alerting fields."""
        return _combined(self.alerting)


def _combined(choices: Sequence[Choice]) -> list[Setting]:
    names = [choice.field for choice in choices]
    values = product(*(choice.values for choice in choices))
    return [dict(zip(names, combination, strict=True)) for combination in values]


def read_space(path: Path | None) -> Space:
    """Return the space that a file describes; None: the built-in one.

    Raises:
        ConfigError: If it cannot be read or says something else; every fault is a line of its own.
            Whether the configuration takes the values is not asked here.
    """
    if path is None:
        return parse_space(BUILT_IN, "the built-in space")
    try:
        return parse_space(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not YAML in UTF-8") from error


def parse_space(text: str, where: str) -> Space:
    """Return the space that ``text`` describes; messages call it ``where``.

    Raises:
        ConfigError: As ``read_space`` does.
    """
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict) or not given:
        raise ConfigError(
            f"{where}: got {_described(given)}; a map of dotted fields is needed, such as "
            "alerts.pending_s: [30, 60, 120]"
        )
    faults = [f"{where}: {field}: {why}" for field in given for why in _faults(field, given[field])]
    if faults:
        raise ConfigError("\n".join(faults))
    space = Space(tuple(_field(name, values) for name, values in given.items()))
    variants = math.prod(len(choice.values) for choice in space.alerting)
    if variants > MAX_VARIANTS:
        raise ConfigError(
            f"{where}: {variants} combinations of {', '.join(c.field for c in space.alerting)}; "
            f"at most {MAX_VARIANTS} are tried on a replay: give fewer values, or steps"
        )
    return space


def _described(given: object) -> str:
    return "nothing" if not given else f"a {type(given).__name__}"


def _faults(field: object, given: object) -> Iterator[str]:
    section = str(field).partition(".")[0]
    known = _fields()
    if field in SECTIONS and field not in known:
        yield f"is a section; name its fields, such as {field}.NAME: [...]"
        return
    if field not in known and section != "signals":
        near = get_close_matches(str(field), known, n=_MOST_NEAR)
        offered = f"near it are {', '.join(near)}; " if near else ""
        yield f"unknown; {offered}what can be tuned are the fields of {', '.join(SECTIONS)}"
    if isinstance(given, dict):
        yield from _range_faults(given)
    elif not isinstance(given, list):
        yield f"got {given!r}; a list of values is needed, or {{from: ..., to: ...}}"
    elif not given:
        yield "got an empty list; a value is needed at least"
    else:
        for value in given:
            if isinstance(value, list | dict):
                yield f"got {value!r} among the values; single values are needed"
            elif given.count(value) > 1 and value is not True and value is not False:
                yield f"{value!r} is there twice"
                return


def _fields() -> list[str]:
    """Return the dotted names of what can be tuned; signals may have others, too."""
    found = ["preset"]
    for section in SECTIONS[1:]:
        fields = getattr(Config.model_fields[section].annotation, "model_fields", {})
        found.extend(f"{section}.{name}" for name in fields)
    signals = SignalConfig.model_fields
    return [*found, *(f"signals.{name}.{field}" for name in Config().signals for field in signals)]


def _range_faults(given: Mapping[str, Any]) -> Iterator[str]:
    unknown = sorted(set(map(str, given)) - set(_RANGE_KEYS))
    if unknown:
        yield f"{unknown[0]}: unknown; a range has {', '.join(_RANGE_KEYS)}"
    ends = {name: _number(given.get(name)) for name in ("from", "to")}
    for name, value in ends.items():
        if name not in given:
            yield f"{name}: missing; a range has {', '.join(_RANGE_KEYS)}"
        elif value is None:
            yield f"{name}: got {given[name]!r}; a number is needed, or a duration such as 30d"
    low, high = ends.values()
    if low is not None and high is not None and low >= high:
        yield f"from {given['from']!r} to {given['to']!r} is no range: from must be below to"
    log, steps = given.get("log", False), given.get("steps", 2)
    if not isinstance(log, bool):
        yield f"log: got {log!r}; true or false is needed"
    elif log and low is not None and low <= 0.0:
        yield f"from: got {given['from']!r}; with log: true it must be above 0"
    if not isinstance(steps, int) or isinstance(steps, bool) or not 2 <= steps <= MAX_VARIANTS:  # noqa: PLR2004 - two ends.
        yield f"steps: got {steps!r}; 2 to {MAX_VARIANTS} is allowed"


def _number(value: object) -> float | None:
    """Return the number, or the seconds of the duration, that ``value`` is."""
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _field(name: str, given: Any) -> Choice | Range:
    if isinstance(given, list):
        return Choice(name, tuple(given))
    low, high = _number(given["from"]), _number(given["to"])
    assert low is not None
    assert high is not None
    found = Range(name, low, high, log=given.get("log", False), whole=_is_whole(name))
    return found.cut(given["steps"]) if "steps" in given else found


def _is_whole(name: str) -> bool:
    """Return whether the configuration takes whole numbers alone for the field ``name``."""
    section: Any = Config
    for part in name.split("."):
        fields = getattr(section, "model_fields", {})
        section = fields[part].annotation if part in fields else None
    return section is int
