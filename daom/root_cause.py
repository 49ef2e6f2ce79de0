"""Where to look first: causes ranked by the evidence for each, or ``unknown``.

Each suspect is a pure function from the evidence to a ``Cause`` or None. A score is how well the
evidence fits, 0 to 1; below ``MIN_SCORE`` nobody is blamed, and the answer is ``unknown``: a wrong
name costs the on-call more than none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from daom.context import NOTABLE_Z, Shift, is_surge
from daom.events import Attribution, Cause, ChangeEvent
from daom.gpu_readings import HOT_C

MIN_SCORE: Final = 0.5
CHANGE_WINDOW_S: Final = 1_800.0
NEW_S: Final = 300.0
"""An engine is new for so long."""
_NAMED: Final = 3
_ONSET_SLACK_S: Final = 60.0
_KV_SATURATED: Final = 0.95
_LONG_QUEUE_S: Final = 0.1
_PREEMPTIONS_PER_S: Final = 0.05
"""From here on it is more than one request now and then."""
_SLOWER_CLOCK: Final = 0.99
_THERMAL: Final = ("gpu_sm_clock_mhz", "gpu_throttle_thermal", "gpu_temperature_c", "gpu_power_w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known at the time of a drift.

    Attributes:
        signal: The signal that drifted, such as ``ttft_s``.
        onset_s: When it began.
        shifts: How far each reported quantity is from its usual level, by name.
        changes: Changes announced for the model or the engine, oldest first.
        engines: Engines of the model that were judged; ``drifting_engines`` of them drift too.
        measurement_jumped: The signal has, and what else tells the same has not.
        newcomers: Engines that began shortly before the onset, where no older one drifts.
    """

    signal: str
    onset_s: float
    attribution: Attribution
    shifts: Mapping[str, Shift]
    changes: Sequence[ChangeEvent] = ()
    engines: int = 1
    drifting_engines: int = 1
    measurement_jumped: bool = False
    newcomers: Sequence[str] = ()

    def up(self, name: str, by: float = 1.25) -> Shift | None:
        """Return the shift of ``name`` if it rose notably: in spreads, and by the factor ``by``."""
        shift = self.shifts.get(name)
        if shift is None or shift.z < NOTABLE_Z or shift.now < by * shift.usual:
            return None
        return shift

    def down(self, name: str, by: float = 0.9) -> Shift | None:
        """Return the shift of ``name`` if it fell notably, to ``by`` of its usual level or less."""
        shift = self.shifts.get(name)
        if shift is None or shift.z > -NOTABLE_Z or shift.now > by * shift.usual:
            return None
        return shift

    def preempts(self) -> Shift | None:
        """Return how many requests are preempted, if that is more than usual."""
        shift = self.up("preemptions_per_s")
        return shift if shift is not None and shift.now >= _PREEMPTIONS_PER_S else None

    def is_dead(self, name: str) -> bool:
        """Return whether a gauge is missing, or has never moved: it says nothing of pressure."""
        shift = self.shifts.get(name)
        return shift is None or not shift.has_moved


Suspect = Callable[[Evidence], Cause | None]


def measurement_change(evidence: Evidence) -> Cause | None:
    """The steps' gap between tokens has jumped and the requests' has not: it is measured anew."""
    names = ("itl_ratio", "step_itl_s", "request_itl_s")
    found = tuple(evidence.shifts[name].words(name) for name in names if name in evidence.shifts)
    if not evidence.measurement_jumped or not found:
        return None
    # Nobody measures otherwise all of a sudden, unless something was changed.
    changed = recent_change(evidence)
    score = 0.95 if changed is not None else 0.8
    return Cause(
        cause="measurement_change",
        score=score,
        evidence=(*found, *(changed.evidence if changed is not None else ())),
    )


