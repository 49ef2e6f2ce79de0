"""What the sections of the configuration are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from daom.durations import DURATION_PATTERN, parse_duration


def _seconds(value: object) -> object:
    """Return the seconds of a text such as 30d or 1h30m; a number, text or not, as it is."""
    if not isinstance(value, str):
        return value
    duration_s = parse_duration(value)
    if duration_s is not None:
        return duration_s
    try:
        return float(value)
    except ValueError:
        raise ValueError(
            f"got {value!r}; a number of seconds is needed, or such as 90s, 5m, 1h30m, 30d"
        ) from None


_Words = Annotated[str, Field(pattern=DURATION_PATTERN)]
_Positive = Annotated[float, Field(gt=0.0, le=366 * 86_400.0)]
_NotNegative = Annotated[float, Field(ge=0.0)]
Seconds = Annotated[_Positive, BeforeValidator(_seconds, json_schema_input_type=_Positive | _Words)]
SecondsOrNone = Annotated[
    _NotNegative, BeforeValidator(_seconds, json_schema_input_type=_NotNegative | _Words)
]
"""Seconds, 0 for not at all."""


def _split_commas(value: object) -> object:
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


Words = Annotated[tuple[str, ...], BeforeValidator(_split_commas)]


def _text(value: object) -> object:
    """Refuse what YAML has read as a number: 0123 is 83 to it, and no longer the password."""
    if value is not None and not isinstance(value, str | SecretStr):
        raise ValueError(f"a {type(value).__name__} was read; write the text in quotes")
    return value


Text = Annotated[str, BeforeValidator(_text)]
"""A text that must arrive as it was written."""
SecretText = Annotated[SecretStr, BeforeValidator(_text)]
"""A secret: shown by no error and no dump."""


class Section(BaseModel):
    """A part of the configuration: unknown fields are refused, values never change."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", coerce_numbers_to_str=True, hide_input_in_errors=True
    )
