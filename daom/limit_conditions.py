"""What is said while a limit is being hit, by somebody who sends more than is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from daom.lifecycle import Condition
from daom.limits import LIMIT_WORDS, LimitHit, LimitName

LIMIT_REACHED: Final = "LimitReached"

RECENTLY_S: Final = 300.0
"""A limit is being hit until it has not been for so long."""


def note_hit(
    hits: dict[LimitName, LimitHit], limit: LimitName, allowed: int, latest: str, now_s: float
) -> None:
    """Note in ``hits`` that a record was beyond ``limit``: says ``latest``."""
    hit = hits.get(limit)
    if hit is None or now_s - hit.last_s > RECENTLY_S:
        hit = hits[limit] = LimitHit(now_s)
    hit.last_s = max(hit.last_s, now_s)
    hit.count += 1
    hit.allowed, hit.latest = allowed, latest


def limit_conditions(hits: Mapping[LimitName, LimitHit], now_s: float) -> list[Condition]:
    """Return whether each limit that was ever hit is being hit at ``now_s``."""
    return [_condition(name, hits[name], now_s) for name in sorted(hits)]


def _condition(name: LimitName, hit: LimitHit, now_s: float) -> Condition:
    hitting = now_s - hit.last_s <= RECENTLY_S
    return Condition(
        name=LIMIT_REACHED,
        engine=None,
        signal=None,
        limit=name,
        active=hitting,
        clear=not hitting,
        severity="warning",
        annotations={
            "summary": f"more than the {hit.allowed} {LIMIT_WORDS[name]} that are allowed: "
            f"{hit.count} records were refused, or in part; they are dead letters",
            "latest": hit.latest,
        },
    )
