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
        engine_idx: int | None = 0,
        *_: Any,
        **__: Any,
    ) -> None:
        """Take references: see ``connectors.vllm_probe``."""
        probe = self._probe
        if probe is None:
            return
        try:
            probe.record(engine_idx or 0, scheduler_stats, iteration_stats)
        except Exception as error:  # noqa: BLE001 - vLLM would serve no more.
            probe.note_error(error, "a step is lost")

    def log_engine_initialized(self, *_: Any, **__: Any) -> None:
        """Nothing is left to do."""

    def log(self, *_: Any, **__: Any) -> None:
        """Nothing is logged."""

    def record_sleep_state(self, sleep: Any = 0, level: Any = 0, **named: Any) -> None:
        """Report that the engines sleep or wake."""
        if self._probe is None:
            return
        try:
            # The base class calls it is_awake; what is passed is whether they sleep.
            self._probe.note_sleep(bool(named.get("is_awake", sleep)), level)
        except Exception as error:  # noqa: BLE001 - see record.
            self._probe.note_error(error, "sleep or wake is not reported")

    def record_admission_rejection(self, reason: Any = "", *_: Any, **__: Any) -> None:
        """Count a request that was not let in."""
        if self._probe is None:
            return
        try:
            self._probe.note_rejection(str(reason))
        except Exception as error:  # noqa: BLE001 - see record.
            self._probe.note_error(error, "a rejected request is not counted")
