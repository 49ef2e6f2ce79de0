"""The topics: their names, how long each keeps what, and where each output goes.

Pure: it says what the topics are; ``connectors.kafka`` makes them so on a broker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from daom.codec import DEFAULT_MAX_BYTES
from daom.errors import ConfigError
from daom.events import (
    Alert,
    AuditEntry,
    DriftVerdict,
    Output,
    RcaTrigger,
    SloThreshold,
    Suppression,
)

DAY_S: Final = 86_400.0
TELEMETRY_RETENTION_S: Final = 30 * DAY_S
"""How far back a replay can reach."""
OUTPUT_RETENTION_S: Final = 7 * DAY_S
AUDIT_RETENTION_S: Final = 400 * DAY_S
"""A year and a month: last year's change is still there when this year's is compared with it."""

TELEMETRY_MAX_BYTES: Final = DEFAULT_MAX_BYTES + 64 * 2**10
"""The longest record the decoder takes, with room for its key, headers and batch."""
DEAD_LETTER_MAX_BYTES: Final = 2 * TELEMETRY_MAX_BYTES
"""A dead letter holds the raw record and the reason, in whatever wrapping."""
CHECKPOINT_MAX_BYTES: Final = 16 * 2**20

_CHECKPOINT_SEGMENT_BYTES: Final = 4 * CHECKPOINT_MAX_BYTES
_CHECKPOINT_SEGMENT_S: Final = 3_600.0
_REPLICAS_FOR_A_QUORUM: Final = 3
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should be: ``config`` holds Kafka's own topic settings."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of DAOM's topics under one prefix, and which output goes to which.

    >>> Topics("staging").telemetry
    'staging.telemetry'

    Raises:
        ConfigError: If Kafka does not allow ``prefix`` in a topic's name.
    """

    prefix: str = "daom"

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(
                f"topic prefix: got {self.prefix!r}; 1 to 200 of A-Z a-z 0-9 . _ - are allowed"
            )

    @property
    def telemetry(self) -> str:
        """The input log of the cells; key: cell."""
        return f"{self.prefix}.telemetry"

    @property
    def verdicts(self) -> str:
        """One verdict a series a cycle; key: series."""
        return f"{self.prefix}.verdicts"

    @property
    def thresholds(self) -> str:
        """The threshold in force; key: series."""
        return f"{self.prefix}.thresholds"

    @property
    def alerts(self) -> str:
        """The newest state of every alert; key: fingerprint."""
        return f"{self.prefix}.alerts"

    @property
    def suppressions(self) -> str:
        """The alerts that were muted, and by which rule; key: fingerprint."""
        return f"{self.prefix}.suppressions"

    @property
    def rca(self) -> str:
        """Root-cause triggers; key: fingerprint of the alert."""
        return f"{self.prefix}.rca"

    @property
    def audit(self) -> str:
        """Every change of a threshold or reference; key: series."""
        return f"{self.prefix}.audit"

    @property
    def dead_letters(self) -> str:
        """Records that could not be used; key: ``dead_letter_key``."""
        return f"{self.prefix}.deadletter"

    @property
    def checkpoints(self) -> str:
        """The state of every cell; key: cell, partition by partition as the telemetry."""
        return f"{self.prefix}.checkpoints"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Where outputs go, each kind to its own."""
        judged = (self.verdicts, self.thresholds, self.alerts, self.suppressions, self.rca)
        return (*judged, self.audit)

    @property
    def said(self) -> tuple[str, ...]:
        """All that workers say: outputs and dead letters."""
        return (*self.outputs, self.dead_letters)

    def topic_of(self, output: Output) -> tuple[str, bytes]:
        """Return the topic that ``output`` goes to, and its key there."""
        match output:
            case DriftVerdict():
                return self.verdicts, output.series.key.encode()
            case SloThreshold():
                return self.thresholds, output.series.key.encode()
            case AuditEntry():
                return self.audit, output.series.key.encode()
            case Alert():
                return self.alerts, output.fingerprint.encode()
            case Suppression():
                return self.suppressions, output.fingerprint.encode()
            case RcaTrigger():
                return self.rca, output.fingerprint.encode()
            case _:
                assert_never(output)

    def specs(
        self,
        *,
        partitions: int,
        replication_factor: int = 1,
        telemetry_retention_s: float = TELEMETRY_RETENTION_S,
        output_retention_s: float = OUTPUT_RETENTION_S,
        audit_retention_s: float = AUDIT_RETENTION_S,
    ) -> list[TopicSpec]:
        """Return what every topic should be.

        Telemetry keeps the producers' own timestamps, and Kafka forgets by timestamp: telemetry
        stamped further back than ``telemetry_retention_s`` is gone as soon as its segment closes.

        Args:
            partitions: Of every topic; a cell's checkpoint lies in the partition of its telemetry.
            replication_factor: Copies of every partition; with 3 or more, a write waits for 2.
            telemetry_retention_s: How long the input log is kept; ``math.inf`` is for ever.
            output_retention_s: The same of verdicts, suppressions, rca and dead letters.
            audit_retention_s: The same of the audit trail and of alerts.

        Raises:
            ValueError: If a count is below 1, or a retention is not above 0 s.
        """
        if min(partitions, replication_factor) < 1:
            raise ValueError(
                f"partitions={partitions}, replication_factor={replication_factor}: "
                "1 or more is needed"
            )
        telemetry, output, audit = map(
            _deleted_after, (telemetry_retention_s, output_retention_s, audit_retention_s)
        )
        durable = _durable(replication_factor)
        return [
            TopicSpec(name, partitions, replication_factor, config | durable)
            for name, config in self._configs(telemetry, output, audit).items()
        ]

    def _configs(
        self, telemetry: dict[str, str], output: dict[str, str], audit: dict[str, str]
    ) -> dict[str, dict[str, str]]:
        return {
            self.telemetry: telemetry | _TELEMETRY_CONFIG,
            self.verdicts: output,
            self.thresholds: {"cleanup.policy": "compact", "segment.ms": _ms(DAY_S)},
            # An alert may fire for longer than other outputs are kept.
            self.alerts: audit | {"cleanup.policy": "compact,delete"},
            self.suppressions: output,
            self.rca: output,
            self.audit: audit,
            self.dead_letters: output | {"max.message.bytes": str(DEAD_LETTER_MAX_BYTES)},
            self.checkpoints: _CHECKPOINT_CONFIG,
        }


def dead_letter_key(topic: str, partition: int, offset: int) -> bytes:
    """Return the key of a dead letter: where the record lies that could not be used."""
    return f"{topic}/{partition}/{offset}".encode()


def _ms(seconds: float) -> str:
    return "-1" if math.isinf(seconds) else str(round(seconds * 1_000))


# The producers' clocks, not the broker's: event times are bounded by the stamp of the record.
_TELEMETRY_CONFIG: Final = {
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": str(TELEMETRY_MAX_BYTES),
}

# Kafka never cleans the segment it writes to, so small segments bound what a start reads back.
_CHECKPOINT_CONFIG: Final = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(CHECKPOINT_MAX_BYTES),
    "segment.bytes": str(_CHECKPOINT_SEGMENT_BYTES),
    "segment.ms": _ms(_CHECKPOINT_SEGMENT_S),
    "min.cleanable.dirty.ratio": "0.1",
}


def _deleted_after(retention_s: float) -> dict[str, str]:
    if not retention_s > 0.0:
        raise ValueError(f"retention of {retention_s} s: more than 0 s is needed")
    return {
        "cleanup.policy": "delete",
        "retention.ms": _ms(retention_s),
        # Kafka deletes whole segments: one of a week would outlive a retention of an hour.
        "segment.ms": _ms(min(DAY_S, retention_s)),
    }


def _durable(replication_factor: int) -> dict[str, str]:
    if replication_factor < _REPLICAS_FOR_A_QUORUM:
        return {}
    return {"min.insync.replicas": "2"}
