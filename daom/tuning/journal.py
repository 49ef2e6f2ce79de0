"""What a search has found so far, in a file: interrupted, it goes on from there.

The first line says what is searched; each further line is a replay that was finished. A line is
written whole or, if the process dies in between, is the last one and is left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from daom.errors import ConfigError, SinkError
from daom.tuning.objective import Figures
from daom.tuning.space import Setting, Value

VERSION: Final = 1

Pair = tuple[Figures, Figures]
"""How a setting did on the part that chooses, and on the part that judges."""


class _Header(msgspec.Struct, tag="search", frozen=True):
    version: int
    about: dict[str, str]


class Finished(msgspec.Struct, tag="replay", frozen=True):
    """A replay that is done: its judging fields, and the figures of each of its settings."""

    judging: dict[str, Value]
    found: list[Pair]


_DECODER: Final = msgspec.json.Decoder(_Header | Finished)


class Journal:
    """The file of one search.

    Args:
        path: Where it is; it is made if it is not there.
        about: What its figures are of, in words and digests by name: others are refused.

    Raises:
        ConfigError: If the file is of another search, or no journal.
        SinkError: If it cannot be read or written.
    """

    def __init__(self, path: Path, about: Mapping[str, str]) -> None:
        self._path = path
        self._known: dict[bytes, Finished] = {}
        whole = self._whole()
        if whole:
            first, *others = whole.splitlines()
            self._check(first, about)
            self._take(others)
            self._cut(len(whole))
        else:
            self._write(_Header(VERSION, dict(about)), mode="wb")

    def __len__(self) -> int:
        return len(self._known)

    def find(self, judging: Setting, n: int) -> Sequence[Pair] | None:
        """Return the figures of a replay's ``n`` settings; None if it is still to be done."""
        finished = self._known.get(_key(judging))
        return finished.found if finished is not None and len(finished.found) == n else None

    def add(self, judging: Setting, found: Sequence[Pair]) -> None:
        """Note that a replay is done.

        Raises:
            SinkError: If it cannot be written.
        """
        finished = Finished(dict(judging), list(found))
        self._known[_key(judging)] = finished
        self._write(finished, mode="ab")

    def _whole(self) -> bytes:
        """Return the whole lines of the file: what comes after the last newline was cut."""
        try:
            found = self._path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise SinkError(f"{self._path}: {error.strerror or error}") from error
        return found[: found.rfind(b"\n") + 1]

    def _cut(self, size: int) -> None:
        try:
            os.truncate(self._path, size)
        except OSError as error:
            raise SinkError(f"{self._path}: {error.strerror or error}") from error

    def _check(self, line: bytes, about: Mapping[str, str]) -> None:
        try:
            header = _DECODER.decode(line)
        except msgspec.DecodeError:
            header = None
        if not isinstance(header, _Header):
            raise ConfigError(f"{self._path}: is not the study of a search; name another --study")
        names = [*about, *header.about]
        other = [n for n in dict.fromkeys(names) if about.get(n) != header.about.get(n)]
        if other or header.version != VERSION:
            what = ", ".join(other) or "version of DAOM"
            raise ConfigError(
                f"{self._path}: is of another search, which differs in: {what}; remove it to begin "
                "anew, or name another --study"
            )

    def _take(self, lines: Sequence[bytes]) -> None:
        for number, line in enumerate(lines, start=2):
            try:
                finished = _DECODER.decode(line)
            except msgspec.DecodeError as error:
                raise ConfigError(
                    f"{self._path}:{number}: no replay of a search: {error}; remove the file to "
                    "begin anew"
                ) from error
            if isinstance(finished, Finished):
                self._known[_key(finished.judging)] = finished

    def _write(self, entry: _Header | Finished, *, mode: str) -> None:
        try:
            with self._path.open(mode) as file:
                file.write(msgspec.json.encode(entry) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SinkError(f"{self._path}: {error.strerror or error}") from error


def _key(judging: Setting) -> bytes:
    return msgspec.json.encode(sorted(judging.items()))
