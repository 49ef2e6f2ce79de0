"""``daom replay --report``: what else is asked for, and the file that is written."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, get_args

import click

from connectors.contests import Interrupt, contested
from connectors.replaying import Entry
from connectors.sources import Source
from daom.cli.options import EXIT_NOT_JUDGED, EXIT_STOPPED, Seconds, configured
from daom.cli.reading import NONE_USABLE, Reading, gap_words, nothing_in, progress_bar, refresh
from daom.cli.report_end import print_report
from daom.config import Config, Preset
from daom.errors import ConfigError, SinkUnavailable, SourceError
from daom.labels import Label, Recorded, place, read_labels
from daom.report.contest import Contest, Setting, line_up
from daom.report.document import Labels, Replayed, document
from daom.report.page import Pieces, page
from daom.span import Span

_HTML: Final = (".html", ".htm")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What was asked for on the command line."""

    path: Path | None
    labels_path: Path | None
    against: tuple[Path, ...]
    presets: tuple[str, ...]
    grace_s: float


_OPTIONS: Final = (
    click.option(
        "--report",
        "path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write a report: .html to look at, in any browser and offline; .json the same.",
    ),
    click.option(
        "--labels",
        "--incidents",
        "labels_path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="In the report: what is known to have happened, as daom evaluate takes it.",
    ),
    click.option(
        "--against",
        type=click.Path(path_type=Path, dir_okay=False),
        multiple=True,
        help="In the report: hold this configuration beside it, given once or more.",
    ),
    click.option(
        "--compare-preset",
        "presets",
        type=click.Choice(get_args(Preset)),
        multiple=True,
        help="In the report: hold this preset beside it. sits2026 and a static threshold always "
        "are.",
    ),
    click.option(
        "--grace",
        "grace_s",
        type=Seconds(0.0),
        default="5m",
        show_default=True,
        help="With --labels: how long after its end an episode may still be found.",
    ),
)


