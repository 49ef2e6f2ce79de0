"""How good alarms are, beside what is known to have happened.

Pure functions of alarm times and labelled episodes, all in seconds of event time, named as in
``river.drift.evaluate``. They differ from river's in this: an alarm belongs to the latest episode
that had begun, not to the earliest whose window it is in, so that no grace takes the next
episode's alarm; an episode counts once, however often it was alarmed; and the mean time between
false alarms is time observed over false alarms, which one false alarm or none is enough for.

No score means anything by itself: put it beside ``alarm_every_n_baseline``, and beside no alarm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from scipy.special import betaincinv, chdtri

_ROUNDING: Final = 1e-9
"""Of a count of intervals: ``n`` of ``observed_s / n`` fit, whatever the last bit says."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A labelled drift: it began at ``start_s`` and was over at ``end_s``.

    Raises:
        ValueError: If a time is not finite, or it ends before it starts.
    """

    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start_s) and math.isfinite(self.end_s)):
            raise ValueError(f"start_s={self.start_s} and end_s={self.end_s} must be finite")
        if self.end_s < self.start_s:
            raise ValueError(f"end_s={self.end_s} is before start_s={self.start_s}")


class Matching(NamedTuple):
    """Which alarms are whose.

    Attributes:
        hits_s: The alarms of each episode, in order; as many lists as episodes.
        false_alarms_s: The alarms that belong to none, in order.
    """

    hits_s: list[list[float]]
    false_alarms_s: list[float]


def owner_of(alarm_s: float, episodes: Sequence[Episode], grace_s: float) -> int | None:
    """Return the number of the episode that an alarm belongs to; None if it belongs to none.

    It is the latest episode that had begun by then and was not over for longer than ``grace_s``;
    both bounds count. Of two that began together it is the earlier named.

    Args:
        alarm_s: When the alarm began.
        episodes: In any order.
        grace_s: How long after its end an episode may still be found: a window has to fill.

    Raises:
        ValueError: If ``grace_s`` is negative or not a number, or ``alarm_s`` is not finite.
    """
    if not grace_s >= 0.0:
        raise ValueError(f"grace_s={grace_s}; it must be 0 or more")
    if not math.isfinite(alarm_s):
        raise ValueError(f"an alarm at {alarm_s}; its time must be finite")
    owners = (
        (episode.start_s, -number)
        for number, episode in enumerate(episodes)
        if episode.start_s <= alarm_s <= episode.end_s + grace_s
    )
    latest = max(owners, default=None)
    return None if latest is None else -latest[1]


def match(alarms_s: Sequence[float], episodes: Sequence[Episode], grace_s: float) -> Matching:
    """Return which alarms belong to which episode (``owner_of``), and which to none.

    Args:
        alarms_s: When each alarm began, in any order.
        episodes: In any order; of those that overlap, an alarm is of one.
        grace_s: How long after its end an episode may still be found.

    Raises:
        ValueError: If ``grace_s`` is negative or not a number, or an alarm's time is not finite.
    """
    hits_s: list[list[float]] = [[] for _ in episodes]
    false_alarms_s: list[float] = []
    for alarm_s in sorted(alarms_s):
        owner = owner_of(alarm_s, episodes, grace_s)
        (false_alarms_s if owner is None else hits_s[owner]).append(alarm_s)
    return Matching(hits_s, false_alarms_s)


def detection_delays(
    alarms_s: Sequence[float], episodes: Sequence[Episode], grace_s: float
) -> list[float]:
    """Return how long the first alarm of each episode took, in seconds; NaN where it was missed.

    A missed episode has no delay: leaving it out flatters, any number for it is made up. Read the
    delays beside ``missed_share``.

    >>> detection_delays([110.0, 130.0, 900.0], [Episode(100, 200), Episode(500, 600)], 60.0)
    [10.0, nan]
    """
    hits_s = match(alarms_s, episodes, grace_s).hits_s
    return [
        hits[0] - episode.start_s if hits else math.nan
        for hits, episode in zip(hits_s, episodes, strict=True)
    ]


def missed_share(alarms_s: Sequence[float], episodes: Sequence[Episode], grace_s: float) -> float:
    """Return the share of the episodes that no alarm belongs to.

    NaN without an episode: where there was nothing to find, nothing can be missed.
    """
    return 1.0 - recall(alarms_s, episodes, grace_s)


def false_alarms(
    alarms_s: Sequence[float], episodes: Sequence[Episode], grace_s: float
) -> list[float]:
    """Return the times of the alarms that belong to no episode, in order.

    >>> false_alarms([110.0, 900.0], [Episode(100, 200)], grace_s=60.0)
    [900.0]
    """
    return match(alarms_s, episodes, grace_s).false_alarms_s


def precision(alarms_s: Sequence[float], episodes: Sequence[Episode], grace_s: float) -> float:
    """Return found episodes over found episodes and false alarms.

    NaN without an alarm: nothing was said that could be right or wrong. Further alarms of a found
    episode change nothing (river counts each as a hit, and so rewards flapping).
    """
    if not alarms_s:
        return math.nan
    hits_s, false_alarms_s = match(alarms_s, episodes, grace_s)
    found = sum(map(bool, hits_s))
    return found / (found + len(false_alarms_s))


def recall(alarms_s: Sequence[float], episodes: Sequence[Episode], grace_s: float) -> float:
    """Return the share of the episodes that were found: river's ``episode_recall``.

    NaN without an episode: there was nothing to find.
    """
    if not episodes:
        return math.nan
    return sum(map(bool, match(alarms_s, episodes, grace_s).hits_s)) / len(episodes)


def f1(alarms_s: Sequence[float], episodes: Sequence[Episode], grace_s: float) -> float:
    """Return the harmonic mean of ``precision`` and ``recall``.

    That is 2 found / (2 found + false alarms + missed). NaN without an episode: there was nothing
    to find. No alarm where there was something is 0, not NaN, so that silence is never left out of
    a comparison.

    >>> f1([110.0, 900.0], [Episode(100, 200), Episode(500, 600)], grace_s=60.0)
    0.5
    """
    if not episodes:
        return math.nan
    hits_s, false_alarms_s = match(alarms_s, episodes, grace_s)
    found = sum(map(bool, hits_s))
    return 2 * found / (found + len(episodes) + len(false_alarms_s))


def mean_time_between_false_alarms(n_false: int, observed_s: float) -> float:
    """Return ``observed_s / n_false``, in seconds; infinite if there was none.

    The maximum-likelihood estimate for alarms that come as a Poisson process. River takes the mean
    gap between false alarms instead, which two are needed for and the time before the first and
    after the last does not count in.

    Args:
        n_false: How many false alarms.
        observed_s: Event time in which there could have been one.

    Raises:
        ValueError: If either is negative, or ``observed_s`` is not finite.
    """
    _check_exposure(n_false, observed_s)
    return observed_s / n_false if n_false else math.inf


def mtbfa_interval(
    n_false: int, observed_s: float, confidence: float = 0.95
) -> tuple[float, float]:
    """Return exact confidence limits of the mean time between false alarms, in seconds.

    For alarms that come as a Poisson process; those that come in clusters make the truth wider.
    Without a false alarm the upper limit is infinite and the lower one is what so quiet a time
    proves: 100 quiet hours prove, at 95 %, no more than 27 hours between two.

    >>> [round(limit_s / 3600) for limit_s in mtbfa_interval(4, 100 * 3600)]
    [10, 92]

    Raises:
        ValueError: If a count or time is negative or not finite, or ``confidence`` is not
            between 0 and 1.

    Source:
        Garwood (1936). doi:10.1093/biomet/28.3-4.437
    """
    _check_exposure(n_false, observed_s)
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}; it must be between 0 and 1")
    tail = (1.0 - confidence) / 2.0
    most = float(chdtri(2 * n_false + 2, tail)) / 2.0
    least = float(chdtri(2 * n_false, 1.0 - tail)) / 2.0 if n_false else 0.0
    return observed_s / most, observed_s / least if least else math.inf


def share_interval(n_found: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return exact confidence limits of a share of which ``n_found`` in ``n`` were seen.

    >>> share_interval(4, 4)[0] < 0.4
    True

    Raises:
        ValueError: If the counts are out of range, or ``confidence`` is not between 0 and 1.

    Source:
        Clopper and Pearson (1934). doi:10.1093/biomet/26.4.404
    """
    if not 0 <= n_found <= n or n == 0:
        raise ValueError(f"{n_found} of {n}; it must be 0 to n, of 1 or more")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}; it must be between 0 and 1")
    tail = (1.0 - confidence) / 2.0
    least = float(betaincinv(n_found, n - n_found + 1, tail)) if n_found else 0.0
    most = float(betaincinv(n_found + 1, n - n_found, 1.0 - tail)) if n_found < n else 1.0
    return least, most


