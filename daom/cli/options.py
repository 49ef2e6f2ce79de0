"""Options that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from daom.config import Config, load_config
from daom.credentials import Secret, read_secret
from daom.durations import parse_duration
from daom.errors import ConfigError
from daom.span import OFFSETS_WORDS, TIME_WORDS, Moment, Span, parse_moment, parse_offsets

EXIT_NO: Final = 1
EXIT_WRONG_USAGE: Final = 2
EXIT_NOT_JUDGED: Final = 3
EXIT_STOPPED: Final = 130

_SHORTEST_S: Final = 0.1


class MomentType(click.ParamType):
    """A time, or a duration back from the newest record."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        """Return the moment that ``value`` says."""
        moment = parse_moment(str(value))
        if moment is None:
            return self.fail(f"got {value!r}; allowed: {TIME_WORDS}", param, ctx)
        return moment


class Seconds(click.ParamType):
    """A duration, such as 0.5s or 1m."""

    name = "duration"

    def __init__(self, shortest_s: float = _SHORTEST_S, longest_s: float = math.inf) -> None:
        self._shortest_s = shortest_s
        self._longest_s = longest_s

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds that ``value`` says."""
        seconds = parse_duration(str(value))
        if seconds is not None and self._shortest_s <= seconds <= self._longest_s:
            return seconds
        allowed = f"{self._shortest_s:g}s or more is needed"
        if math.isfinite(self._longest_s):
            allowed = f"{self._shortest_s:g}s to {self._longest_s:g}s is allowed"
        return self.fail(f"got {value!r}; {allowed}, such as 1s", param, ctx)


config_option: Final = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="DAOM_CONFIG",
    help="YAML file with the settings; every value can be overridden by the environment.",
)

json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for scripts instead of text for people."
)

brokers_option: Final = click.option(
    "--brokers", metavar="HOST:PORT,...", help="Kafka to use, instead of the configured one."
)


_SPAN_OPTIONS: Final = (
    click.option(
        "--since",
        type=MomentType(),
        metavar="TIME",
        help=f"Only what the log took at or after it: {TIME_WORDS}.",
    ),
    click.option("--until", type=MomentType(), metavar="TIME", help="and before this."),
    click.option(
        "--offsets",
        multiple=True,
        metavar="RANGE",
        help=f"Only these partitions of a topic, and so much of each: {OFFSETS_WORDS} "
        "(repeatable; UNTIL is not in it).",
    ),
)


def span_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --since, --until and --offsets, as its argument ``span``."""

    @wraps(command)
    def with_span(
        *arguments: Any,
        since: Moment | None,
        until: Moment | None,
        offsets: tuple[str, ...],
        **more: Any,
    ) -> None:
        command(*arguments, span=Span(since, until, parse_offsets(offsets)), **more)

    wrapped: Callable[..., None] = with_span
    for option in reversed(_SPAN_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def configured(
    config_path: Path | None, brokers: str | None = None, preset: str | None = None
) -> Config:
    """Return the configuration that a command runs under; options override the environment."""
    options = {"DAOM_KAFKA__BOOTSTRAP_SERVERS": brokers, "DAOM_PRESET": preset}
    given = {name: value for name, value in options.items() if value is not None}
    return load_config(config_path, {**os.environ, **given})


def progress_of(what: str) -> Progress:
    """Return a progress bar, on stderr, of so many ``what``."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} " + what),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def secret(path: Path | None, variable: str, what: str = "token") -> str | None:
    """Return the secret in the file ``path``, else in the environment; None if there is none.

    Raises:
        ConfigError: If the file cannot be read, or the secret is empty.
    """
    if path is not None:
        return read_secret(path, f"the {what}")
    found = os.environ.get(variable)
    if found is not None and not found.strip():
        raise ConfigError(f"{variable}: the {what} is empty")
    return None if found is None else Secret(found.strip())
