"""What ``daom tune`` reads: the source, once to know what it holds, then as often as it takes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from connectors.sources import Part, Source
from daom.cli.options import EXIT_NOT_JUDGED
from daom.cli.reading import nothing_in, spinner
from daom.codec import decode
from daom.config import Config
from daom.errors import MalformedRecord, SourceError
from daom.evaluate import sought
from daom.heard import Survey, recorded_of
from daom.labels import Recorded, place, read_labels
from daom.replay import Sourced
from daom.span import Span
from daom.tuning.holdout import Split


@dataclass(frozen=True, slots=True)
class Rereading:
    """The parts of a source, to be read again and again: another process can be given it.

    Attributes:
        parts: Without what connects them to Kafka, which stays with a process.
        config: Says where Kafka is.
    """

    parts: tuple[Part, ...]
    config: Config

    @classmethod
    def of(cls, source: Source, config: Config) -> Rereading:
        """Return what is in ``source`` now, whatever comes into it later."""
        return cls(tuple(part.using({}) for part in source.parts), config)

    def __call__(self) -> Iterator[Iterator[Sourced]]:
        """Yield what each part holds, in log order."""
        client = self.config.kafka.client()
        for part in self.parts:
            with closing(part.using(client).records()) as records:
                yield records


@dataclass(slots=True)
class Digest:
    """What tells one content of a source from another."""

    is_empty: bool = True
    _state: hashlib.blake2b = field(default_factory=partial(hashlib.blake2b, digest_size=16))

    def over(self, values: Iterable[Sourced]) -> Iterator[bytes]:
        """Yield what ``values`` hold, and heed it."""
        for sourced in values:
            self.is_empty = False
            value = sourced.value or b""
            self._state.update(len(value).to_bytes(8, "big") + value)
            yield value

    def __str__(self) -> str:
        return self._state.hexdigest()


def surveyed(source: Source, span: Span, config: Config) -> tuple[Recorded, str]:
    """Read a source once; return what it holds, and the digest of its content.

    Raises:
        SourceError: If it cannot be read to its end: settings are compared on all of it.
    """
    digest, refused, surveys, lines = Digest(), Counter[str](), list[Survey](), 0
    with spinner() as progress:
        progress.add_task(f"reading {source.name}")
        try:
            for part in Rereading.of(source, config)():
                surveys.append(Survey.under(config))
                for value in digest.over(part):
                    lines += 1
                    refused.update(_noted(value, surveys[-1], config))
        except SourceError as error:
            if digest.is_empty:
                raise
            raise SourceError(
                f"{error}; nothing was tuned: settings are compared on all of a source or, with "
                "--until, on what comes before that"
            ) from error
    recorded = recorded_of(surveys, source.name, lines)
    if recorded is None:
        why = nothing_in(source, span) if digest.is_empty else ""
        click.echo(f"daom: {why or source.name + ' holds no telemetry to judge'}", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)
    for kind, count in sorted(refused.items()):
        click.echo(f"could not be used: {count} x {kind}", err=True)
    return recorded, str(digest)


def _noted(value: bytes, into: Survey, config: Config) -> Iterator[str]:
    """Take the next value; yield why it cannot be used, or what of it cannot."""
    try:
        record, faults = decode(value, max_bytes=config.worker.max_message_bytes)
    except MalformedRecord as error:
        yield error.kind
        return
    into.note(record)
    yield from (fault.kind for fault in faults)


def divided(recorded: Recorded, incidents: Path, holdout: float, config: Config) -> Split:
    """Return a source with its incidents, divided into what chooses and what judges.

    Raises:
        ConfigError: If the incidents cannot be read, or are not in the source.
    """
    placed = place(read_labels(incidents), [recorded], config.signals)
    for warning in placed.warnings:
        click.echo(f"daom: {warning}", err=True)
    split = Split.of(recorded, placed.episodes[0], holdout)
    for name, part in zip(("chooses", "judges"), split.incidents(), strict=True):
        if not sought("alerts", part):
            click.echo(
                f"daom: no incident to be caught began in the part that {name}: there, settings "
                "are told apart by their alerts alone",
                err=True,
            )
    return split
