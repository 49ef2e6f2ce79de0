"""``daom tune``."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from connectors.recordings import read_lines
from daom import __version__
from daom.cli.evaluate import Duration
from daom.cli.options import EXIT_NOT_JUDGED, config_option, json_option
from daom.cli.tuned import print_outcome, report
from daom.config import Config, config_yaml
from daom.errors import SinkError
from daom.evaluate import sought
from daom.heard import survey
from daom.labels import Recorded, place, read_labels
from daom.replay import Sourced
from daom.tuning.candidates import Maker, Planner
from daom.tuning.deploy import Told, caught_words, tuned_yaml
from daom.tuning.holdout import Split
from daom.tuning.jobs import InThisProcess, OverProcesses, Task
from daom.tuning.journal import Journal
from daom.tuning.search import Search, search
from daom.tuning.space import BUILT_IN, read_space
from daom.tuning.study import Study, outcome

EXIT_NOT_MET: Final = 1
_RUNNERS_UP: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command was asked."""

    source: str
    incidents: Path
    space: Path | None
    within_s: float
    grace_s: float
    holdout: float
    trials: int
    jobs: int
    seed: int
    output: Path
    study: Path
    config: Path | None


@click.command(name="tune")
@click.argument("source")
@click.option(
    "--incidents",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="What is known to have happened: a label file, as for daom evaluate.",
)
@click.option(
    "--space",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file with the values to try of each field; a built-in space if left out.",
)
@click.option(
    "--catch-within",
    "within_s",
    type=Duration(),
    default="2m",
    show_default=True,
    help="How soon after its onset each incident is to be caught.",
)
@click.option(
    "--holdout",
    type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
    default=0.4,
    show_default=True,
    help="Share of the time, at the end, that judges the choice and takes no part in it.",
)
@click.option(
    "--grace",
    "grace_s",
    type=Duration(),
    default="5m",
    show_default=True,
    help="How long after its end an incident may still be found.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 100_000),
    default=64,
    show_default=True,
    help="Replays at most; each tries all combinations of alert settings.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 1_024), help="Replays at a time; as many as cores if left out."
)
@click.option(
    "--seed", type=click.IntRange(0, 2**31), default=1, show_default=True, help="Of the optimiser."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="tuned.yaml",
    show_default=True,
    help="Where the configuration is written.",
)
@click.option(
    "--study",
    type=click.Path(path_type=Path, dir_okay=False),
    help="What is found along the way, to go on from; beside the output if left out.",
)
@config_option
@json_option
def command(
    source: str,
    incidents: Path,
    space: Path | None,
    within_s: float,
    holdout: float,
    grace_s: float,
    trials: int,
    jobs: int | None,
    seed: int,
    output: Path,
    study: Path | None,
    config_path: Path | None,
    *,
    as_json: bool,
) -> None:
    """Find the settings that catch the incidents of SOURCE in time and else stay quiet.

    Every setting of the space is replayed over SOURCE, as "daom replay" does. The first part of its
    time chooses: all incidents within --catch-within, then the fewest alerts, then the shortest
    delays. The rest judges the choice beside what is configured now, and only what is better there
    is recommended. The result is a configuration file for "daom worker --config".

    Ctrl-C stops it; the same command goes on where it was. Exits with 0 if what it recommends
    catches all incidents in time on the part that judges, with 1 if not, and with 3 if nothing
    could be judged.

    \b
    Examples: daom tune month.jsonl.gz --incidents incidents.yaml --catch-within 5m
              daom tune month.jsonl.gz --incidents incidents.yaml --space space.yaml --jobs 8
              daom worker --config tuned.yaml
    """
    options = Options(
        source=source,
        incidents=incidents,
        space=space,
        within_s=within_s,
        grace_s=grace_s,
        holdout=holdout,
        trials=trials,
        jobs=jobs or _cores(),
        seed=seed,
        output=output,
        study=study or output.with_name(f"{output.name}.study.jsonl"),
        config=config_path,
    )
    _check_files(options)
    _tune(options, as_json=as_json)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_files(options: Options) -> None:
    """Refuse to write over what is read, and what cannot be read again."""
    if options.source == "-":
        raise click.BadParameter("standard input can be read once only; give a file")
    read = (Path(options.source), options.incidents, options.space, options.config)
    paths = {path.absolute() for path in read if path is not None}
    for name, path in (("--output", options.output), ("--study", options.study)):
        if path.absolute() in paths:
            raise click.BadParameter(f"{path} is read, too; name another file", param_hint=name)
    if options.output.absolute() == options.study.absolute():
        raise click.BadParameter("is the output, too; name another file", param_hint="--study")


def _parts(source: str) -> Iterator[Iterable[Sourced]]:
    """Yield the parts of a source, each to be folded by itself: a recording is one."""
    yield (Sourced(f"{source}:{line.number}", line.value) for line in read_lines(source))


@dataclass(slots=True)
class _Digest:
    """What tells one content of a source from another."""

    _state: hashlib.blake2b = field(default_factory=partial(hashlib.blake2b, digest_size=16))

    def over(self, values: Iterable[Sourced]) -> Iterator[bytes]:
        for sourced in values:
            value = sourced.value or b""
            self._state.update(len(value).to_bytes(8, "big") + value)
            yield value

    def __str__(self) -> str:
        return self._state.hexdigest()


