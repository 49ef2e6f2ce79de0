"""From a space to configurations that can be replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from daom.config import AlertConfig, Config, load_config
from daom.errors import ConfigError
from daom.tuning.space import ALERTING, Choice, Range, Setting, Space, Value

_NAMES: Final = sorted(field.removeprefix("alerts.") for field in ALERTING)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting, and the whole configuration that it makes. No field set: what is there now."""

    setting: Setting
    config: Config

    @property
    def name(self) -> str:
        """Return the setting in a line."""
        return words_of(self.setting)


def words_of(setting: Setting) -> str:
    """Return a setting in a line; the configuration as it is if it sets nothing."""
    said = (f"{name}={_shown(value)}" for name, value in setting.items())
    return " ".join(said) or "default (nothing set)"


def _shown(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes configurations of settings, on top of a file and the environment.

    Attributes:
        path: The configuration file; None: none.
        environment: Of the process.
        where: The space, as messages call it.
    """

    path: Path | None
    environment: Mapping[str, str]
    where: str

    def base(self) -> Candidate:
        """Return what is configured now."""
        return Candidate({}, load_config(self.path, self.environment))

    def config(self, setting: Setting) -> Config:
        """Return the configuration under ``setting``.

        Raises:
            ConfigError: If it is refused: names the space, field, value, and what is allowed.
        """
        return load_config(self.path, self.environment, setting, fields_from=self.where)

    def check(self, space: Space) -> None:
        """Refuse a space with a value that the configuration never takes.

        What one field allows may depend on another, so a value is good if it is in some
        combination with one value of one other field.

        Raises:
            ConfigError: Every fault is a line of its own.
        """
        faults = []
        for each in space.fields:
            values = each.values if isinstance(each, Choice) else (each.low, each.high)
            for value in values:
                fault = self._fault({each.field: value})
                if fault is not None and not self._is_mended(space, each, value):
                    prefix = f"{self.where}: {each.field}"
                    fault = fault.removeprefix("configuration: ")
                    whole = fault if fault.startswith(prefix) else f"{prefix}={value}: {fault}"
                    faults.append(whole)
        if faults:
            raise ConfigError("\n".join(dict.fromkeys(faults)))

    def _is_mended(self, space: Space, of: Choice | Range, value: Value) -> bool:
        """Return whether a value that is refused alone is taken with another field's."""
        others = (other for other in space.fields if other is not of)
        return any(
            self._fault({of.field: value, other.field: beside}) is None
            for other in others
            for beside in (other.values if isinstance(other, Choice) else (other.low, other.high))
        )

    def _fault(self, setting: Setting) -> str | None:
        try:
            self.config(setting)
        except ConfigError as error:
            return str(error)
        return None


@dataclass(frozen=True, slots=True)
class Replay:
    """Settings that judge alike, and so share one replay: they differ in alerts alone."""

    judging: Setting
    candidates: Sequence[Candidate]


@dataclass(slots=True)
class Planner:
    """Makes replays: each holds every combination of the alert settings.

    Attributes:
        refused: Why combinations of judging fields could not be tried, by their words.
    """

    maker: Maker
    space: Space
    base: Candidate
    refused: dict[str, str] = field(default_factory=dict)
    _variants: list[tuple[Setting, Mapping[str, object]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for variant in self.space.variants():
            alerts = self.maker.config(variant).alerts
            self._variants.append((variant, {name: getattr(alerts, name) for name in _NAMES}))

    def current(self) -> Replay:
        """Return the replay of what is configured now."""
        return Replay({}, [self.base])

    def replay(self, judging: Setting) -> Replay | None:
        """Return the replay of one combination of the judging fields; None if it is refused."""
        try:
            config = self.maker.config(judging)
        except ConfigError as error:
            self.refused[words_of(judging)] = str(error)
            return None
        found = list(self._candidates(judging, config))
        if judging_of(config) == judging_of(self.base.config):
            found.insert(0, self.base)
        return Replay(judging, found)

    def _candidates(self, judging: Setting, config: Config) -> Iterator[Candidate]:
        for variant, alerts in self._variants:
            changed = AlertConfig.model_validate({**config.alerts.model_dump(), **alerts})
            values = {**judging, **variant}
            # As the space is written, so that a setting reads the same wherever it is shown.
            names = (each.field for each in self.space.fields)
            setting = {name: values[name] for name in names if name in values}
            if setting:
                yield Candidate(setting, config.model_copy(update={"alerts": changed}))


def judging_of(config: Config) -> Config:
    """Return ``config`` without what is asked only after a pane has been judged."""
    usual = AlertConfig()
    plain = config.alerts.model_copy(update={name: getattr(usual, name) for name in _NAMES})
    return config.model_copy(update={"alerts": plain})
