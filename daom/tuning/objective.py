"""What a setting is worth, in an operator's words: caught in time, then quiet, then soon.

Settings are compared by, in this order,

1. whether they came to judge anything,
2. incidents (of kind degradation) that no alert had caught within so long of their onset
   (``--catch-within``): the fewer the better,
3. alerts that page (warning and critical, one an incident of DAOM's): the fewer the better, whether
   they are right or not, since each of them wakes somebody,
4. the delays of the incidents together: the shorter the better. One that was missed counts as long
   as it could have been found.

Each counts only where all before it are equal. Which alerts are whose, and what is found, is
``daom.evaluate``'s to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from daom.evaluate import Case, Rules, judge, sought
from daom.heard import Interval
from detectors.evaluation import mtbfa_interval, share_interval

WEEK_S: Final = 7 * 86_400.0

Worth = tuple[bool, int, int, float]
"""What is compared, in order; less is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How a setting did on one part of the source.

    Attributes:
        judged: Whether any series came to be judged.
        observed_s: Event time in which something was recorded.
        delays_s: Of each incident, in order: seconds to the first alert that is right; None where
            it was missed.
        allowed_s: As long each could have been found: to its end and the grace.
        alerts: Those that page; ``false_alarms`` of them are right of no incident.
    """

    judged: bool
    observed_s: float
    delays_s: Sequence[float | None]
    allowed_s: Sequence[float]
    alerts: int
    false_alarms: int

    def caught(self, within_s: float) -> int:
        """Return how many incidents were caught within ``within_s``."""
        return sum(delay_s is not None and delay_s <= within_s for delay_s in self.delays_s)

    def caught_interval(self, within_s: float) -> Interval | None:
        """Return 95 % limits of the share that is caught; None without an incident."""
        n = len(self.delays_s)
        return share_interval(self.caught(within_s), n) if n else None

    def meets(self, within_s: float) -> bool:
        """Return whether every incident was caught within ``within_s``."""
        return self.judged and self.caught(within_s) == len(self.delays_s)

    def worth(self, within_s: float) -> Worth:
        """Return what settings are compared by; less is better."""
        late = len(self.delays_s) - self.caught(within_s)
        return not self.judged, late, self.alerts, self.total_delay_s

    @property
    def total_delay_s(self) -> float:
        """The delays together; a missed incident counts as long as it could have been found."""
        pairs = zip(self.delays_s, self.allowed_s, strict=True)
        return math.fsum(allowed if delay is None else delay for delay, allowed in pairs)

    @property
    def found_delays_s(self) -> list[float]:
        """The delays of those that were found."""
        return [delay_s for delay_s in self.delays_s if delay_s is not None]

    @property
    def alerts_a_week(self) -> float:
        """Alerts over observed time; NaN where nothing was observed."""
        return self.alerts * WEEK_S / self.observed_s if self.observed_s else math.nan

    @property
    def alerts_a_week_interval(self) -> Interval:
        """Its exact 95 % limits for alerts that come as a Poisson process."""
        if not self.observed_s:
            return 0.0, math.inf
        least_s, most_s = mtbfa_interval(self.alerts, self.observed_s)
        return WEEK_S / most_s, WEEK_S / least_s


def figures(case: Case, rules: Rules, observed_s: float) -> Figures:
    """Return how the setting that ``case`` was heard under did on it."""
    score = judge("alerts", [case], rules)
    episodes = [labelled.episode for labelled in sought("alerts", case.episodes)]
    return Figures(
        judged=case.heard.was_judged,
        observed_s=observed_s,
        delays_s=[None if math.isnan(delay_s) else delay_s for delay_s in score.delays_s],
        allowed_s=[e.end_s + rules.grace_s - e.start_s for e in episodes],
        alerts=score.alarms,
        false_alarms=score.false_alarms,
    )


def as_number(worth: Worth) -> float:
    """Return a number that orders as ``worth`` does, for an optimiser that wants one.

    It holds up to a million alerts, and orders delays down to a hundredth of a second or so.
    """
    unjudged, late, alerts, delay_s = worth
    return (unjudged * 1e3 + late) * 1e6 + min(alerts, 999_999) + delay_s / (delay_s + 3_600.0)
