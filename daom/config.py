"""The configuration: one YAML file, every value overridable by the environment.

``DAOM_KAFKA__BOOTSTRAP_SERVERS=b1:9092,b2:9092`` overrides ``kafka: bootstrap_servers:``; two
underscores go one level down. A duration is a number of seconds or a text such as 90s, 1h30m or
30d. A wrong value stops the start with one message that names where it
came from, the field, the value and what is allowed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Self

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from daom.connections import BridgeConfig, KafkaConfig
from daom.credentials import without_quotations
from daom.errors import ConfigError
from daom.fields import Seconds, SecondsOrNone, Section
from daom.limits_config import LimitsConfig

ENV_PREFIX: Final = "DAOM_"
_NOT_CONFIG: Final = frozenset(
    {
        "DAOM_CONFIG",
        "DAOM_KAFKA_SCRIPT",
        "DAOM_RECEIVE_TOKEN",
        "DAOM_REQUIRE_SERVERS",
        "DAOM_SCRAPE_BASIC",
        "DAOM_SCRAPE_TOKEN",
        "DAOM_TEST_KAFKA",
    }
)
_AS_WRITTEN: Final = frozenset(
    {
        ("kafka", "sasl_username"),
        ("kafka", "sasl_password"),
        ("kafka", "ssl_key_password"),
        ("bridge", "basic_auth_username"),
        ("bridge", "basic_auth_password"),
        ("bridge", "bearer_token"),
    }
)
"""Fields whose variables are no JSON: a password such as 1e5 is not a number."""
_HIDDEN: Final = frozenset({name for _, name in _AS_WRITTEN} | {"alertmanagers"})
"""What errors do not show: an Alertmanager's URL may hold a password."""
_SECRET: Final = sorted(field for field in _AS_WRITTEN if not field[1].endswith("_username"))


class SignalConfig(Section):
    """A monitored column of the telemetry."""

    table: Literal["requests", "steps"] = "requests"
    """The table that the column is in."""
    column: str | None = None
    """The column; the signal's own name unless given."""
    workload: str | None = None
    """The column that explains it: rows are compared with rows of like workload."""
    workload_part: str | None = None
    """The column that says which part of the workload costs little: its share makes strata too."""
    workload_base: float = Field(default=128.0, gt=0.0)
    """Upper end of the lowest workload stratum: a power of 2; above it there are four an octave."""
    slo_s: float | None = Field(default=None, gt=0.0)
    """Base SLO of the signal in seconds: needed by presets that learn no threshold."""
    ceiling_s: float | None = Field(default=None, gt=0.0)
    """P99 may creep, and drift, up to here: the threshold never goes above, and what is surely
    above raises an alert however slowly it came."""

    @model_validator(mode="after")
    def _base_is_a_stratum_end(self) -> Self:
        if not math.log2(self.workload_base).is_integer():
            raise ValueError(
                f"workload_base={self.workload_base:g} is not a power of 2: 2, 4, 8, ... 128, ..."
            )
        return self


class DetectorConfig(Section):
    """How drift is found (preset default)."""

    window_panes: int = Field(default=6, ge=1, le=1_000)
    """A window holds at least so many panes,"""
    window_samples: int = Field(default=60, ge=20)
    """and at least so many samples,"""
    max_window_panes: int = Field(default=180, ge=1)
    """but looks back no further."""
    reference_blocks: int = Field(default=10, ge=4)
    """Windows' worth of panes that make a reference,"""
    reference_samples: int = Field(default=300, ge=100)
    """and the samples it needs at least."""
    max_reference_blocks: int = Field(default=360, ge=10)
    """Windows' worth of samples that the reference remembers: old ones fade."""
    warmup_panes: int = Field(default=3, ge=0)
    """Panes with samples that are left out at the beginning."""
    false_alarm_interval_s: Seconds = 30 * 86_400.0
    """In a fleet on which nothing changes a series is called drifting about once in this time: the
    series of a cell (each signal of each engine, and of all together) share it."""
    confirm_panes: int = Field(default=2, ge=1, le=32)
    """Panes in a row that must say so; evidence is calibrated for it."""
    min_kl_nats: float = Field(default=0.03, ge=0.0)
    """Smaller divergences of a window do not matter, however significant,"""
    min_shift_nats: float = Field(default=0.005, ge=0.0)
    """nor do those of a shift, a spread or a tail: 0.005 is a tenth of a standard deviation."""
    adopt_after_s: Seconds = 7_200.0
    """A drift that has lasted so long becomes the new normal."""
    peers: bool = True
    """Engines are compared with one another, too: three or more of a model."""
    peers_min_slowdown: float = Field(default=0.15, ge=0.0)
    """Engines less far apart are alike: 0.15 is 15 %."""

    @model_validator(mode="after")
    def _windows_are_ordered(self) -> Self:
        if self.max_window_panes < self.window_panes:
            raise ValueError(
                f"max_window_panes={self.max_window_panes} is below "
                f"window_panes={self.window_panes}"
            )
        return self


