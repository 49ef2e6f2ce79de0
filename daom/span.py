"""Which part of a log is meant: by time or by offset, as people write it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from daom.durations import parse_duration
from daom.errors import ConfigError
from daom.times import parse_time

TIME_WORDS: Final = "ISO 8601, Unix seconds, or a duration back from the newest record, such as 7d"
OFFSETS_WORDS: Final = "PARTITION or PARTITION:FROM-UNTIL, such as 0, 0:100-200, 0:100-, 0:-200"

_OFFSETS: Final = re.compile(r"(\d+)(?::(?:(\d*)-(\d*))?)?")


class Moment(NamedTuple):
    """A time, or how long before the newest record of the source; just one of the two is given.

    The newest record and not the clock of the day: so the same source gives the same range
    tomorrow.
    """

    time_s: float | None = None
    back_s: float | None = None

    def at(self, newest_s: float) -> float:
        """Return the Unix seconds that are meant where the newest record is of ``newest_s``."""
        if self.time_s is not None:
            return self.time_s
        return newest_s - (self.back_s or 0.0)


class Offsets(NamedTuple):
    """Offsets of one partition: from the first to before the second; None: to where it reaches."""

    start: int | None = None
    end: int | None = None


class Times(NamedTuple):
    """From the first, in Unix seconds, to before the second; None: without a bound."""

    since_s: float | None = None
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of a source is meant; all of it unless something is said.

    Attributes:
        since: Records that the log took at or after it,
        until: and before it.
        offsets: Of a topic: these partitions alone, and of each these offsets alone.

    Raises:
        ConfigError: If it holds nothing whatever the source, or mixes times and offsets.
    """

    since: Moment | None = None
    until: Moment | None = None
    offsets: Mapping[int, Offsets] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.offsets and self.by_time:
            raise ConfigError(
                "offsets and times exclude another: give --offsets or --since/--until"
            )
        self._refuse_if_empty(*(m.time_s if m else None for m in (self.since, self.until)))
        backs = [m.back_s if m else None for m in (self.since, self.until)]
        if backs[0] is not None and backs[1] is not None and backs[0] <= backs[1]:
            raise ConfigError(
                f"the range is empty: it begins {backs[0]:g} s before the newest record "
                f"and ends {backs[1]:g} s before it"
            )
        for number, (start, end) in self.offsets.items():
            if start is not None and end is not None and start >= end:
                raise ConfigError(
                    f"offsets of partition {number}: got {start}-{end}; the first must be below "
                    "the second, which is not in the range"
                )

    @property
    def by_time(self) -> bool:
        """Whether a time is said."""
        return self.since is not None or self.until is not None

    @property
    def needs_newest(self) -> bool:
        """Whether the newest record must be known to say what is meant."""
        return any(m is not None and m.back_s is not None for m in (self.since, self.until))

    def times(self, newest_s: float = 0.0) -> Times:
        """Return the times that are meant where the newest record is of ``newest_s``.

        Raises:
            ConfigError: If nothing can lie between them.
        """
        since_s = None if self.since is None else self.since.at(newest_s)
        until_s = None if self.until is None else self.until.at(newest_s)
        self._refuse_if_empty(since_s, until_s)
        return Times(since_s, until_s)

    @staticmethod
    def _refuse_if_empty(since_s: float | None, until_s: float | None) -> None:
        if since_s is not None and until_s is not None and since_s >= until_s:
            raise ConfigError(
                f"the range is empty: it begins at {since_s:.3f}, at or after its end {until_s:.3f}"
                " (Unix seconds)"
            )


def parse_moment(text: str) -> Moment | None:
    """Return the moment that ``text`` says; None if it says none.

    >>> parse_moment("7d")
    Moment(time_s=None, back_s=604800.0)
    """
    back_s = parse_duration(text)
    if back_s is not None:
        return Moment(back_s=back_s)
    time_s = parse_time(text)
    return None if time_s is None else Moment(time_s=time_s)


def parse_offsets(texts: Sequence[str]) -> dict[int, Offsets]:
    """Return the offsets that ``texts`` say, by partition.

    Raises:
        ConfigError: If one says none, or a partition comes twice.
    """
    found: dict[int, Offsets] = {}
    for text in texts:
        match = _OFFSETS.fullmatch(text)
        if match is None:
            raise ConfigError(f"--offsets: got {text!r}; allowed: {OFFSETS_WORDS}")
        number, start, end = match.groups()
        if int(number) in found:
            raise ConfigError(f"--offsets: partition {number} is given twice; one range of each")
        found[int(number)] = Offsets(*(int(part) if part else None for part in (start, end)))
    return found
