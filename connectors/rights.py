"""What Kafka lets this user do with topics, asked before something fails half-way and in silence.

A broker with ACLs hides a topic from whoever may not describe it, and tells a producer that it may
not write only once it has written. Asked for its metadata it tells which operations are allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from aiokafka.errors import TopicAuthorizationFailedError
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from daom.errors import SinkRejected

Right = Literal["Read", "Write"]
Needs = Mapping[str, tuple[Right, ...]]
"""Rights by topic."""

_BITS: Final[Mapping[Right, int]] = {"Read": 1 << 3, "Write": 1 << 4}
"""Kafka's codes of operations, as bits."""
_NOT_TOLD: Final = -(2**31)
"""What a broker answers that knows no rights."""


_METADATA: Final = 3
_VERSION: Final = 8
"""Of the request for metadata: the last without compact fields, known since Kafka 2.3."""
_ANSWERED: Final = Schema(
    ("throttle_time_ms", Int32),
    (
        "brokers",
        Array(
            ("node_id", Int32),
            ("host", String("utf-8")),
            ("port", Int32),
            ("rack", String("utf-8")),
        ),
    ),
    ("cluster_id", String("utf-8")),
    ("controller_id", Int32),
    (
        "topics",
        Array(
            ("error_code", Int16),
            ("topic", String("utf-8")),
            ("is_internal", Boolean),
            (
                "partitions",
                Array(
                    ("error_code", Int16),
                    ("partition", Int32),
                    ("leader", Int32),
                    ("leader_epoch", Int32),
                    ("replicas", Array(Int32)),
                    ("isr", Array(Int32)),
                    ("offline_replicas", Array(Int32)),
                ),
            ),
            ("operations", Int32),
        ),
    ),
    ("cluster_operations", Int32),
)
_ASKED: Final = Schema(
    ("topics", Array(String("utf-8"))),
    ("allow_auto_topic_creation", Boolean),
    ("include_cluster_operations", Boolean),
    ("include_topic_operations", Boolean),
)


def _message(base: Any, schema: Any, **more: object) -> Any:
    """Return a message of that schema: aiokafka's own do not ask for operations."""
    fields = {"API_KEY": _METADATA, "API_VERSION": _VERSION, "SCHEMA": schema, **more}
    return type(f"Metadata{base.__name__}", (base,), fields)


_Answer: Final = _message(Response, _ANSWERED)
_Question: Final = _message(RequestStruct, _ASKED, RESPONSE_TYPE=_Answer)


@dataclass(frozen=True, slots=True)
class _OperationsRequest:
    """What a client of aiokafka sends: None asks for all topics."""

    topics: list[str] | None

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """Return the message, if the broker understands it."""
        lowest, highest = versions[_METADATA]
        if not lowest <= _VERSION <= highest:
            raise NotImplementedError(f"metadata of version {_VERSION}")
        create, of_cluster, of_topics = False, False, True
        return _Question(self.topics, create, of_cluster, of_topics)


async def require_rights(admin: Any, needs: Needs) -> None:
    """Return unless this user lacks one of the rights that it needs.

    A topic that does not exist is not this function's matter; nor is a broker that tells no rights.

    Args:
        admin: An admin client that has started.
        needs: Rights by topic.

    Raises:
        SinkRejected: Names every topic with the permissions that are missing.
    """
    try:
        told = await _operations(admin, None)
        if told is None:
            return
        hidden = [topic for topic in needs if topic not in told]
        # By name, a broker tells a topic that is hidden from one that is not there.
        by_name = await _operations(admin, hidden) if hidden else {}
    except NotImplementedError:  # A broker of before Kafka 2.3.
        return
    allowed = {**told, **(by_name or {})}
    missing = [
        f"{right} on topic {topic}"
        for topic, rights in needs.items()
        for right in rights
        if not allowed.get(topic, _BITS[right]) & _BITS[right]
    ]
    if missing:
        raise not_allowed(missing)


def not_allowed(missing: Collection[str]) -> SinkRejected:
    """Return the error of a user who lacks permissions, such as ``Write on topic daom.rca``."""
    return SinkRejected(
        f"Kafka does not let this user do what it must; it lacks {', '.join(missing)} "
        "(SECURITY.md has the ACLs of each process)"
    )


async def _operations(admin: Any, topics: list[str] | None) -> dict[str, int] | None:
    """Return what is allowed with each of ``topics`` that exists, all for None.

    None: the broker does not tell.
    """
    answer = await admin._send_request(_OperationsRequest(topics))
    found: dict[str, int] = {}
    for topic in answer.to_object()["topics"]:
        if topic["error_code"] == TopicAuthorizationFailedError.errno:
            found[topic["topic"]] = 0
        elif topic["error_code"] == 0:
            if topic["operations"] == _NOT_TOLD:
                return None
            found[topic["topic"]] = topic["operations"]
    return found