def _tune(options: Options, *, as_json: bool) -> None:
    environment = {n: v for n, v in os.environ.items() if n.startswith("DAOM_")}
    where = str(options.space or "the built-in space")
    maker = Maker(options.config, environment, where)
    base, space = maker.base(), read_space(options.space)
    maker.check(space)
    planner = Planner(maker, space, base)
    searched, replays = search(space, options.trials, options.seed)
    split, digest = _surveyed(options, base.config)
    journal = Journal(options.study, _about(options, digest, base.config))
    study = Study(planner, journal, options.within_s)
    try:
        _carry_out(options, study, split, searched, replays)
    except KeyboardInterrupt:
        click.echo(
            f"daom: {study.done} replays are in {options.study}; to go on, "
            "run the same command again",
            err=True,
        )
        raise
    _tell_refused(planner)
    found = outcome(study, _RUNNERS_UP)
    if not any(t.chosen_on.judged and t.judged_on.judged for t in study.trials):
        click.echo("daom: nothing came to be judged: a longer recording is needed", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)
    told = Told(
        command=shlex.join(["daom", *sys.argv[1:]]),
        incidents=str(options.incidents),
        split=split,
        base=options.config,
        environment=[name for name in environment if name != "DAOM_CONFIG"],
    )
    _write(options.output, tuned_yaml(found, told))
    if as_json:
        click.echo(json.dumps(report(found, split, len(study.trials), str(options.output))))
    else:
        print_outcome(found, split, len(study.trials), str(options.output))
    if not found.meets:
        raise click.exceptions.Exit(EXIT_NOT_MET)


def _surveyed(options: Options, config: Config) -> tuple[Split, str]:
    """Read the source once: what it holds, where it is divided, and the digest of its content."""
    digest = _Digest()
    values = (value for part in _parts(options.source) for value in part)
    console = Console(stderr=True)
    with console.status(f"reading {options.source}"):
        recorded = survey(options.source, digest.over(values), config)
    if recorded is None:
        click.echo(f"daom: {options.source} holds no record that could be judged", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)
    for kind, count in sorted(recorded.refused.items()):
        click.echo(f"could not be used: {count} x {kind}", err=True)
    return _split(options, recorded, config), str(digest)


def _split(options: Options, recorded: Recorded, config: Config) -> Split:
    placed = place(read_labels(options.incidents), [recorded], config.signals)
    for warning in placed.warnings:
        click.echo(f"daom: {warning}", err=True)
    split = Split.of(recorded, placed.episodes[0], options.holdout)
    for name, part in zip(("chooses", "judges"), split.incidents(), strict=True):
        if not sought("alerts", part):
            click.echo(
                f"daom: no incident to be caught began in the part that {name}: there, settings "
                "are told apart by their alerts alone",
                err=True,
            )
    return split


def _about(options: Options, digest: str, config: Config) -> dict[str, str]:
    """Return what a study is of, so that no other is gone on with."""
    space = BUILT_IN if options.space is None else options.space.read_text(encoding="utf-8")
    labels = options.incidents.read_text(encoding="utf-8")
    judged = config.model_copy(update={"kafka": Config().kafka, "bridge": Config().bridge})
    goal = (options.within_s, options.grace_s, options.holdout, options.trials, options.seed)
    words = {"space": space, "incidents": labels, "configuration": config_yaml(judged)}
    return {
        "version of DAOM": __version__,
        "source": digest,
        "objective": " ".join(map(repr, goal)),
        **{name: hashlib.blake2b(text.encode()).hexdigest()[:32] for name, text in words.items()},
    }


def _carry_out(options: Options, study: Study, split: Split, searched: Search, total: int) -> None:
    """Run a study under a progress bar: replays, the best so far, and the time left."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    hidden, lines = not console.is_terminal, split.recorded.lines
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task(f"replays 0/{total}", total=total * lines)
        task = Task(partial(_parts, options.source), split, options.grace_s)
        advance = partial(progress.advance, bar)
        study.evaluate = (
            InThisProcess(task, advance)
            if options.jobs == 1
            else OverProcesses(task, options.jobs, advance)
        )
        for _ in study.run(searched):
            words = [f"replays {study.done}/{max(total, study.done)}"]
            if study.best is not None:
                caught = caught_words(study.best, study.within_s)
                words.append(f"best {caught}, {study.best.alerts} alerts")
            progress.update(bar, description="; ".join(words), completed=study.done * lines)


def _tell_refused(planner: Planner) -> None:
    if planner.refused:
        words, why = next(iter(planner.refused.items()))
        click.echo(
            f"daom: {len(planner.refused)} combinations are no configuration and were left out, "
            f"such as {words}: {why}",
            err=True,
        )


def _write(path: Path, text: str) -> None:
    """Write a file whole, or not at all."""
    partial_path = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial_path.write_text(text, encoding="utf-8")
        partial_path.replace(path)
    except OSError as error:
        raise SinkError(f"{path}: {error.strerror or error}") from error
    finally:
        partial_path.unlink(missing_ok=True)
