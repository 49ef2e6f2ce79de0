"""``daom tune``."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from connectors.processes import cores
from connectors.sources import open_source
from daom import __version__
from daom.cli.evaluate import Duration
from daom.cli.options import (
    EXIT_NO,
    EXIT_NOT_JUDGED,
    brokers_option,
    config_option,
    json_option,
    span_options,
)
from daom.cli.surveyed import Rereading, divided, surveyed
from daom.cli.tuned import print_outcome, report
from daom.config import ENV_PREFIX, Config, config_yaml
from daom.errors import SinkError
from daom.labels import read_labels
from daom.span import Span
from daom.topics import Topics
from daom.tuning.candidates import Maker, Planner
from daom.tuning.deploy import Told, caught_words, tuned_yaml
from daom.tuning.holdout import Split
from daom.tuning.jobs import InThisProcess, OverProcesses, Task
from daom.tuning.journal import Journal
from daom.tuning.search import Search, search
from daom.tuning.space import SECTIONS, Space, read_space
from daom.tuning.study import Study, outcome

_RUNNERS_UP: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command was asked."""

    source: str
    span: Span
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
    environment: Mapping[str, str]


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
@brokers_option
@span_options
@json_option
def command(
    source: str,
    span: Span,
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
    brokers: str | None,
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
    environment = {n: v for n, v in os.environ.items() if n.startswith(ENV_PREFIX)}
    if brokers is not None:
        environment["DAOM_KAFKA__BOOTSTRAP_SERVERS"] = brokers
    options = Options(
        source=source,
        span=span,
        incidents=incidents,
        space=space,
        within_s=within_s,
        grace_s=grace_s,
        holdout=holdout,
        trials=trials,
        jobs=jobs or cores(),
        seed=seed,
        output=output,
        study=study or output.with_name(f"{output.name}.study.jsonl"),
        config=config_path,
        environment=environment,
    )
    _check_files(options)
    _tune(options, as_json=as_json)


def _check_files(options: Options) -> None:
    """Refuse to write over what is read, and what cannot be read again."""
    if options.source == "-":
        raise click.BadParameter("standard input can be read once only; give a file")
    read = (Path(options.source), options.incidents, options.space, options.config)
    paths = {path.absolute() for path in read if path is not None}
    for name, path in (("--output", options.output), ("--study", options.study)):
        if path.absolute() in paths:
            raise click.BadParameter(f"{path} is read, too; name another file", param_hint=name)
        if not path.parent.is_dir():
            raise click.BadParameter(f"there is no directory {path.parent}", param_hint=name)
    if options.output.absolute() == options.study.absolute():
        raise click.BadParameter("is the output, too; name another file", param_hint="--study")


def _tune(options: Options, *, as_json: bool) -> None:
    maker = Maker(options.config, options.environment, str(options.space or "the built-in space"))
    base, space = maker.base(), read_space(options.space)
    maker.check(space)
    planner = Planner(maker, space, base)
    searched, replays = search(space, options.trials, options.seed)
    read_labels(options.incidents)  # What is wrong with them is said before a long reading.
    kafka = base.config.kafka
    topic = Topics(kafka.topic_prefix).telemetry
    source = open_source(options.source, kafka.client(), topic, options.span)
    recorded, digest = surveyed(source, options.span, base.config)
    split = divided(recorded, options.incidents, options.holdout, base.config)
    journal = Journal(options.study, _about(options, space, digest, base.config))
    study = Study(planner, journal, options.within_s)
    task = Task(Rereading.of(source, base.config), split, options.grace_s)
    try:
        _carry_out(options, study, task, searched, replays)
    except KeyboardInterrupt:
        click.echo(
            f"daom: {len(journal)} replays are kept in {options.study}; to go on, run the same "
            "command again",
            err=True,
        )
        raise
    _tell_refused(planner)
    _conclude(options, study, split, as_json=as_json)


def _conclude(options: Options, study: Study, split: Split, *, as_json: bool) -> None:
    if not any(t.chosen_on.judged and t.judged_on.judged for t in study.trials):
        click.echo("daom: nothing came to be judged: a longer recording is needed", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)
    found = outcome(study, _RUNNERS_UP)
    told = Told(
        command=shlex.join(["daom", *sys.argv[1:]]),
        incidents=str(options.incidents),
        split=split,
        base=options.config,
        environment=[name for name in options.environment if _is_heeded(name)],
    )
    _write(options.output, tuned_yaml(found, told))
    if as_json:
        click.echo(json.dumps(report(found, split, len(study.trials), str(options.output))))
    else:
        print_outcome(found, split, len(study.trials), str(options.output))
    if not found.meets:
        raise click.exceptions.Exit(EXIT_NO)


def _is_heeded(variable: str) -> bool:
    """Return whether a variable of the environment changes what is said."""
    return variable.removeprefix(ENV_PREFIX).lower().partition("__")[0] in SECTIONS


def _about(options: Options, space: Space, digest: str, config: Config) -> dict[str, str]:
    """Return what the figures of a study depend on, so that no others are taken for them.

    They do not depend on how soon is soon enough, nor on which replays were asked for.
    """
    labels = options.incidents.read_text(encoding="utf-8")
    judged = config.model_copy(update={"kafka": Config().kafka, "bridge": Config().bridge})
    words = {
        "incidents": labels,
        "configuration": config_yaml(judged),
        "alert settings": repr(space.variants()),
        "parts": repr((options.grace_s, options.holdout)),
    }
    return {
        "version of DAOM": __version__,
        "source": digest,
        **{name: hashlib.blake2b(text.encode()).hexdigest()[:32] for name, text in words.items()},
    }


def _carry_out(options: Options, study: Study, task: Task, searched: Search, total: int) -> None:
    """Run a study under a progress bar: replays, the best so far, and the time left."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    hidden, lines = not console.is_terminal, task.split.recorded.lines
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task(f"replays 0/{total}", total=total * lines)
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
