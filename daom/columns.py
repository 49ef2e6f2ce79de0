"""The columns of one table as they came, checked value by value.

A fault in the columns themselves (unequal lengths, no numbers) is raised; a value that cannot be a
measurement is left out, and its fault is noted for the caller to dead-letter.
"""

from __future__ import annotations

import math
from typing import Any, Final, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from daom.errors import MalformedRecord
from daom.events import Table
from daom.limits import LIMIT_WORDS, LimitName, Limits

ROW_TIME_SLACK_S: Final = 60.0
"""How far a row may lie outside the span its batch declares; the span is then widened."""

_LARGEST: Final = 1e30
"""No gauge is larger; sums of many stay finite."""
_NON_NEGATIVE_SUFFIXES: Final = ("_s", "tokens", "_total", "_bytes")
_NON_NEGATIVE_NAMES: Final = frozenset({"running", "waiting", "preemptions", "kv_usage"})


class TableColumns:
    """The columns of one table.

    Args:
        name: The table's name, for the faults.
        raw: What the record holds under it.
        faults: Appended to for every value that is left out.
        limits: How many columns and rows there may be.
    """

    def __init__(
        self, name: str, raw: object, faults: list[MalformedRecord], limits: Limits
    ) -> None:
        if not isinstance(raw, dict):
            refuse("wrong_type", name, raw, "a map from column names to columns is needed")
        check_names(raw, name, limits)
        self.name = name
        self.end_s: NDArray[np.float64] | None = None
        self.columns: dict[str, NDArray[np.float32]] = {}
        self.text: dict[str, list[str | None]] = {}
        for column, values in raw.items():
            field = f"{name}.{column}"
            if column == "end_s":
                self.end_s = cast("NDArray[np.float64]", _numeric(values, field, np.dtype("<f8")))
            elif _is_text(values):
                self.text[column] = values
            else:
                numbers = cast("NDArray[np.float32]", _numeric(values, field, np.dtype("<f4")))
                self.columns[column] = _usable(numbers, values, field, faults)
        self.rows = self._common_length()
        check_limit("rows", self.rows, limits.rows, name)

    def _common_length(self) -> int:
        lengths = {name: len(values) for name, values in (self.columns | self.text).items()}
        if self.end_s is not None:
            lengths["end_s"] = self.end_s.size
        if len(set(lengths.values())) > 1:
            refuse("columns_unequal", self.name, lengths, "all columns need one length")
        return next(iter(lengths.values()), 0)

    def table(self, start_s: float, end_s: float, faults: list[MalformedRecord]) -> Table:
        """Return the table; rows far outside its batch's span are left out and noted."""
        if self.end_s is None:
            times = np.full(self.rows, end_s)
            return Table(end_s=times, columns=self.columns, text=self.text)
        lo, hi = start_s - ROW_TIME_SLACK_S, end_s + ROW_TIME_SLACK_S
        if not self.rows or (self.end_s.min() >= lo and self.end_s.max() <= hi):
            return Table(end_s=self.end_s, columns=self.columns, text=self.text)
        keep = (self.end_s >= lo) & (self.end_s <= hi)
        first = int(np.argmin(keep))
        faults.append(
            MalformedRecord(
                "time_outside_batch",
                f"{self.name}.end_s[{first}]",
                f"got {float(self.end_s[first])!r}; within {ROW_TIME_SLACK_S:.0f} s of the batch's "
                f"{start_s!r} to {end_s!r} is allowed; {int((~keep).sum())} rows left out",
            )
        )
        kept = np.flatnonzero(keep).tolist()
        return Table(
            end_s=self.end_s[keep],
            columns={name: values[keep] for name, values in self.columns.items()},
            text={name: [values[i] for i in kept] for name, values in self.text.items()},
        )


def refuse(kind: str, field: str, got: object, allowed: str) -> NoReturn:
    """Raise the fault that ``field`` is ``got``, which is not ``allowed``."""
    raise MalformedRecord(kind, field, f"got {got!r:.200}; {allowed}")


