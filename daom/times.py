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
