"""Users of a Kafka and their rights, as SECURITY.md has them; and what aiokafka cannot ask for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest_v1
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from tests.kafka_servers import REPOSITORY

_ROUNDS: Final = 4_096
_SHA_512: Final = 2
_RESOURCES: Final = {"topic": 2, "group": 3}
_LITERAL, _PREFIXED = 3, 4
_OPERATIONS: Final = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Describe": 8,
    "DescribeConfigs": 10,
}
_ALLOW: Final = 3


class Right(NamedTuple):
    """One operation on a topic, a group, or all topics that begin so."""

    resource: str
    name: str
    operation: str
    prefixed: bool = False


def documented_rights() -> dict[str, list[Right]]:
    """Return the table of SECURITY.md: rights by what its first column says."""
    text = (REPOSITORY / "SECURITY.md").read_text("utf-8")
    table = text.partition("| process | topic | operations |\n")[2].partition("\n\n")[0]
    found: dict[str, list[Right]] = {}
    for line in table.splitlines()[1:]:
        process, resources, operations = (cell.strip() for cell in line.strip("|").split("|"))
        rights = found.setdefault(process or list(found)[-1], [])
        rights += _rights(resources, operations)
    return found


def _rights(resources: str, operations: str) -> Iterator[Right]:
    if operations == "none":
        return
    resource = "group" if resources.startswith("group ") else "topic"
    names = re.findall(r"`([^`]+)`", resources) or [resources]
    for name in names:
        for operation in operations.split(", "):
            yield Right(resource, name, operation, prefixed=resources.startswith("prefix "))


class _ScramAnswer(Response):
    API_KEY = 51
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            CompactArray(
                ("user", CompactString("utf-8")),
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ScramStruct(RequestStruct):
    API_KEY = 51
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ScramAnswer
    SCHEMA = Schema(
        (
            "deletions",
            CompactArray(
                ("name", CompactString("utf-8")), ("mechanism", Int8), ("tags", TaggedFields)
            ),
        ),
        (
            "upsertions",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ScramRequest(Request[_ScramStruct]):
    API_KEY = 51

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def build(self, request_struct_class: type[_ScramStruct]) -> _ScramStruct:
        users = []
        for user, password in self._passwords.items():
            salt = user.encode()
            salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ROUNDS)
            users.append((user, _SHA_512, _ROUNDS, salt, salted, {}))
        return request_struct_class([], users, {})


class _AclsRequest(Request[CreateAclsRequest_v1]):
    """Many at once: each by itself takes the controller a moment."""

    API_KEY = 30

    def __init__(self, rights: Mapping[str, Iterable[Right]]) -> None:
        self._rights = rights

    def build(self, request_struct_class: type[CreateAclsRequest_v1]) -> CreateAclsRequest_v1:
        return request_struct_class(
            [
                (
                    _RESOURCES[right.resource],
                    right.name,
                    _PREFIXED if right.prefixed else _LITERAL,
                    f"User:{user}",
                    "*",
                    _OPERATIONS[right.operation],
                    _ALLOW,
                )
                for user, rights in self._rights.items()
                for right in rights
            ]
        )


async def let_in(
    client: Mapping[str, Any], rights: Mapping[str, Iterable[Right]], password: str
) -> None:
    """Make users who may do just that, and log in by SCRAM-SHA-512.

    Args:
        client: Of somebody who may do anything.
        rights: By user.
        password: Of them all.
    """
    admin = AIOKafkaAdminClient(**client)
    await admin.start()
    try:
        users = _ScramRequest(dict.fromkeys(rights, password))
        made = (await admin._send_to_controller(users)).to_object()
        assert {result["error_code"] for result in made["results"]} == {0}
        granted = (await admin._send_to_controller(_AclsRequest(rights))).to_object()
        assert {result["error_code"] for result in granted["creation_responses"]} == {0}
    finally:
        await admin.close()
