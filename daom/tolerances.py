"""Tolerances: how far B may be from A, written down by a person.

A tolerance file is a YAML or JSON map from signals, or any numeric columns, to statistics:

    ttft_s: {p95: 5ms, p99: 10%}     # may be slower by so much; faster by anything
    itl_s: {mean: +-2%}              # may be neither slower nor faster by more
    accuracy: {mean: 0.3}            # in the column's own unit, either way
    requests.score: {p50: -0.1}      # may be lower by so much; higher by anything

A plain tolerance of a time (a name that ends in ``_s``) counts what is slower, one of any other
column counts both ways; a sign (+, -, +-) says it. A column that is no configured signal may be
named with its table, ``requests.`` or ``steps.``, and must be where both tables have it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from daom.as_written import read_as_written
from daom.errors import ConfigError
from detectors.decision import Tolerance

_UNITS_S: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip
_TOLERANCE: Final = re.compile(
    r"(?P<sign>\+-|±|\+|-|)\s*(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>%|[a-zµμ]*)"
)
_QUANTILE: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?)", re.IGNORECASE)
_FORMS: Final = "such as 5ms, 10%, 0.3, or with a sign: +5ms, -0.3, +-2%"


class Statistic(NamedTuple):
    """The mean (``level`` None) or a quantile: ``p95`` has level 0.95."""

    name: str
    level: float | None


MEAN: Final = Statistic("mean", None)
USUAL: Final = (MEAN, Statistic("p50", 0.5), Statistic("p95", 0.95), Statistic("p99", 0.99))
"""What is always compared."""


class Wanted(NamedTuple):
    """A tolerance, and the text that said it."""

    tolerance: Tolerance
    text: str


Tolerances = Mapping[str, Mapping[Statistic, Wanted]]
"""By the column's name, as it was written."""


def statistic_of(name: str) -> Statistic | None:
    """Return the statistic that ``name`` says, such as mean, p50 or p99.9; None if it is none."""
    if name.lower() == MEAN.name:
        return MEAN
    found = _QUANTILE.fullmatch(name)
    level = float(found[1]) / 100.0 if found else 0.0
    return Statistic(f"p{float(found[1]):g}", level) if found and 0.0 < level < 1.0 else None


def tolerance_of(text: str, column: str) -> Tolerance:
    """Return the tolerance of ``column`` that ``text`` says.

    Raises:
        ValueError: If it says none; the message says what is allowed.
    """
    found = _TOLERANCE.fullmatch(text.strip())
    size = float(found["number"]) if found else math.nan
    if found is None or not 0.0 < size < math.inf:
        raise ValueError(f"got {text!r:.80}; a number above 0 is needed, {_FORMS}")
    is_time, unit = column.endswith("_s"), found["unit"]
    if unit and unit != "%":
        if not is_time or unit not in _UNITS_S:
            allowed = f"%, or one of {', '.join(_UNITS_S)}" if is_time else "% or none"
            raise ValueError(f"got {text!r:.80}; the unit of {column} may be {allowed}")
        size *= _UNITS_S[unit]
    relative = unit == "%"
    size = size / 100.0 if relative else size
    sign = found["sign"] or ("+" if is_time else "+-")
    return Tolerance(
        increase=None if sign == "-" else size,
        decrease=None if sign == "+" else size,
        relative=relative,
    )


def read_tolerances(path: Path) -> Tolerances:
    """Return the tolerances of a file.

    Raises:
        ConfigError: If it cannot be read or a tolerance is wrong; every fault is a line of its own.
    """
    columns = read_as_written(path)
    if not isinstance(columns, dict) or not columns:
        raise ConfigError(f"{path}: a map is needed, such as ttft_s: {{p95: 5ms, p99: 10%}}")
    tolerances: dict[str, dict[Statistic, Wanted]] = {}
    faults: list[str] = []
    for column, statistics in columns.items():
        wanted = tolerances.setdefault(column, {})
        faults.extend(f"{path}: {fault}" for fault in _read(column, statistics, wanted))
    if faults:
        raise ConfigError("\n".join(faults))
    return tolerances


def _read(column: str, statistics: Any, wanted: dict[Statistic, Wanted]) -> Iterator[str]:
    """Put the tolerances of one column into ``wanted``; yield what is wrong with them."""
    if not isinstance(statistics, dict) or not statistics:
        yield f"{column}: a map from statistics is needed, such as {{p95: 5ms, mean: 2%}}"
        return
    for name, text in statistics.items():
        statistic = statistic_of(name)
        if statistic is None:
            yield f"{column}.{name}: unknown; allowed are mean, and p50, p95, p99.9 and the like"
        elif statistic in wanted:
            yield f"{column}.{name}: is there twice"
        elif not isinstance(text, str):
            yield f"{column}.{name}: one tolerance is needed, {_FORMS}"
        else:
            try:
                wanted[statistic] = Wanted(tolerance_of(text, column), text.strip())
            except ValueError as error:
                yield f"{column}.{name}: {error}"
