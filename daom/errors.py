"""Errors DAOM raises, grouped by what the catcher does.

* DaomError
  + ConfigError          the operator must change the configuration
  + MissingExtra         the operator must install an extra of the package
  + GpusUnavailable      there is no GPU or no driver: wait for one, or go without
  + MalformedRecord      dead-letter it and go on
  + CheckpointError      stop this partition; the operator decides
  + SourceError          a recording or topic cannot be read; the operator names another
  + SinkError
    - SinkUnavailable    retrying is safe
    - SinkRejected       retrying is useless
"""

from __future__ import annotations

from daom.limits import LimitName


class DaomError(Exception):
    """Any error that DAOM raises on purpose; its message is meant for a person."""


class ConfigError(DaomError):
    """The configuration is wrong: says file or variable, field, value and what is allowed."""


class MissingExtra(DaomError):  # noqa: N818 - named for what it is, as its siblings are.
    """A command needs libraries that the base install leaves out."""


class GpusUnavailable(DaomError):  # noqa: N818 - named for what it is, as its siblings are.
    """No GPU can be read here, now."""


class MalformedRecord(DaomError):  # noqa: N818 - named for what it is, as its siblings are.
    """A record, or a part of it, that cannot be used.

    Attributes:
        kind: One of ``daom.codec.FAULT_KINDS``; the label of its counter.
        field: Where in the record, such as ``requests.ttft_s[3]``; empty for the whole record.
        limit: The limit that it is beyond; None: it is wrong in another way.
        allowed: How much that limit allows.
        model: Whose record it is, as far as it could be read.
    """

    def __init__(
        self,
        kind: str,
        field: str,
        reason: str,
        *,
        limit: LimitName | None = None,
        allowed: int = 0,
    ) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.kind = kind
        self.field = field
        self.limit: LimitName | None = limit
        self.allowed = allowed
        self.model: str | None = None


class CheckpointError(DaomError):
    """A checkpoint that cannot be trusted: corrupt, or from another version."""


class SourceError(DaomError):
    """A recording or topic that cannot be read."""


class SinkError(DaomError):
    """Something did not take what was sent."""


class SinkUnavailable(SinkError):  # noqa: N818 - named for what it is, as its siblings are.
    """Not reached; sending the same again is safe."""


class SinkRejected(SinkError):  # noqa: N818 - named for what it is, as its siblings are.
    """Refused as invalid; sending again cannot help."""