def alarm_every_n_baseline(observed_s: float, every_s: float, *, phase: float = 1.0) -> list[float]:
    """Return the alarms of a clock that knows nothing: the baseline that any score must beat.

    Set ``every_s`` to ``observed_s`` over the alarms of a detector, or to its target. Where an
    alarm falls is luck; average over phases before comparing delays.

    Args:
        observed_s: Seconds of observation.
        every_s: Seconds between two alarms; infinite: it never alarms.
        phase: When the first one comes, as a fraction of ``every_s``: above 0, up to 1.

    Returns:
        Times since the beginning of the observation, in seconds, in order.

    Raises:
        ValueError: If a time is out of range, or ``phase`` is.

    >>> alarm_every_n_baseline(100.0, 30.0)
    [30.0, 60.0, 90.0]
    """
    _check_exposure(0, observed_s)
    if not every_s > 0.0:
        raise ValueError(f"every_s={every_s}; it must be above 0")
    if not 0.0 < phase <= 1.0:
        raise ValueError(f"phase={phase}; it must be above 0 and at most 1")
    if math.isinf(every_s):
        return []
    last = math.floor(observed_s / every_s - phase + 1.0 + _ROUNDING)
    return [min((number + phase) * every_s, observed_s) for number in range(last)]


def _check_exposure(n_false: int, observed_s: float) -> None:
    if n_false < 0:
        raise ValueError(f"n_false={n_false}; a count is 0 or more")
    if not 0.0 <= observed_s < math.inf:
        raise ValueError(f"observed_s={observed_s}; it must be finite and 0 or more")
