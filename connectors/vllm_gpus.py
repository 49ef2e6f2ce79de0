"""The GPUs of the engines that a vLLM process serves, read once a second by the probe's thread.

Of the GPUs that the process may see, engine 0 has the first so many as its parallel sizes say,
engine 1 the next, and so on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from connectors.nvml import Gpus
from daom.errors import DaomError

_PERIOD_S: Final = 1.0
_DIVIDED: Final = ("tensor", "pipeline", "prefill_context")
"""How an engine may be spread over GPUs; decode context parallelism uses those of the tensors."""
_LOGGER: Final = logging.getLogger("vllm.daom")

Values = tuple[Mapping[str, float | str], ...]


class EngineGpus:
    """Reads the GPUs of each engine; where there are none it says so once and is quiet.

    Args:
        visible: The GPUs that the process may see, as CUDA_VISIBLE_DEVICES has them; None: all.
        gpus_an_engine: How many each engine has.
        engines: The engines' numbers.
    """

    def __init__(self, visible: str | None, gpus_an_engine: int, engines: list[int]) -> None:
        self._choices = {index: chosen(visible, gpus_an_engine, index) for index in engines}
        self._open: dict[int, Gpus] | None = None
        self._due_s = 0.0

    def read(self, now_s: float) -> dict[int, Values]:
        """Return what the GPUs of each engine say, at most once a second."""
        if now_s < self._due_s <= now_s + _PERIOD_S:
            return {}
        self._due_s = now_s + _PERIOD_S
        if self._open is None:
            self._open = self._opened()
        return {
            index: tuple(reading.values for reading in gpus.read())
            for index, gpus in self._open.items()
        }

    def _opened(self) -> dict[int, Gpus]:
        try:
            return {index: Gpus(choice) for index, choice in self._choices.items()}
        except DaomError as error:
            _LOGGER.info("daom: no GPU is read: %s", error)
            return {}


def chosen(visible: str | None, gpus_an_engine: int, engine: int) -> str:
    """Return the GPUs of ``engine``, as ``Gpus`` takes them.

    >>> chosen("4,5,6,7", 2, 1)
    '6,7'
    """
    first = engine * gpus_an_engine
    if visible is None:
        return ",".join(str(first + number) for number in range(gpus_an_engine))
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return ",".join(names[first : first + gpus_an_engine] or names)


def gpus_an_engine(vllm_config: Any) -> int:
    """Return how many GPUs an engine has: the product of its parallel sizes."""
    parallel = getattr(vllm_config, "parallel_config", None)
    sizes = (getattr(parallel, f"{kind}_parallel_size", None) for kind in _DIVIDED)
    return max(1, math.prod(int(size or 1) for size in sizes))
