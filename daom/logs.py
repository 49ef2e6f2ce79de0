"""Log lines: to standard error, one clear line each; libraries speak only where it matters."""

from __future__ import annotations

import logging.config
from typing import Any, Final

LOGGING: Final[dict[str, Any]] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(message)s", "datefmt": "%Y-%m-%dT%H:%M:%S"}
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "stream": "ext://sys.stderr",
            "formatter": "line",
        }
    },
    "root": {"level": "WARNING", "handlers": ["stderr"]},
    "loggers": {
        **{name: {"level": "INFO"} for name in ("daom", "streams", "connectors")},
        # What aiokafka repeats while a broker is away is said once, by us.
        "aiokafka": {"level": "CRITICAL"},
        # Faust's own bookkeeping, of no use to an operator.
        "faust.app.base": {"level": "ERROR"},
    },
}


def log_to_stderr() -> None:
    """Set logging up for a command."""
    logging.config.dictConfig(LOGGING)
