"""What an engine's GPUs say before its latency does: heat slows them."""

from __future__ import annotations

import math
from typing import Final

from daom.engine import EngineState
from daom.lifecycle import Condition

GPU_THROTTLED: Final = "GpuThrottled"

_SUSTAINED_S: Final = 30.0
_FLAG_UP: Final = 0.6
_SLOWER: Final = 0.99
"""Of the usual clock. The flag says that it is heat; so a little is enough."""
_QUANTITIES: Final = (
    ("gpu_sm_clock_mhz", "SM clock", "MHz"),
    ("gpu_throttle_thermal", "thermal flag", ""),
    ("gpu_temperature_c", "temperature", "°C"),
    ("gpu_power_w", "power", "W"),
)


def throttle_condition(name: str, engine: EngineState, pane_s: float) -> Condition | None:
    """Return whether heat slows a GPU of the engine; None where no thermal flag is reported.

    The flag has been up for most of half a minute, and the clock is below its usual level. Power at
    its limit and a hot GPU are as they should be; so is a flag that costs no clock.
    """
    levels = engine.context.levels
    flag, clock = levels.get("gpu_throttle_thermal"), levels.get("gpu_sm_clock_mhz")
    if flag is None:
        return None
    panes = max(1, math.ceil(_SUSTAINED_S / pane_s))
    flags = flag.newest(panes)
    up = bool(flags) and sum(flags) / panes >= _FLAG_UP
    # The clock only since the flag has been up: before that it may have idled at any height.
    slowed = clock is None or clock.recent[-1] <= _SLOWER * clock.usual
    return Condition(
        name=GPU_THROTTLED,
        engine=name,
        signal=None,
        active=None if flag.missed > panes else up and slowed,
        clear=not any(flags) or not slowed,
        severity="warning",
        annotations={"summary": f"heat slows a GPU of engine {name}", **_evidence(engine)},
    )


def _evidence(engine: EngineState) -> dict[str, str]:
    levels = engine.context.levels
    shifts = {
        words: (levels[name].shift(1), unit) for name, words, unit in _QUANTITIES if name in levels
    }
    found = (f"{words} {s.usual:.4g} -> {s.now:.4g} {unit}" for words, (s, unit) in shifts.items())
    return {"cause": "gpu_thermal", "evidence": ", ".join(text.strip() for text in found)}
