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
from daom.config import Config, Preset
from daom.errors import ConfigError, DaomError, SinkError, SourceError
from daom.labels import Label, Recorded, place, read_labels
from daom.replay import Tally
from daom.report.contest import Contest, ContestFold, Setting, line_up
from daom.report.document import Labels, Replayed, document
from daom.report.page import Parts, page

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


def asked_for(given: dict[str, Any]) -> ReportOptions:
    """Return the options of a report.

    Raises:
        BadParameter: If one of them makes no sense without --report, or its file has another end.
    """
    options = ReportOptions(**given)
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
    parts: Parts | None
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
        parts = _parts() if options.path.suffix in _HTML else None
        return cls(source, options, contest, labels, parts)

    def fold(self) -> ContestFold:
        """Return a fold for one part of the source."""
        return self.contest.open()

    @contextlib.contextmanager
    def written(self, tally: Tally) -> Iterator[None]:
        """Write the report once the replay that is done inside has ended.

        A source that breaks off is reported as far as it could be read. Labels that do not fit
        are left out, and the report says so. Both are errors all the same.

        Raises:
            SinkError: If it cannot be written; found before anything is replayed, where it can be.
            SourceError: As the replay raised it.
            ConfigError: If a label does not fit.
        """
        assert self.options.path is not None
        failed: DaomError | None = None
        with whole_file(self.options.path) as file:
            try:
                yield
            except SourceError as error:
                failed = error
                self.warnings.append(f"The source could not be read to its end: {error}")
            recorded = self.contest.survey.recorded(self.source, self.contest.lines)
            if recorded is not None and tally.records:
                unfit = self._write(file, recorded, tally)
                failed = failed or unfit
        if failed is not None:
            raise failed

    def _write(self, file: BinaryIO, recorded: Recorded, tally: Tally) -> ConfigError | None:
        """Write the report; return what is wrong with the labels, if anything is."""
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
        text = json.dumps(told, allow_nan=False) if self.parts is None else page(told, self.parts)
        file.write(text.encode())
        return unfit

    def print_end(self) -> None:
        """Say in a few lines what the report shows, once it is there."""
        for contestant in self.contest.contestants:
            said = contestant.said
            muted = ", ".join(f"{n} by {rule}" for rule, n in said.muted.most_common()) or "none"
            name = contestant.setting.name
            click.echo(f"{name}: {len(said.fired)} alerts fired, muted: {muted}")
        click.echo(f"{self.contest.lines} values; the report is {self.options.path}")

    def _placed(self, recorded: Recorded) -> Labels | None:
        if self.labels is None:
            return None
        placed = place(self.labels, [recorded], self.contest.config.signals)
        for warning in placed.warnings:
            click.echo(f"daom: {warning}", err=True)
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


def _parts() -> Parts:
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - an extra.

    here = files("daom.report")
    scripts = sorted(here.joinpath("js").iterdir(), key=lambda script: script.name)
    return Parts(
        html=here.joinpath("page.html").read_text("utf-8"),
        css=here.joinpath("page.css").read_text("utf-8"),
        script="".join(s.read_text("utf-8") for s in scripts if s.name.endswith(".js")),
        plotly=get_plotlyjs(),
    )


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write; it appears under its name once it is whole, or not at all.

    Nor does one that nothing was written to.

    Raises:
        SinkError: If it cannot be written, now or at the end.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            is_empty = not file.tell()
        if not is_empty:
            partial.replace(path)
    except OSError as error:
        raise SinkError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
