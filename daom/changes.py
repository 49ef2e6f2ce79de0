"""A change as people and pipelines tell it: a few words in, a ChangeEvent out.

Stricter than the codec, which takes what producers have already written: whoever is asking can be
told what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn, get_args

from daom.codec import MAX_UNIX_S
from daom.durations import parse_duration
from daom.errors import MalformedRecord
from daom.events import ChangeEvent, ChangeKind, Source
from daom.times import parse_time

CHANGE_KINDS: Final[tuple[ChangeKind, ...]] = get_args(ChangeKind)
CHANGE_FIELDS: Final = ("model", "kind", "version", "engine", "detail", "until", "at")
TIME_WORDS: Final = "ISO 8601 such as 2026-11-30T12:00:00Z (UTC unless it says otherwise), or Unix"
MAX_WORDS: Final = 1_000
"""Characters of a field: a change is read in an alert's annotation."""

_UNTIL_WORDS: Final = f"a duration such as 45m or 1h30m, {TIME_WORDS} seconds"


def change_event(fields: Mapping[str, object], now_s: float) -> ChangeEvent:
    """Return the change that ``fields`` tell of; None stands for a field that is not given.

    Args:
        fields: By the names of ``CHANGE_FIELDS``: texts, and ``at`` and ``until`` may be numbers.
            ``until`` may be a duration, which counts from ``at``.
        now_s: When it happened unless ``at`` says otherwise, Unix seconds.

    Raises:
        MalformedRecord: If one is missing, unknown or wrong: says what is allowed.
    """
    unknown = sorted(fields.keys() - set(CHANGE_FIELDS))
    if unknown:
        _refuse("wrong_type", unknown[0], f"unknown; allowed: {', '.join(CHANGE_FIELDS)}")
    words = {name: _words(fields, name) for name in ("model", "kind", "version", "engine")}
    for name in ("model", "kind"):
        if not words[name]:
            _refuse("missing_field", name, "needed")
    kind = words["kind"]
    if kind not in CHANGE_KINDS:
        _refuse("wrong_type", "kind", f"got {kind!r}; allowed: {', '.join(CHANGE_KINDS)}")
    if kind == "stop" and words["engine"] is None:
        _refuse("missing_field", "engine", "needed: a stop is of one engine, gone for good")
    time_s = _time(fields, "at", f"{TIME_WORDS} seconds")
    time_s = now_s if time_s is None else time_s
    return ChangeEvent(
        source=Source(model=words["model"] or "", engine=words["engine"]),
        time_s=time_s,
        kind=kind,
        version=words["version"],
        detail=_words(fields, "detail"),
        until_s=_until(fields, kind, time_s),
    )


def change_fields(change: ChangeEvent) -> dict[str, str | float | None]:
    """Return what was told, for scripts: the fields by name, times in Unix seconds."""
    return {
        "model": change.source.model,
        "kind": change.kind,
        "version": change.version,
        "engine": change.source.engine,
        "detail": change.detail,
        "at_s": change.time_s,
        "until_s": change.until_s,
    }


def _words(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_WORDS:
        _refuse("wrong_type", name, f"got {value!r:.80}; 1 to {MAX_WORDS} characters are needed")
    return value.strip()


def _time(fields: Mapping[str, object], name: str, allowed: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    time_s = parse_time(str(value)) if is_number or isinstance(value, str) else None
    if time_s is None or not 0.0 <= time_s <= MAX_UNIX_S:
        _refuse("wrong_type", name, f"got {value!r:.80}; needed: {allowed}")
    return time_s


def _until(fields: Mapping[str, object], kind: str, time_s: float) -> float | None:
    value = fields.get("until")
    if kind != "maintenance":
        if value is not None:
            _refuse("wrong_type", "until", f"only maintenance has an end; the kind is {kind}")
        return None
    if value is None:
        _refuse("missing_field", "until", f"needed for maintenance: {_UNTIL_WORDS}")
    lasts_s = parse_duration(value) if isinstance(value, str) else None
    until_s = _time(fields, "until", _UNTIL_WORDS) if lasts_s is None else time_s + lasts_s
    if until_s is None or not time_s < until_s <= MAX_UNIX_S:
        _refuse("time_out_of_range", "until", f"got {value!r}; it is to end after it begins")
    return until_s


def _refuse(kind: str, field: str, reason: str) -> NoReturn:
    raise MalformedRecord(kind, field, reason)