class ThresholdConfig(Section):
    """The dynamic P99 threshold (preset default)."""

    headroom: float = Field(default=0.25, ge=0.0, le=10.0)
    """Fraction above the expected P99."""
    min_change: float = Field(default=0.02, ge=0.0, le=1.0)
    """Smaller relative changes do not move it."""


class AlertConfig(Section):
    """When a drift becomes an alert, and when it is muted."""

    pending_s: SecondsOrNone = 60.0
    """How long a drift must hold before its alert fires."""
    resolve_s: SecondsOrNone = 120.0
    """How long all must be clear before the alert resolves."""
    cooldown_s: SecondsOrNone = 300.0
    """An alert that would fire again so soon after resolving is muted."""
    min_slowdown: float = Field(default=0.1, ge=0.0)
    """Smaller slowdowns raise nothing: 0.1 is 10 %."""
    critical_slowdown: float = Field(default=1.0, gt=0.0)
    """From here on an alert is critical: 1.0 is twice as slow."""
    fleet_share: float = Field(default=0.5, gt=0.0, lt=1.0)
    """If more than this share of a model's engines drift, the fleet's alert speaks for them."""
    silent_after_s: Seconds = 60.0
    """An engine that sends nothing for so long, while others do, is silent."""
    forget_after_s: Seconds = 21_600.0
    """An engine that has been silent for so long is gone for good."""
    stalled_after_s: Seconds = 60.0
    """An engine with requests in flight that finishes no step for so long is stalled."""


class TimeConfig(Section):
    """How event time is cut."""

    pane_s: float = Field(default=10.0, ge=0.1, le=3_600.0)
    """Length of a pane: every series is judged once a pane."""
    lateness_s: SecondsOrNone = 5.0
    """How long a pane waits for late samples."""
    max_ahead_s: Seconds = 60.0
    """How far one producer's clock may be ahead before its times are not believed; panes wait so
    long for the other engines."""
    tick_after_s: Seconds = 60.0
    """Real time without a record of a cell after which its worker appends a Tick."""


class WorkerConfig(Section):
    """One worker process."""

    checkpoint_s: Seconds = 60.0
    """Real time between checkpoints of a partition's cells."""
    max_message_bytes: int = Field(default=4 * 2**20, ge=1_024, le=64 * 2**20)
    """Larger messages go to the dead-letter topic unread."""
    metrics_host: str = "127.0.0.1"
    """Interface that /metrics, /healthz and /readyz listen on."""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """Their port; 0: none."""
    stuck_after_s: Seconds = 300.0
    """A partition with more to do that stands still for so long fails /healthz."""

    @model_validator(mode="after")
    def _a_checkpoint_comes_before_it_is_missed(self) -> Self:
        if self.stuck_after_s <= self.checkpoint_s:
            raise ValueError(
                f"stuck_after_s={self.stuck_after_s:g} must be longer than "
                f"checkpoint_s={self.checkpoint_s:g}: positions are saved no more often"
            )
        return self


def _default_signals() -> dict[str, SignalConfig]:
    return {
        "ttft_s": SignalConfig(workload="prompt_tokens", workload_part="cached_tokens"),
        "itl_s": SignalConfig(table="steps", workload="running", workload_base=2.0),
        "e2e_s": SignalConfig(workload="output_tokens", workload_base=32.0),
    }


Preset = Literal["default", "sits2026", "adwin", "kswin", "page_hinkley"]


class Config(Section):
    """Everything that can be set."""

    preset: Preset = "default"
    """How streams are judged: DAOM's way, the source document's, or a detector of river's."""
    signals: dict[str, SignalConfig] = Field(default_factory=_default_signals, min_length=1)
    """What is monitored, most important first."""
    kafka: KafkaConfig = KafkaConfig()
    time: TimeConfig = TimeConfig()
    detector: DetectorConfig = DetectorConfig()
    threshold: ThresholdConfig = ThresholdConfig()
    alerts: AlertConfig = AlertConfig()
    limits: LimitsConfig = LimitsConfig()
    worker: WorkerConfig = WorkerConfig()
    bridge: BridgeConfig = BridgeConfig()
    probe: dict[str, Any] = Field(default_factory=dict)
    """What the plugin in an engine is told. It checks that itself: see docs/vllm.md."""

    @model_validator(mode="after")
    def _sits2026_knows_its_slo(self) -> Self:
        missing = [name for name, signal in self.signals.items() if signal.slo_s is None]
        if self.preset == "sits2026" and missing:
            raise ValueError(
                f"preset=sits2026 scales a base SLO, but signals.{missing[0]}.slo_s is not set: "
                "give it in seconds, such as 2.0"
            )
        return self


