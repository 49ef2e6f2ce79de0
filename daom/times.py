"""Times as people write them: ISO 8601 (UTC unless it says otherwise), or Unix seconds."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def parse_time(text: str) -> float | None:
    """Return the Unix seconds that ``text`` says; None if it says none.

    >>> parse_time("2026-11-30T12:00:00Z") == parse_time("1796040000")
    True
    """
    try:
        time_s = float(text)
    except ValueError:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            return None
        time_s = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return time_s if math.isfinite(time_s) else None


def clock(time_s: float) -> str:
    """Return an event time as a person reads it, in UTC; Unix seconds beyond the calendar."""
    try:
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{time_s:.0f} s"
