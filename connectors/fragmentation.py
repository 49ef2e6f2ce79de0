"""How broken up the free GPU memory of this process is, where PyTorch can tell.

Only a process that has CUDA memory of its own knows: an engine, not an agent beside it. PyTorch is
never imported here, since that would start CUDA in a process that has no use for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

_FREE: Final = "inactive"
"""A block that the allocator holds and nobody uses; one that is being freed is not free yet."""


def fragmentation_ratio(largest_free_bytes: float, total_bytes: float) -> float | None:
    """Return the share of the free memory that one allocation cannot have; None if none is free.

    Args:
        largest_free_bytes: The largest free block.
        total_bytes: All free blocks together.

    >>> fragmentation_ratio(2e9, 8e9)
    0.75
    """
    if total_bytes <= 0.0:
        return None
    return 1.0 - min(largest_free_bytes, total_bytes) / total_bytes


def ratios_of(segments: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return the ratio for each device of a ``torch.cuda.memory_snapshot()``."""
    free: dict[int, list[int]] = {}
    for segment in segments:
        sizes = [block["size"] for block in segment["blocks"] if block["state"] == _FREE]
        free.setdefault(segment["device"], []).extend(sizes)
    ratios = {
        device: fragmentation_ratio(max(sizes, default=0), sum(sizes))
        for device, sizes in free.items()
    }
    return {device: ratio for device, ratio in ratios.items() if ratio is not None}


def fragmentation_by_uuid() -> dict[str, float]:
    """Return the ratio for each GPU on which this process has CUDA running, by NVML's UUID."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None:
        return {}
    try:
        if not cuda.is_initialized():
            return {}
        ratios = ratios_of(cuda.memory_snapshot())
        return {_uuid(cuda, device): ratio for device, ratio in ratios.items()}
    except Exception:  # noqa: BLE001 - another library's internals: what it cannot tell is absent.
        return {}


def _uuid(cuda: Any, device: int) -> str:
    # PyTorch counts the devices that it may see, NVML all of them: only the UUID is the same.
    uuid = str(cuda.get_device_properties(device).uuid)
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
