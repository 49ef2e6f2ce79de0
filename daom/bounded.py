"""Memories that forget the oldest."""

from __future__ import annotations

from typing import TypeVar

Name = TypeVar("Name")
Held = TypeVar("Held")


def put(held: dict[Name, Held], name: Name, value: Held, at_most: int) -> None:
    """Put ``value`` into ``held``, which then forgets its oldest names beyond ``at_most``."""
    held[name] = value
    while len(held) > at_most:
        del held[next(iter(held))]
