"""What the plugin in an engine must know: where Kafka is, and what the engine is called.

The same YAML file and the same variables as for the other processes, of which it reads the sections
``kafka`` and ``probe``; TOML and JSON do as well. It runs in the engine's own environment, where
msgspec is and pydantic need not be.
"""

from __future__ import annotations

import dataclasses
import re
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from daom.credentials import without_quotations
from daom.errors import ConfigError
from daom.kafka_access import KafkaAccess
from daom.topics import Topics

_PREFIX: Final = "DAOM_"
_FILE_VARIABLE: Final = "DAOM_CONFIG"
_SECTIONS: Final = ("kafka", "probe")
_SERVERS: Final = "DAOM_KAFKA__BOOTSTRAP_SERVERS"
_OWN_KAFKA: Final = frozenset({"bootstrap_servers", "topic_prefix"})
OTHERS_KAFKA: Final = frozenset(
    {
        *("group", "partitions", "replication_factor", "retention_s"),
        *("session_timeout_s", "rebalance_timeout_s"),
    }
)
"""What the section ``kafka`` of the same file says to other processes."""
_TOPIC_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ATTENTION: Final = "VLLM_ATTENTION_BACKEND"
_DEVICES: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

Seconds = Annotated[float, msgspec.Meta(ge=0.05, le=10.0)]


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section ``probe``.

    Attributes:
        enabled: False: the plugin does nothing.
        model: Name of the model's cell; the served model's name unless given.
        engine: Name of the engine that stays the same when it restarts; host and GPUs unless given.
        version: Of what is deployed; vLLM's own unless given.
        period_s: How often a batch is sent.
        buffer_mb: So much is kept while Kafka takes nothing; then the oldest is dropped.
        gpu: Read the engine's GPUs once a second, where there are any.
        cells: A model of more than about 1,000 engines is cut into so many cells.
    """

    enabled: bool = True
    model: str | None = None
    engine: str | None = None
    version: str | None = None
    tenant: str | None = None
    region: str | None = None
    host: str | None = None
    period_s: Seconds = 0.25
    buffer_mb: Annotated[float, msgspec.Meta(ge=0.1, le=1_024)] = 32.0
    gpu: bool = True
    cells: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the plugin was told.

    Attributes:
        client: The settings that all aiokafka clients share.
        topic: The telemetry topic.
        devices: The GPUs that the engine may see, as its environment says; None: all.
        attention: The attention backend that its environment asks for; None: it does not.
    """

    client: dict[str, Any]
    topic: str
    probe: Probe
    host: str
    devices: str | None
    attention: str | None = None

    def engine_name(self, index: int, engines: int) -> str:
        """Return the name of engine ``index`` of ``engines`` that this process serves."""
        name = self.probe.engine
        if name is None:
            name = self.host if self.devices is None else f"{self.host}:{self.devices}"
        return f"{name}/{index}" if engines > 1 else name


def read_probe_settings(environment: Mapping[str, str]) -> ProbeSettings:
    """Return what ``environment`` and the file that it names say.

    Raises:
        ConfigError: If something is wrong: says where, what was given and what is allowed.
    """
    values = _read_file(environment.get(_FILE_VARIABLE))
    origins: dict[str, str] = {}
    for variable, text in environment.items():
        section, _, name = variable.removeprefix(_PREFIX).lower().partition("__")
        if variable.startswith(_PREFIX) and name and section in _SECTIONS:
            values[section][name] = text
            origins[name] = variable
    kafka, origin = values["kafka"], environment.get(_FILE_VARIABLE) or "the environment"
    probe = _probe(values["probe"], origins, origin)
    prefix = str(kafka.get("topic_prefix", "daom"))
    if not _TOPIC_PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"{origins.get('topic_prefix', origin)}: kafka.topic_prefix: got {prefix!r}; "
            "1 to 100 of A-Z a-z 0-9 . _ - are allowed"
        )
    return ProbeSettings(
        # What is not to report need not know where to.
        client=_client(kafka, origins, origin) if probe.enabled else {},
        topic=Topics(prefix).telemetry,
        probe=probe,
        host=probe.host or socket.gethostname(),
        devices=next((environment[name] for name in _DEVICES if environment.get(name)), None),
        attention=environment.get(_ATTENTION) or None,
    )


def probe_section(section: Mapping[str, Any], origin: str = "the configuration") -> Probe:
    """Return what the section ``probe`` says to the plugin.

    Args:
        section: As it was read.
        origin: Where it comes from, as messages are to say it.

    Raises:
        ConfigError: If the section is wrong.
    """
    return _probe(section, {}, origin)


def _probe(section: Mapping[str, Any], origins: Mapping[str, str], origin: str) -> Probe:
    try:
        return msgspec.convert(section, Probe, strict=False)
    except msgspec.ValidationError as error:
        named = (v for n, v in origins.items() if f".{n}`" in f"{error}" or f"`{n}`" in f"{error}")
        raise ConfigError(
            f"{next(named, origin)}: probe: {error}; allowed: {', '.join(Probe.__struct_fields__)}"
        ) from error


def _client(kafka: dict[str, Any], origins: Mapping[str, str], origin: str) -> dict[str, Any]:
    servers = _servers(kafka.get("bootstrap_servers"), origins.get("bootstrap_servers", origin))
    return _access(kafka, origins, origin).client(servers)


def _access(kafka: dict[str, Any], origins: Mapping[str, str], origin: str) -> KafkaAccess:
    known = {field.name for field in dataclasses.fields(KafkaAccess)} | _OWN_KAFKA | OTHERS_KAFKA
    for name in kafka:
        if name not in known:
            raise ConfigError(
                f"{origins.get(name, origin)}: kafka.{name} is not known; allowed: "
                f"{', '.join(sorted(known - OTHERS_KAFKA))}"
            )
    try:
        return msgspec.convert(kafka, KafkaAccess, strict=False)
    except msgspec.ValidationError as error:
        where = next((v for n, v in origins.items() if n in f"{error}"), origin)
        raise ConfigError(f"{where}: kafka: {error}") from error


def _servers(given: Any, origin: str) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else given
    if isinstance(parts, list) and all(isinstance(part, str) for part in parts):
        servers = [part.strip() for part in parts if part.strip()]
        if servers:
            return servers
    if given is None:
        raise ConfigError(f"where Kafka is is not known: set {_SERVERS}=HOST:PORT,...")
    raise ConfigError(f"{origin}: kafka.bootstrap_servers: got {given!r}; host:port,... is needed")


def _read_file(name: str | None) -> dict[str, dict[str, Any]]:
    if not name:
        return {section: {} for section in _SECTIONS}
    try:
        values = _parse(Path(name))
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror or error}") from error
    except (ValueError, msgspec.DecodeError) as error:
        raise ConfigError(f"{name}: {without_quotations(str(error))}") from None
    except ImportError as error:
        raise ConfigError(f"{name}: YAML needs PyYAML; .toml and .json need nothing") from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigError(f"{name}: got {type(values).__name__}; a map of sections is needed")
    found: dict[str, dict[str, Any]] = {}
    for section in _SECTIONS:
        held = values.get(section) or {}
        if not isinstance(held, dict):
            raise ConfigError(f"{name}: {section}: got {type(held).__name__}; a map is needed")
        found[section] = dict(held)
    return found


def _parse(path: Path) -> Any:
    content = path.read_bytes()
    if path.suffix == ".toml":
        return tomllib.loads(content.decode())
    if path.suffix == ".json":
        return msgspec.json.decode(content)
    return msgspec.yaml.decode(content)
