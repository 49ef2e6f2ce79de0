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

from daom.cli.options import Seconds, configured
from daom.cli.report_end import print_report
from daom.config import Config, Preset
from daom.errors import ConfigError, SinkUnavailable, SourceError
from daom.labels import Label, Recorded, place, read_labels
from daom.replay import Tally
from daom.report.contest import Contest, ContestFold, Setting, line_up
from daom.report.document import Labels, Replayed, document
from daom.report.page import Pieces, page

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

    source: str
    options: ReportOptions
    contest: Contest
    labels: Sequence[Label] | None
    pieces: Pieces | None
    parts: list[Contest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, source: str, options: ReportOptions, config: Config) -> Reporting:
        """Read all that is needed beside the source.

        Raises:
            ConfigError: If a configuration or the label file is wrong.
        """
        assert options.path is not None
        labels = None if options.labels_path is None else read_labels(options.labels_path)
        contest = Contest(line_up(config, list(_others(options, config))))
        pieces = page_pieces() if options.path.suffix in _HTML else None
        return cls(source, options, contest, labels, pieces)

    def fold(self) -> ContestFold:
        """Return a fold for one part of the source: a recording, or a partition."""
        part = self.contest.part()
        self.parts.append(part)
        return part.open()

    @contextlib.contextmanager
    def written(self, tally: Tally) -> Iterator[None]:
        """Write the report once the replay that is done inside has ended.

        A source that breaks off, and a replay that is stopped, are reported as far as they came.
        Labels that do not fit are left out. The report says so, and all are errors all the same.

        Raises:
            ConfigError: If the report has no place to be in, or a label does not fit.
            SinkUnavailable: If it cannot be written there now.
            SourceError, KeyboardInterrupt: As the replay raised it.
        """
        assert self.options.path is not None
        # Found out now, not after an hour.
        with whole_file(self.options.path):
            pass
        failed: BaseException | None = None
        try:
            yield
        except SourceError as error:
            failed = error
            self.warnings.append(f"The source could not be read to its end: {error}")
        except KeyboardInterrupt as error:
            failed = error
            self.warnings.append("The replay was stopped before the end of the source.")
        for part in self.parts:
            self.contest.absorb(part)
        recorded = self.contest.recorded(self.source)
        if recorded is not None and tally.records:
            told, unfit = self._told(recorded, tally)
            self._write(self.options.path, told)
            print_report(told, self.options.path)
            failed = failed or unfit
        if failed is not None:
            raise failed

    def _told(self, recorded: Recorded, tally: Tally) -> tuple[dict[str, Any], ConfigError | None]:
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
                tally=tally,
                labels=labels,
                warnings=self.warnings,
            )
        )
        return told, unfit

    def _write(self, path: Path, told: dict[str, Any]) -> None:
        pieces = self.pieces
        text = json.dumps(told, allow_nan=False) if pieces is None else page(told, pieces)
        with whole_file(path) as file:
            file.write(text.encode())

    def _placed(self, recorded: Recorded) -> Labels | None:
        if self.labels is None:
            return None
        placed = place(self.labels, [recorded], self.contest.config.signals)
        self.warnings.extend(placed.warnings)
        return Labels(episodes=placed.episodes[0], grace_s=self.options.grace_s)


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
        raise SinkUnavailable(
            f"{path}: cannot be written: {error.strerror or error}; what was there is as it was"
        ) from error
    finally:
        if is_replaced:
            with contextlib.suppress(OSError):
                written.unlink()
