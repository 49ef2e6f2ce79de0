"""The stat logger that vLLM loads by its entry point (group ``vllm.stat_logger_plugins``).

Only this module imports vLLM, and only vLLM imports it. Its base class is the one of all engines
where the version has it: that one hears of sleep and of rejected requests too.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from vllm import __version__ as vllm_version
from vllm.v1.metrics import loggers

from connectors.vllm_probe import Probe, make_probe

_LOGGER = logging.getLogger("vllm.daom")
_Base: Any = getattr(loggers, "AggregateStatLoggerBase", loggers.StatLoggerBase)


class DaomStatLogger(_Base):  # type: ignore[misc]
    """Reports vLLM's statistics to Kafka. Nothing that it meets ever reaches vLLM."""

    def __init__(self, vllm_config: Any = None, *engines: Any, **named: Any) -> None:
        self._probe: Probe | None = None
        try:
            given = engines[0] if engines else next(iter(named.values()), 0)
            indexes = list(given) if isinstance(given, list | tuple | range) else [int(given)]
            self._probe = make_probe(os.environ, vllm_config, indexes, vllm_version)
        except Exception as error:  # noqa: BLE001 - vLLM would not start.
            _LOGGER.error("daom: nothing is reported: %s: %s", type(error).__name__, error)

    def record(
        self,
        scheduler_stats: Any = None,
        iteration_stats: Any = None,
        mm_cache_stats: Any = None,  # noqa: ARG002 - vLLM passes it.
        engine_idx: int = 0,
        **_: Any,
    ) -> None:
        """Take references: see ``connectors.vllm_probe``."""
        probe = self._probe
        if probe is not None:
            probe.record(engine_idx, scheduler_stats, iteration_stats)

    def log_engine_initialized(self) -> None:
        """Nothing is left to do."""

    def log(self) -> None:
        """Nothing is logged."""

    def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
        """Report that the engines sleep or wake."""
        if self._probe is not None:
            self._probe.note_sleep(bool(sleep), level)

    def record_admission_rejection(self, reason: str) -> None:
        """Count a request that was not let in."""
        if self._probe is not None:
            self._probe.note_rejection(reason)