def queue_saturation(evidence: Evidence) -> Cause | None:
    """Requests wait for a batch slot: the engine is given more than it can take."""
    waiting, queue = evidence.up("waiting"), evidence.up("queue_s")
    if waiting is None or waiting.now < 1.0:
        if queue is None or queue.now < _LONG_QUEUE_S or not evidence.is_dead("waiting"):
            return None
        waiting = None
    found = [waiting.words("waiting")] if waiting else ["waiting has never moved: a dead gauge"]
    score = 0.75
    for name in ("queue_s", "running"):
        shift = evidence.up(name)
        if shift is not None:
            score += 0.08
            found.append(shift.words(name))
    kv = evidence.shifts.get("kv_usage")
    is_full = kv is not None and kv.now >= _KV_SATURATED
    lacks_memory = is_full or evidence.preempts() is not None
    if kv is not None and not lacks_memory and not evidence.is_dead("kv_usage"):
        found.append(f"kv_usage only {kv.now:.2f}: slots, not KV memory")
    if lacks_memory or traffic_surge(evidence) is not None:
        # The queue is the effect: of memory, for want of which requests are preempted, or a surge.
        score -= 0.2
    return Cause(cause="queue_saturation", score=score, evidence=tuple(found))


def traffic_surge(evidence: Evidence) -> Cause | None:
    """More requests arrive than usual."""
    arrivals = evidence.shifts.get("arrivals_per_s")
    if arrivals is None or not is_surge(arrivals):
        return None
    times = arrivals.peak / max(arrivals.usual, 1e-9)
    words = f"arrivals_per_s {arrivals.usual:.3g}, at its peak {arrivals.peak:.3g}"
    return Cause(cause="traffic_surge", score=min(0.9, 0.5 + 0.05 * times), evidence=(words,))


def kv_cache_saturation(evidence: Evidence) -> Cause | None:
    """The KV cache is full: requests are preempted or slowed, whether or not a queue shows."""
    kv = evidence.shifts.get("kv_usage")
    preemptions = evidence.preempts()
    if kv is None or kv.peak < max(_KV_SATURATED, kv.usual + kv.sigma):
        if preemptions is None:
            return None
        return Cause(
            cause="preemption", score=0.8, evidence=(preemptions.words("preemptions_per_s"),)
        )
    found = [f"kv_usage {kv.usual:.3g}, at its peak {kv.peak:.3g}"]
    if preemptions is not None:
        found.append(preemptions.words("preemptions_per_s"))
    return Cause(cause="kv_cache_saturation", score=0.9, evidence=tuple(found))


def prefix_cache_misses(evidence: Evidence) -> Cause | None:
    """Prompts that used to be cached are computed again."""
    hits = evidence.down("prefix_hit_ratio")
    if hits is None or evidence.signal == "itl_s":
        return None
    score = min(0.9, 0.6 + (hits.usual - hits.now))
    return Cause(
        cause="prefix_cache_misses", score=score, evidence=(hits.words("prefix_hit_ratio"),)
    )


def rejected_drafts(evidence: Evidence) -> Cause | None:
    """Speculative decoding guesses worse than it did: each step makes fewer tokens."""
    accepted = evidence.down("draft_acceptance")
    if accepted is None or evidence.signal == "ttft_s":
        return None
    score = min(0.9, 0.7 + (accepted.usual - accepted.now))
    return Cause(
        cause="rejected_drafts", score=score, evidence=(accepted.words("draft_acceptance"),)
    )


def new_engines(evidence: Evidence) -> Cause | None:
    """Engines have just begun, and no other drifts: they compile, and their caches are empty."""
    if not evidence.newcomers:
        return None
    names = ", ".join(evidence.newcomers[:_NAMED])
    more = len(evidence.newcomers) - _NAMED
    who = f"{names} and {more} more" if more > 0 else names
    words = f"{who} began less than {NEW_S / 60.0:.0f} minutes before the onset"
    return Cause(cause="new_engines", score=0.85, evidence=(words,))


def longer_requests(evidence: Evidence) -> Cause | None:
    """The requests themselves have grown."""
    if evidence.attribution not in {"workload", "mixed"}:
        return None
    names = ("prompt_tokens", "output_tokens")
    grown = [shift.words(name) for name in names if (shift := evidence.up(name, by=1.2))]
    if not grown:
        return None
    return Cause(cause="longer_requests", score=0.8, evidence=tuple(grown))


