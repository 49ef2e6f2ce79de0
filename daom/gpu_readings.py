"""What a reading of GPUs says of the engine that runs on them.

Producers name the throttle flags as their tools do: NVML's bit mask, nvidia-smi's words, a flag of
their own. All become one number, ``throttle_thermal``. An engine is as slow as its slowest GPU, so
clocks are the lowest, temperatures the highest, and one flag is enough. Names that end in
``_total`` are counters, of which only the increase tells something: each GPU has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

HOT_C: Final = 83.0
"""From here on a slowdown whose reason is not given is one of heat."""
_THERMAL_BITS: Final = 0x20 | 0x40
"""NVML's clock event reasons: software and hardware thermal slowdown."""
_MASKS: Final = ("throttle_reasons", "event_reasons")
_THROTTLED: Final = ("throttl", "slowdown", "thermal")
_YES: Final = frozenset({"active", "true", "yes", "on", "1"})
_WORST: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "sm_clock_mhz": min,
    "temperature_c": max,
    "throttle_thermal": max,
    "xid": max,
    "lost": max,
}
NEVER_ZERO: Final = frozenset({"sm_clock_mhz", "mem_clock_mhz", "temperature_c", "power_w"})
"""A GPU that has failed reads 0 here: that is no measurement."""

_COUNTER: Final = "_total"

Gpu = Mapping[str, float | str]


def readings(gpus: Sequence[Gpu]) -> dict[str, float]:
    """Return one number a quantity: of clock, temperature and flag the worst, else the mean."""
    found: dict[str, list[float]] = {}
    for gpu in gpus:
        for name, value in _numbers(gpu).items():
            if not name.endswith(_COUNTER):
                found.setdefault(name, []).append(value)
    return {name: _WORST.get(name, _mean)(values) for name, values in found.items()}


def counters(gpus: Sequence[Gpu]) -> dict[tuple[str, str], float]:
    """Return the counters of each GPU by its UUID and their names."""
    return {
        (str(gpu.get("uuid", number)), name): float(value)
        for number, gpu in enumerate(gpus)
        for name, value in gpu.items()
        if name.endswith(_COUNTER) and not isinstance(value, str)
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _numbers(gpu: Gpu) -> dict[str, float]:
    numbers = {
        name: float(value)
        for name, value in gpu.items()
        if not isinstance(value, str) and (value or name not in NEVER_ZERO)
    }
    is_hot = numbers.get("temperature_c", 0.0) >= HOT_C
    flags = [_is_thermal(name, value, is_hot=is_hot) for name, value in gpu.items()]
    said = [flag for flag in flags if flag is not None]
    return numbers | ({"throttle_thermal": float(any(said))} if said else {})


def is_understood(name: str) -> bool:
    """Return whether a word under ``name`` may say something of the GPU's clock."""
    return any(word in name for word in (*_MASKS, *_THROTTLED))


def _is_thermal(name: str, value: float | str, *, is_hot: bool) -> bool | None:
    """Return whether a field says that heat slows the GPU; None if it is about something else."""
    if any(mask in name for mask in _MASKS) and "thermal" not in name:
        if isinstance(value, str):
            return "thermal" in value.lower()
        return bool(int(value) & _THERMAL_BITS)
    if "power" in name or not any(word in name for word in _THROTTLED):
        return None
    if "limit" in name or "threshold" in name or name.endswith("_c"):
        return None
    up = value.lower() in _YES if isinstance(value, str) else value > 0.0
    return up and (is_hot or "thermal" in name)