def load_config(
    path: Path | None,
    environment: Mapping[str, str],
    fields: Mapping[str, object] = MappingProxyType({}),
    *,
    fields_from: str = "",
) -> Config:
    """Return the configuration of ``path`` (None: the defaults) with ``environment`` on top.

    Args:
        path: A YAML file.
        environment: Its variables that begin with ``DAOM_`` override the file.
        fields: By dotted name, on top of both.
        fields_from: Where they come from, as messages are to say it.

    Raises:
        ConfigError: One message, every fault in it on a line of its own.
    """
    values = _read(path) if path is not None else {}
    origins = _override(values, environment)
    for name, value in fields.items():
        _put(values, name.split("."), value)
        origins[name] = fields_from
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        lines = [_explain(fault, path, origins) for fault in error.errors()]
        raise ConfigError("\n".join(lines)) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        # Not chained: its own text quotes the line, in which a secret may be.
        raise ConfigError(f"{path}: not YAML: {without_quotations(str(error))}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not YAML in UTF-8: {type(error).__name__}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: got a {type(values).__name__}; a map of sections is needed")
    return values


def _override(values: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Put DAOM_* variables into ``values``; return where each dotted field is from."""
    origins: dict[str, str] = {}
    for variable in sorted(environment):
        if not variable.startswith(ENV_PREFIX) or variable in _NOT_CONFIG:
            continue
        *parents, last = variable.removeprefix(ENV_PREFIX).lower().split("__")
        text = environment[variable]
        value = text if (*parents, last) in _AS_WRITTEN else _scalar(text)
        _put(values, [*parents, last], value)
        origins[".".join([*parents, last])] = f"environment variable {variable}"
    return origins


def _put(values: dict[str, Any], names: Sequence[str], value: object) -> None:
    """Set the field ``names``, from the outermost section inwards."""
    *parents, last = names
    if parents[:1] == ["signals"] and "signals" not in values:
        # A signal that is there by default keeps what is not named.
        values["signals"] = {n: s.model_dump() for n, s in _default_signals().items()}
    section = values
    for parent in parents:
        below = section.get(parent)
        section[parent] = section = dict(below) if isinstance(below, dict) else {}
    section[last] = value


def _scalar(text: str) -> object:
    """Return what ``text`` says: JSON where it is a number, true, false, null, list or map."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _explain(fault: Mapping[str, Any], path: Path | None, origins: Mapping[str, str]) -> str:
    field = ".".join(str(part) for part in fault["loc"])
    message = fault["msg"].removeprefix("Value error, ")
    near = [
        (name, origin)
        for name, origin in origins.items()
        if _is_within(field, name) or _is_within(name, field)
    ]
    # Of a section's variables, the one that the message is about.
    near.sort(key=lambda pair: pair[0].rpartition(".")[2] not in message)
    where = near[0][1] if near else str(path or "configuration")
    if fault["type"] == "extra_forbidden":
        return (
            f"{where}: {field}: unknown; allowed here: {', '.join(_fields_at(fault['loc'][:-1]))}"
        )
    if fault["type"] == "value_error":
        return f"{where}: {field}: {message}" if field else f"{where}: {message}"
    return f"{where}: {field}: got {_shown(fault)}; {message}"


def _shown(fault: Mapping[str, Any]) -> str:
    """Return the value that was given; only its kind where a secret may be in it."""
    section, *fields = fault["loc"]
    if section in {"kafka", "bridge"} and (not fields or fields[0] in _HIDDEN):
        return f"a {type(fault['input']).__name__}"
    return f"{fault['input']!r:.80}"


def _is_within(field: str, section: str) -> bool:
    return field == section or field.startswith(section + ".")


def _fields_at(loc: tuple[object, ...]) -> list[str]:
    model: type[BaseModel] = Config
    for part in loc:
        field = model.model_fields.get(str(part))
        if field is None:
            return sorted(SignalConfig.model_fields)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
    return sorted(model.model_fields)


def values_with(
    path: Path | None, fields: Mapping[str, object]
) -> tuple[dict[str, Any], list[str]]:
    """Return what ``path`` (None: nothing) holds with ``fields`` on top, by dotted name.

    Secrets are left out; also returns their dotted names.

    Raises:
        ConfigError: If ``path`` cannot be read.
    """
    values = _read(path) if path is not None else {}
    left_out = []
    for section, name in [*_SECRET, ("bridge", "alertmanagers")]:
        given = values.get(section)
        if not isinstance(given, dict) or name not in given:
            continue
        # The URL of an Alertmanager is a secret if it holds a password.
        if name != "alertmanagers" or "@" in str(given[name]):
            del given[name]
            left_out.append(f"{section}.{name}")
    for name, value in fields.items():
        _put(values, name.split("."), value)
    return values, left_out


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the configuration file."""
    schema = Config.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "DAOM", **schema}


def config_yaml(config: Config) -> str:
    """Return ``config`` as the YAML file that gives it, but for its secrets, which are masked."""
    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    return text