def report_options(command: Command) -> Command:
    """Add the options of a report to a command, which gets them as keywords: see ``asked_for``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def asked_for(given: dict[str, Any], *, as_json: bool) -> ReportOptions:
    """Return the options of a report.

    Raises:
        BadParameter: If one of them makes no sense without --report or beside --json, or its file
            has another end.
    """
    options = ReportOptions(**given)
    if options.path is not None and as_json:
        raise click.BadParameter(
            "--json prints every output, which a report sums up: give one of them; "
            "--report FILE.json is the report as JSON",
            param_hint="--report",
        )
    if options.path is not None and options.path.suffix not in {*_HTML, ".json"}:
        raise click.BadParameter(
            f"got {str(options.path)!r}; a name that ends in .html or .json is needed",
            param_hint="--report",
        )
    more = {
        "--labels": options.labels_path,
        "--against": options.against,
        "--compare-preset": options.presets,
    }
    for name, value in more.items():
        if options.path is None and value:
            raise click.BadParameter("it is part of a report: give --report, too", param_hint=name)
    return options


@dataclass(slots=True)
class Reporting:
    """A report that is being made: its parts are folded, then it is written.

    Everything that can be wrong is found before anything is replayed, but for labels that do not
    fit the source.
    """

    path: Path
    options: ReportOptions
    contest: Contest
    labels: Sequence[Label] | None
    pieces: Pieces | None
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, options: ReportOptions, config: Config) -> Reporting:
        """Read all that is needed beside the source.

        Raises:
            ConfigError: If a configuration or the label file is wrong, or the report has no place.
            SinkUnavailable: If it cannot be written there now.
        """
        assert options.path is not None
        labels = None if options.labels_path is None else read_labels(options.labels_path)
        contest = Contest(line_up(config, list(_others(options, config))))
        pieces = page_pieces() if options.path.suffix in _HTML else None
        # Found out now, not after an hour.
        with whole_file(options.path):
            pass
        return cls(options.path, options, contest, labels, pieces)

    def read(self, reading: Reading, config: Config, jobs: int | None) -> bool:
        """Fold the source; return whether it was read to its end, and not stopped before."""
        shown = progress_bar(reading, hidden=False)
        parts: dict[int, Contest] = {}
        settings = [contestant.setting for contestant in self.contest.contestants]
        with (
            Interrupt() as interrupt,
            contested(reading.source, config, settings, interrupt, jobs) as items,
            shown as progress,
        ):
            for number, told in items:
                if isinstance(told, Contest):
                    parts[number] = told
                    continue
                reading.note(number, told)
                refresh(progress, reading)
                for entry in told.entries:
                    _print_faults(entry)
        for _, part in sorted(parts.items()):
            self.contest.absorb(part)
        if interrupt.asked:
            self.warnings.append(f"The replay was stopped before its end: {reading.stopped()}.")
        for why in self.contest.broken_off:
            self.warnings.append(f"The source could not be read to its end: {why}")
        self.warnings.extend(gap_words(reading.gaps))
        return not interrupt.asked

    def write(self, recorded: Recorded) -> ConfigError | None:
        """Write the report, and say in a few lines what it shows.

        Labels that do not fit the source are left out, and the report says so.

        Returns:
            What is wrong with the labels, if anything is.

        Raises:
            SinkUnavailable: If it cannot be written.
        """
        told, unfit = self._told(recorded)
        pieces = self.pieces
        text = json.dumps(told, allow_nan=False) if pieces is None else page(told, pieces)
        with whole_file(self.path) as file:
            file.write(text.encode())
        print_report(told, self.path)
        return unfit

    def _told(self, recorded: Recorded) -> tuple[dict[str, Any], ConfigError | None]:
        """Return the report, and what is wrong with the labels, if anything is."""
        labels, unfit = None, None
        try:
            labels = self._placed(recorded)
        except ConfigError as error:
            unfit = error
            self.warnings.append(f"The labels were not used: {error}")
        told = document(
            Replayed(
                contest=self.contest,
                recorded=recorded,
                labels=labels,
                warnings=self.warnings,
            )
        )
        return told, unfit

    def _placed(self, recorded: Recorded) -> Labels | None:
        if self.labels is None:
            return None
        placed = place(self.labels, [recorded], self.contest.config.signals)
        self.warnings.extend(placed.warnings)
        return Labels(episodes=placed.episodes[0], grace_s=self.options.grace_s)


def write_report(
    source: Source, options: ReportOptions, config: Config, span: Span, jobs: int | None
) -> int:
    """Replay ``source``, and write a report of as much of it as could be read.

    Returns:
        The exit code: 0, 3 if there was nothing to judge, or that of a command that was stopped.

    Raises:
        ConfigError: As ``Reporting.begin`` says, or if a label does not fit.
        SinkUnavailable: If the report cannot be written, or no broker answers.
        SourceError: If the source broke off.
    """
    reporting = Reporting.begin(options, config)
    reading = Reading(source)
    is_whole = reporting.read(reading, config, jobs)
    contest = reporting.contest
    recorded = contest.recorded(source.name)
    unfit = reporting.write(recorded) if recorded is not None else None
    for kind, count in sorted(contest.tally.faults.items()):
        click.echo(f"could not be used: {count} x {kind}", err=True)
    if contest.broken_off:
        raise SourceError("\n".join(contest.broken_off))
    if unfit is not None:
        raise unfit
    if not is_whole:
        click.echo(f"daom: stopped; {reading.stopped()}", err=True)
        return EXIT_STOPPED
    if recorded is None:
        why = "" if contest.tally.faults else nothing_in(source, span)
        click.echo(f"daom: {why or source.name + NONE_USABLE}", err=True)
        return EXIT_NOT_JUDGED
    return 0


def _print_faults(entry: Entry) -> None:
    for kind, reason in entry.faults:
        click.echo(f"{entry.where}: {kind}: {reason}", err=True)


def _others(options: ReportOptions, config: Config) -> Iterator[Setting]:
    names: set[str] = {config.preset}
    for path in options.against:
        if str(path) in names:
            raise click.BadParameter(f"{path} is given twice", param_hint="--against")
        names.add(str(path))
        yield Setting(name=str(path), config=configured(path))
    for preset in options.presets:
        if preset not in names:
            names.add(preset)
            # Limits that are missing are learned.
            yield Setting(name=preset, config=config.model_copy(update={"preset": preset}))


def page_pieces() -> Pieces:
    """Return what a page is made of beside the data, from the files of the package."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - an extra.

    here = files("daom.report")
    scripts = sorted(here.joinpath("js").iterdir(), key=lambda script: script.name)
    return Pieces(
        html=here.joinpath("page.html").read_text("utf-8"),
        css=here.joinpath("page.css").read_text("utf-8"),
        script="".join(s.read_text("utf-8") for s in scripts if s.name.endswith(".js")),
        plotly=get_plotlyjs(),
    )


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write; it appears under its name once it is whole, or not at all.

    Nor does one that nothing was written to. What is no file, such as a pipe, is written to as it
    is, and a link is followed.

    Raises:
        ConfigError: If there is no such place to write to.
        SinkUnavailable: If it cannot be written to the end, a full disk for one.
    """
    goal = path.resolve()
    is_replaced = goal.is_file() or not goal.exists()
    written = goal.with_name(f".{goal.name}.{os.getpid()}.part") if is_replaced else goal
    try:
        file = written.open("wb")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        with file:
            yield file
            file.flush()
            is_empty = not is_replaced or not file.tell()
            if is_replaced:
                os.fsync(file.fileno())
        if not is_empty:
            written.replace(goal)
    except OSError as error:
        raise SinkUnavailable(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if is_replaced:
            with contextlib.suppress(OSError):
                written.unlink()