def gpu_thermal(evidence: Evidence) -> Cause | None:
    """A GPU is hot and has slowed its clock.

    Where the throttle flag is reported it decides; a clock that falls at the power limit of a hot
    GPU is no fault of the cooling.
    """
    shifts = evidence.shifts
    clock, hot = shifts.get("gpu_sm_clock_mhz"), shifts.get("gpu_temperature_c")
    throttled = evidence.up("gpu_throttle_thermal", by=1.0)
    is_slower = clock is not None and clock.now <= _SLOWER_CLOCK * clock.usual
    if throttled is None:
        is_known = "gpu_throttle_thermal" in shifts
        is_hot = hot is not None and hot.now >= HOT_C
        if is_known or not is_hot or evidence.down("gpu_sm_clock_mhz", by=0.97) is None:
            return None
    found = tuple(shifts[name].words(name) for name in _THERMAL if name in shifts)
    return Cause(cause="gpu_thermal", score=0.85 if is_slower else 0.7, evidence=found)


def gpu_clock(evidence: Evidence) -> Cause | None:
    """A GPU runs at a lower clock than usual, and heat does not explain it."""
    clock = evidence.down("gpu_sm_clock_mhz", by=0.95)
    if clock is None or gpu_thermal(evidence) is not None:
        return None
    return Cause(cause="gpu_clock", score=0.7, evidence=(clock.words("gpu_sm_clock_mhz"),))


def gpu_errors(evidence: Evidence) -> Cause | None:
    """A GPU reports errors."""
    names = (
        *("gpu_lost", "gpu_xid", "gpu_xid_per_s"),
        *("gpu_ecc_uncorrected", "gpu_ecc_uncorrected_per_s"),
    )
    found = tuple(shift.words(name) for name in names if (shift := evidence.up(name)))
    return Cause(cause="gpu_errors", score=0.85, evidence=found) if found else None


def clock_jump(evidence: Evidence) -> Cause | None:
    """A clock was set: by as much the times of what was in flight are wrong.

    The gap between tokens is taken from a clock that nobody sets.
    """
    jumps = evidence.shifts.get("clock_jumps_per_s")
    if jumps is None or evidence.signal == "itl_s":
        return None
    if jumps.peak <= jumps.usual + NOTABLE_Z * jumps.sigma:
        return None
    words = f"clock_jumps_per_s {jumps.usual:.3g}, at its peak {jumps.peak:.3g}"
    return Cause(cause="clock_jump", score=0.6, evidence=(words,))


def recent_change(evidence: Evidence) -> Cause | None:
    """Somebody changed something shortly before it began."""
    if evidence.attribution == "workload":
        return None
    for change in reversed(evidence.changes):
        before_s = evidence.onset_s - change.time_s
        # The onset is when a window showed the drift, so a change may look a little later.
        if (
            change.kind not in {"maintenance", "stop"}
            and -_ONSET_SLACK_S <= before_s <= CHANGE_WINDOW_S
        ):
            what = change.words()
            score = 0.9 - 0.35 * max(0.0, before_s) / CHANGE_WINDOW_S
            words = (
                f"{what}, {abs(before_s):.0f} s {'before' if before_s >= 0 else 'after'} the onset"
            )
            return Cause(cause=f"change_{change.kind}", score=score, evidence=(words,))
    return None


SUSPECTS: Final[tuple[Suspect, ...]] = (
    measurement_change,
    queue_saturation,
    traffic_surge,
    kv_cache_saturation,
    prefix_cache_misses,
    rejected_drafts,
    longer_requests,
    new_engines,
    gpu_thermal,
    gpu_clock,
    gpu_errors,
    clock_jump,
    recent_change,
)


def rank_causes(evidence: Evidence, suspects: Sequence[Suspect] = SUSPECTS) -> tuple[Cause, ...]:
    """Return the causes that the evidence supports, best first, or the single cause ``unknown``."""
    found = [cause for suspect in suspects if (cause := suspect(evidence)) is not None]
    ranked = sorted(
        (cause for cause in found if cause.score >= MIN_SCORE),
        key=lambda cause: (-cause.score, cause.cause),
    )
    if ranked:
        return tuple(ranked)
    if evidence.engines > 1 and evidence.drifting_engines == 1:
        where = f"only this one of {evidence.engines} engines drifts: look at its host"
    else:
        where = f"{evidence.drifting_engines} of {evidence.engines} engines drift"
    return (Cause(cause="unknown", score=0.0, evidence=(where,)),)
