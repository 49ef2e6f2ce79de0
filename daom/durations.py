"""Durations as people write them: 90s, 5m, 1h30m, 30d."""

from __future__ import annotations

import re
from typing import Final

_UNIT_S: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_TWO_DIGITS: Final = 10.0
"""From here on a number needs no decimal."""
_DURATION: Final = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in _UNIT_S))
DURATION_PATTERN: Final = "^(?=.)" + "".join(rf"(\d+(\.\d+)?{unit})?" for unit in _UNIT_S) + "$"
"""The same as a JSON Schema has it."""


def parse_duration(text: str) -> float | None:
    """Return the seconds that ``text``, such as ``1h30m`` or ``45s``, says; None if it is none."""
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        return None
    return sum(_UNIT_S[unit] * float(number or 0.0) for unit, number in found.groupdict().items())


def duration_words(duration_s: float) -> str:
    """Return a duration in the largest unit of which there are at least two: 90s, 2.5m, 30d."""
    for unit_s, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "m")):
        if duration_s >= 2.0 * unit_s:
            number = duration_s / unit_s
            return f"{number:.1f}{unit}" if number < _TWO_DIGITS else f"{number:.0f}{unit}"
    return f"{duration_s:.0f}s"
