"""What every part of the configuration has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the configuration: unknown fields are refused, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)
