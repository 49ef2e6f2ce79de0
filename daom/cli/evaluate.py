"""``daom evaluate``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from connectors.sources import Source, in_log_order
from daom.cli.options import (
    EXIT_NOT_JUDGED,
    brokers_option,
    config_option,
    configured,
    json_option,
    span_options,
)
from daom.cli.reading import opened
from daom.cli.scores import Judged, print_scores, report
from daom.config import Config, Preset
from daom.durations import parse_duration
from daom.evaluate import ALARM_KINDS, Case, Rules, Score, baseline, judge
from daom.fold import Fold
from daom.heard import Heard, survey
from daom.labels import Labelled, Recorded, place, read_labels
from daom.presets import cell_settings
from daom.replay import Fault, Sourced, Tally, replay
from daom.span import Span

_EVERY_LINES: Final = 500
"""The progress bar moves so often."""


class Duration(click.ParamType):
    """A duration such as 5m or 1h30m, in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        duration_s = parse_duration(str(value))
        if duration_s is None:
            self.fail(f"got {value!r}; such as 90s, 5m or 1h30m is needed", param, ctx)
        return duration_s


@click.command(name="evaluate")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE [SOURCE ...]")
@click.option(
    "--labels",
    "labels_path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="What is known to have happened: a YAML or JSON list of episodes.",
)
@click.option(
    "--preset",
    "presets",
    type=click.Choice(get_args(Preset)),
    multiple=True,
    help="Judge this preset, given once or more, instead of the configured one.",
)
@click.option("--signal", help="Count the alarms of this signal alone.")
@click.option(
    "--grace",
    "grace_s",
    type=Duration(),
    default="5m",
    show_default=True,
    help="How long after its end an episode may still be found.",
)
@config_option
@brokers_option
@span_options
@json_option
def command(
    sources: tuple[str, ...],
    labels_path: Path,
    presets: tuple[str, ...],
    signal: str | None,
    grace_s: float,
    config_path: Path | None,
    brokers: str | None,
    span: Span,
    *,
    as_json: bool,
) -> None:
    """Say which preset would have found what is known to have happened in SOURCE, and how soon.

    Each SOURCE is replayed for each preset, as "daom replay" does. The label file says what
    happened: a list of {start, end, kind, engine, signal, note}, where kind is degradation,
    improvement or workload (docs/evaluate.md). Alerts (warning and critical) and drifting verdicts
    are judged apart, each beside a clock that alarms as often, and beside silence.

    Exits with 2 if a label or a setting is wrong, and with 3 if nothing could be judged.

    \b
    Examples: daom evaluate incident.jsonl.gz --labels incident.yaml
              daom evaluate *.jsonl.gz --labels all.yaml --preset default --preset adwin
              daom evaluate incident.jsonl.gz --labels incident.yaml --signal ttft_s --json
              daom evaluate topic: --since 7d --labels last-week.yaml
    """
    _check_sources(sources)
    configs = [configured(config_path, brokers, preset) for preset in dict.fromkeys(presets)]
    configs = configs or [configured(config_path, brokers)]
    if signal is not None and signal not in configs[0].signals:
        allowed = ", ".join(configs[0].signals)
        raise click.BadParameter(
            f"got {signal!r}; the signals are {allowed}", param_hint="--signal"
        )
    # Opened once: a topic may grow while it is read again.
    found = [opened(source, configs[0], span) for source in sources]
    surveyed = [_survey(source, configs[0]) for source in found]
    episodes = _episodes(labels_path, surveyed, configs[0], signal)
    rows: list[Judged] = []
    for config, heard in zip(configs, _listen(found, surveyed, configs), strict=True):
        cases = [
            Case(recorded=recorded, episodes=of_one, heard=said)
            for recorded, of_one, said in zip(surveyed, episodes, heard, strict=True)
        ]
        rows.extend(_judged(config, cases, Rules.of(config, grace_s, signal)))
    if not rows:
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)
    if as_json:
        click.echo(json.dumps(report(surveyed, episodes, rows, grace_s, signal)))
    else:
        print_scores(surveyed, episodes, rows, grace_s)


def _check_sources(sources: Sequence[str]) -> None:
    if "-" in sources:
        raise click.BadParameter("standard input can be read once only; give a file")
    twice = sorted({name for name in sources if sources.count(name) > 1})
    if twice:
        raise click.BadParameter(f"{twice[0]} is given twice")


def _survey(source: Source, config: Config) -> Recorded:
    recorded = survey(source.name, in_log_order(source), config)
    if recorded is None:
        click.echo(f"daom: {source.name} holds no record that could be judged", err=True)
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)
    return recorded


def _episodes(
    labels_path: Path, surveyed: Sequence[Recorded], config: Config, signal: str | None
) -> list[list[Labelled]]:
    """Return the labelled episodes of each recording that are about ``signal``, if one is given."""
    placed = place(read_labels(labels_path), surveyed, config.signals)
    for warning in placed.warnings:
        click.echo(f"daom: {warning}", err=True)
    return [
        [e for e in of_one if signal is None or e.label.signal in {None, signal}]
        for of_one in placed.episodes
    ]


def _listen(
    sources: Sequence[Source], surveyed: Sequence[Recorded], configs: Sequence[Config]
) -> list[list[Heard]]:
    """Replay every source for every preset; return what each said of each."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    hidden = not console.is_terminal
    heard: list[list[Heard]] = []
    tally = Tally()
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=len(configs) * sum(r.lines for r in surveyed))
        for config in configs:
            tally = Tally()
            settings = cell_settings(config)
            heard.append([])
            for source in sources:
                progress.update(task, description=f"{config.preset}: {source.name}")
                fold = Fold(settings, config.worker.max_message_bytes)
                lines = _counted(source, progress, task)
                said = Heard()
                for item in replay(lines, fold, tally):
                    if not isinstance(item, Fault):
                        said.note(item)
                heard[-1].append(said)
    for kind, count in sorted(tally.faults.items()):
        click.echo(f"could not be used: {count} x {kind}", err=True)
    return heard


def _counted(source: Source, progress: Progress, task: Any) -> Iterator[Sourced]:
    for number, sourced in enumerate(in_log_order(source), start=1):
        if number % _EVERY_LINES == 0:
            progress.advance(task, _EVERY_LINES)
        yield sourced


def _judged(config: Config, cases: Sequence[Case], rules: Rules) -> Iterator[Judged]:
    if not any(case.heard.was_judged for case in cases):
        click.echo(
            f"daom: {config.preset} came to judge nothing: a longer recording is needed", err=True
        )
        return
    for kind in ALARM_KINDS:
        score = judge(kind, cases, rules)
        if kind == "verdicts":
            _tell_what_could_not_be_found(config.preset, score)
        yield Judged(config.preset, kind, score, baseline(kind, cases, score, rules))


def _tell_what_could_not_be_found(preset: str, score: Score) -> None:
    reasons = {
        "had judged nothing yet": score.unlearned,
        "was already drifting": score.in_alarm,
    }
    for reason, count in reasons.items():
        if count:
            whole = len(score.delays_s)
            click.echo(f"daom: {preset} {reason} when {count} of {whole} episodes began", err=True)
