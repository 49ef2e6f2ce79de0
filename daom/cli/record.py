"""``daom record``."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import click

from connectors.recordings import write_recording
from connectors.sources import in_log_order
from daom.anonymise import Anonymiser
from daom.cli.options import (
    EXIT_NOT_JUDGED,
    EXIT_STOPPED,
    brokers_option,
    config_option,
    configured,
    span_options,
)
from daom.cli.reading import Reading, nothing_in, opened, progress_bar, refresh
from daom.config import Config
from daom.errors import ConfigError, SourceError
from daom.logged import line_of
from daom.replay import Sourced
from daom.span import Span

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
    found = opened(source, config, span)
    renaming = None
    if anonymise:
        renaming = Anonymiser(salt.encode() if salt else secrets.token_bytes(_SALT_BYTES))
    copying = _Copying(Reading(found), config, renaming)
    try:
        with closing(copying.lines()) as lines:
            count = write_recording(file, lines)
    except KeyboardInterrupt:
        click.echo(f"daom: stopped; {file} has not been written", err=True)
        raise click.exceptions.Exit(EXIT_STOPPED) from None
    click.echo(f"{count} records from {source} to {file} ({file.stat().st_size:,} bytes)", err=True)
    if copying.left_out:
        click.echo(
            f"left out: {copying.left_out} records that cannot be used, and so not anonymised",
            err=True,
        )
    if copying.broken is not None:
        raise copying.broken
    if not count:
        click.echo(f"daom: {nothing_in(found, span)}", err=True)
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

    def lines(self) -> Generator[bytes, None, None]:
        """Yield the lines, in the order in which the log took the records."""
        reading = self._reading
        records = in_log_order(reading.source, reading.done.__setitem__)
        with progress_bar(reading, hidden=False) as progress, closing(records):
            try:
                for sourced in records:
                    if (line := self._line(sourced)) is not None:
                        yield line
                    reading.records += 1
                    if reading.records % _REFRESH_RECORDS == 0:
                        refresh(progress, reading)
            except SourceError as error:
                self.broken = error

    def _line(self, sourced: Sourced) -> bytes | None:
        if self._renaming is None:
            return line_of(sourced, self._max_bytes, self._limits)
        line = self._renaming.line_of(sourced, self._max_bytes, self._limits)
        self.left_out += line is None
        return line
