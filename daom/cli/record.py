"""``daom record``."""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Iterator
from contextlib import closing
from operator import itemgetter
from pathlib import Path

import click

from connectors.recordings import write_recording
from connectors.sources import Done, Part, open_source
from daom.anonymise import Anonymiser
from daom.cli.options import (
    EXIT_NOT_JUDGED,
    brokers_option,
    config_option,
    configured,
    span_options,
)
from daom.cli.reading import Reading, nothing_in, progress_bar, refresh
from daom.config import Config
from daom.errors import ConfigError, SourceError
from daom.logged import line_of
from daom.replay import Sourced
from daom.span import Span
from daom.topics import Topics

_SALT_BYTES = 32
_REFRESH_RECORDS = 500


@click.command(name="record")
@click.argument("source")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option
@brokers_option
@span_options
@click.option("--anonymise", is_flag=True, help="Rename models, engines, tenants and the like.")
@click.option(
    "--salt",
    metavar="TEXT",
    help="With --anonymise: the same names for the same salt; keep it secret, since whoever has it "
    "can try names [a random one].",
)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def command(
    source: str,
    file: Path,
    config_path: Path | None,
    brokers: str | None,
    span: Span,
    salt: str | None,
    *,
    anonymise: bool,
    force: bool,
) -> None:
    """Copy SOURCE, or a range of it, into the recording FILE.

    SOURCE is what daom replay reads: topic:NAME (topic: is the configured telemetry), a recording,
    or a directory of them. FILE is packed by its ending: .jsonl, .jsonl.gz or .jsonl.zst. It
    appears once it is whole. A replay of it says, to the byte, what a replay of SOURCE does: it
    holds when the log took each record and under which cell, and what cannot be used as it came.

    --anonymise renames models, engines, tenants, LoRAs, versions, regions, hosts and GPUs, and
    replaces free text, the same by the same, so that a replay judges all alike. Of what cannot be
    used nothing is copied, since nobody knows what is in it. Times and numbers stay.

    \b
    Examples: daom record topic: yesterday.jsonl.zst --since 1d
              daom record topic: part.jsonl.gz --offsets 0:1000-2000 --offsets 3:
              daom record topic: to-share.jsonl.gz --since 7d --anonymise
    """
    config = configured(config_path, brokers)
    if salt is not None and not anonymise:
        raise click.UsageError("--salt needs --anonymise")
    if file.exists() and not force:
        raise ConfigError(f"{file} is there already: name another file, or give --force")
    topics = Topics(config.kafka.topic_prefix)
    opened = open_source(source, config.kafka.client(), topics.telemetry, span)
    renaming = None
    if anonymise:
        renaming = Anonymiser(salt.encode() if salt else secrets.token_bytes(_SALT_BYTES))
    copying = _Copying(Reading(opened), config, renaming)
    count = write_recording(file, copying.lines())
    click.echo(f"{count} records from {source} to {file} ({file.stat().st_size:,} bytes)", err=True)
    if copying.left_out:
        click.echo(
            f"left out: {copying.left_out} records that cannot be used, and so not anonymised",
            err=True,
        )
    if copying.broken is not None:
        raise copying.broken
    if not count:
        click.echo(f"daom: {nothing_in(opened, span)}", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)


class _Copying:
    """A source as the lines of a recording.

    Attributes:
        left_out: Records that were not copied.
        broken: Why the source could not be read to its end; what was read is copied.
    """

    def __init__(self, reading: Reading, config: Config, renaming: Anonymiser | None) -> None:
        self._reading = reading
        self._max_bytes = config.worker.max_message_bytes
        self._limits = config.limits.limits()
        self._renaming = renaming
        self.left_out = 0
        self.broken: SourceError | None = None

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, in the order in which the log took the records."""
        parts = enumerate(self._reading.source.parts)
        merged = heapq.merge(*(self._of(n, part) for n, part in parts), key=itemgetter(0))
        with progress_bar(self._reading, hidden=False) as progress:
            try:
                for _, sourced in merged:
                    if (line := self._line(sourced)) is not None:
                        yield line
                    self._reading.records += 1
                    if self._reading.records % _REFRESH_RECORDS == 0:
                        refresh(progress, self._reading)
            except SourceError as error:
                self.broken = error

    def _of(self, number: int, part: Part) -> Iterator[tuple[float, Sourced]]:
        done, latest_s = Done(), 0.0
        with closing(part.records(done)) as records:
            for sourced in records:
                latest_s = max(latest_s, sourced.logged_s or 0.0)
                self._reading.done[number] = done.amount
                yield latest_s, sourced

    def _line(self, sourced: Sourced) -> bytes | None:
        if self._renaming is None:
            return line_of(sourced, self._max_bytes, self._limits)
        line = self._renaming.line_of(sourced, self._max_bytes, self._limits)
        self.left_out += line is None
        return line