def check_limit(limit: LimitName, got: int, allowed: int, field: str) -> None:
    """Refuse a record of which ``field`` has more than is allowed."""
    if got > allowed:
        reason = (
            f"got {got} {LIMIT_WORDS[limit].partition(' of ')[0]}; at most {allowed} are allowed"
        )
        raise MalformedRecord("too_large", field, reason, limit=limit, allowed=allowed)


def check_names(raw: dict[Any, Any], field: str, limits: Limits) -> None:
    """Refuse a map with too many names, too long ones, or names that are no words."""
    check_limit("columns", len(raw), limits.columns, field)
    for name in raw:
        if not isinstance(name, str):
            refuse("wrong_type", field, name, "names are words")
        check_limit("name_chars", len(name), limits.name_chars, field)


def as_number(value: object) -> float | None:
    """Return ``value`` as a float; None if it is no number; infinity if it is beyond measure."""
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    return math.inf if abs(number) > _LARGEST else number


def _is_text(values: object) -> bool:
    return (
        isinstance(values, list)
        and any(isinstance(v, str) for v in values)
        and all(v is None or isinstance(v, str) for v in values)
    )


def _numeric(values: object, field: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return ``values`` as an array of ``dtype``, None as NaN."""
    if isinstance(values, bytes):
        if len(values) % dtype.itemsize:
            refuse(
                "wrong_type",
                field,
                f"{len(values)} bytes",
                f"a whole number of little-endian float{8 * dtype.itemsize} is needed",
            )
        return np.frombuffer(values, dtype)
    if not isinstance(values, list):
        refuse("wrong_type", field, values, "a list of numbers, or a buffer, is needed")
    wrong = next((v for v in values if not isinstance(v, int | float | None)), None)
    if wrong is not None:
        refuse("wrong_type", field, wrong, "a number or null is needed")
    try:
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(dtype)
    except OverflowError:
        refuse("not_finite", field, "an integer beyond float64", "a number is needed")


def _usable(
    numbers: NDArray[np.float32], values: object, field: str, faults: list[MalformedRecord]
) -> NDArray[np.float32]:
    """Return ``numbers`` with what cannot be a measurement replaced by NaN."""
    if not numbers.size:
        return numbers
    low, high = float(numbers.min()), float(numbers.max())
    lowest = 0.0 if _is_non_negative(field.rpartition(".")[2]) else -math.inf
    if low >= lowest and math.isfinite(low) and math.isfinite(high):
        return numbers
    not_finite = ~np.isfinite(numbers)
    if isinstance(values, list):
        not_finite &= np.array([v is not None for v in values])
    negative = np.isfinite(numbers) & (numbers < lowest)
    usable = numbers.astype(np.float32)
    for kind, bad, allowed in (
        ("not_finite", not_finite, "a finite number, or null for 'not measured', is needed"),
        ("negative", negative, "0 or more is allowed"),
    ):
        if bad.any():
            first = int(np.argmax(bad))
            faults.append(
                MalformedRecord(
                    kind,
                    f"{field}[{first}]",
                    f"got {float(numbers[first])!r}; {allowed}; {int(bad.sum())} values left out",
                )
            )
            usable[bad] = np.nan
    return usable


def _is_non_negative(column: str) -> bool:
    return column.endswith(_NON_NEGATIVE_SUFFIXES) or column in _NON_NEGATIVE_NAMES


def usable_numbers(
    raw: object, field: str, faults: list[MalformedRecord], limits: Limits
) -> dict[str, float]:
    """Return the numbers of a map from names to numbers; note those that cannot be used."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        refuse("wrong_type", field, raw, "a map from names to numbers is needed")
    check_names(raw, field, limits)
    numbers: dict[str, float] = {}
    for name, value in raw.items():
        if value is None:
            continue
        number = as_number(value)
        if number is None:
            kind, allowed = "wrong_type", "a number is needed"
        elif not math.isfinite(number):
            kind, allowed = "not_finite", f"a number up to {_LARGEST:g} is needed"
        elif number < 0 and _is_non_negative(name):
            kind, allowed = "negative", "0 or more is allowed"
        else:
            numbers[name] = number
            continue
        reason = f"got {value!r:.80}; {allowed}; left out"
        faults.append(MalformedRecord(kind, f"{field}.{name}", reason))
    return numbers
