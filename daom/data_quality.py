"""Whether what is measured can be believed: gaps told in two ways, gauges, clocks.

A gauge that has never moved while requests came and went says nothing of pressure, and a clock
that was set makes the times of what was in flight too long or too short: neither is an alert, but
whoever reads one of a drift should know.

Steps tell the gap between tokens directly. Requests tell it as (e2e - ttft) / (output tokens - 1).
The two agree, but for what is normal: steps that no decoding request takes part in, chunked
prefill, and the way to the client make requests' gaps the longer ones. Where chunks were counted as
tokens, or the time to the first token is among the gaps, they disagree by far; and where the steps'
gap jumps while the requests' stays, it is the measurement that has changed and not the service.

A service that slows also parts the two, but only until the requests have finished that began
before: hence the patience of two requests' decoding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from daom.context import ContextState
from daom.engine import EngineState
from daom.lifecycle import Condition

MEASUREMENT_SUSPECT: Final = "MeasurementSuspect"
STEP_GAP_SIGNAL: Final = "itl_s"

_LONGEST: Final = 1.8
"""Of steps' gap to requests'. A request cannot get its tokens faster than they are made;"""
_SHORTEST: Final = 0.4
"""but later: bursts of a real vLLM were measured down to 0.63."""
_JUMP: Final = 1.5
_AGREES: Final = 1.5
_MIN_PANES: Final = 4
_STEADY_PANES: Final = 12
_DECODINGS: Final = 2.0
_ABOUT: Final = 1.1
_GAUGES: Final = ("running", "waiting", "kv_usage")
_STILL_PANES: Final = 30
CLOCK_JUMPS: Final = "clock_jumps_per_s"


@dataclass(frozen=True, slots=True)
class GapCheck:
    """How the two gaps compare.

    Attributes:
        ratio: Steps' gap as a multiple of requests', newest panes; ``usual`` is the usual one.
        disagrees: It has been out of what is normal for minutes.
        has_jumped: It is out of what it was, while the requests' gap is much as it was.
        agrees: All is well in each of the newest panes, with a margin.
        as_with_ttft: It is as it would be with the time to the first token among the gaps.
    """

    ratio: float
    usual: float
    disagrees: bool
    has_jumped: bool
    agrees: bool
    as_with_ttft: bool


def check_gaps(context: ContextState, pane_s: float) -> GapCheck | None:
    """Return how the two gaps between tokens compare; None where too little is known."""
    levels = context.levels
    ratios, decoding = levels.get("itl_ratio"), levels.get("decoding_s")
    if ratios is None or decoding is None:
        return None
    panes = max(_MIN_PANES, math.ceil(_DECODINGS * decoding.recent[-1] / pane_s))
    newest = ratios.newest(panes)
    if not newest or ratios.missed > panes:
        return None
    ratio = sorted(newest)[len(newest) // 2]
    jumps = [_fold(each, ratios.usual) for each in newest]
    steady = ratios.newest(max(panes, _STEADY_PANES)) or [1.0]
    disagrees = min(steady) > _LONGEST or max(steady) < _SHORTEST
    return GapCheck(
        ratio=ratio,
        usual=ratios.usual,
        disagrees=disagrees,
        has_jumped=min(jumps) > _JUMP and _have_requests_stayed(context, panes, min(jumps)),
        agrees=max(_fold(each, 1.0) for each in newest) <= _AGREES and max(jumps) <= _JUMP,
        as_with_ttft=disagrees and _fold(ratio, _ratio_with_ttft(context, panes)) < _ABOUT,
    )


def _have_requests_stayed(context: ContextState, panes: int, jump: float) -> bool:
    """Return whether the requests' gap has moved by less than half of the jump (in logarithms)."""
    requests = context.levels["request_itl_s"].shift(panes)
    return _fold(requests.now, requests.usual) ** 2 < jump


def _fold(one: float, other: float) -> float:
    """Return how many times the larger is the smaller, 1 or more."""
    low, high = sorted((max(one, 1e-9), max(other, 1e-9)))
    return high / low


def _ratio_with_ttft(context: ContextState, panes: int) -> float:
    decoding_s = context.levels["decoding_s"].shift(panes).now
    ttft_s = context.levels["request_ttft_s"].shift(panes).now
    return (decoding_s + ttft_s) / max(decoding_s, 1e-9)


def measurement_condition(name: str, engine: EngineState, pane_s: float) -> Condition | None:
    """Return whether the engine's gap between tokens is not to be believed; None if unknown."""
    check = check_gaps(engine.context, pane_s)
    if check is None:
        return None
    times = f"{check.ratio:.3g} times (e2e - ttft) / (tokens - 1)"
    what = f"{STEP_GAP_SIGNAL} of engine {name} is {times}"
    if check.has_jumped:
        what += f", was {check.usual:.3g} times, and what requests take has not changed"
    elif check.as_with_ttft:
        what += ": as if the time to the first token were among the gaps"
    return Condition(
        name=MEASUREMENT_SUSPECT,
        engine=name,
        signal=None,
        active=check.disagrees or check.has_jumped,
        clear=check.agrees,
        severity="info",
        annotations={
            "summary": what,
            "measurement_change": str(check.has_jumped).lower(),
            "ratio": f"{check.ratio:.3g}",
            "usual_ratio": f"{check.usual:.3g}",
        },
    )


def has_measurement_jumped(contexts: Iterable[ContextState], pane_s: float) -> bool:
    """Return whether the measured gap has jumped at most engines, and the requests' has not."""
    checks = [check for context in contexts if (check := check_gaps(context, pane_s)) is not None]
    return 2 * sum(check.has_jumped for check in checks) > len(checks)


def doubts(contexts: Sequence[ContextState]) -> tuple[str, ...]:
    """Return what of the circumstances of a drift is not to be believed, in words."""
    found = [f"{name} has never moved" for name in _GAUGES if _stands_still(contexts, name)]
    jumps = [c.levels[CLOCK_JUMPS] for c in contexts if CLOCK_JUMPS in c.levels]
    if any(value > 0.0 for level in jumps for value in level.recent):
        found.append("a clock has jumped")
    return tuple(found)


def _stands_still(contexts: Sequence[ContextState], name: str) -> bool:
    """Return whether a gauge was always the same at every engine that reports it."""
    levels = [context.levels[name] for context in contexts if name in context.levels]
    if any(level.has_moved or len(level.recent) < _STILL_PANES for level in levels):
        return False
    # That nobody has ever waited is no reason for doubt.
    return any(level.usual > 0.0 or name != "waiting" for level in levels)
