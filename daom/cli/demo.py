"""``daom demo``."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from daom.cli.options import json_option
from daom.cli.summary import FIRING, ReplaySummary, clock, describe, series_table
from daom.events import Alert, DriftVerdict, Output, RcaTrigger, Series, SloThreshold, Suppression
from daom.logs import log_to_stderr
from detectors.sits2026 import sits2026_threshold_s

if TYPE_CHECKING:
    from daom.demo import DemoState

_QUIET_EVERY_S = 5.0
_SHOWN_MOVES = 4


@click.command(name="demo")
@click.argument("recording", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--speed", default=45.0, show_default=True, help="Event seconds a real second.")
@json_option
def command(recording: Path | None, speed: float, *, as_json: bool) -> None:
    """See the whole thing work, in a minute, with nothing to set up.

    Starts an embedded broker, a worker, the Alertmanager bridge and a player that sends recorded
    requests of two real vLLM engines; one goes from light load into overload and back. Ends by
    itself with a summary. Where Alertmanager is installed a real one is started and asked.

    \b
    Examples: daom demo
              daom demo --json | jq .alerts
    """
    log_to_stderr()
    # Ended from outside it takes its processes with it, as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = asyncio.run(_run(recording, speed, quiet=as_json))
    if as_json:
        click.echo(json.dumps(summary_json(state), indent=2))
    else:
        print_end(state)


async def _run(given: Path | None, speed: float, *, quiet: bool) -> DemoState:
    from daom.demo import demo_recording, run_demo  # noqa: PLC0415 - needs extras of its own.

    recording = given or demo_recording()
    console = Console(stderr=True)
    view = _View()
    if quiet or not console.is_terminal:
        return await run_demo(recording, _Notices(view, quiet=quiet), speed)
    with Live(console=console, auto_refresh=False) as live:

        def show(state: DemoState) -> None:
            live.update(view.render(state), refresh=True)

        return await run_demo(recording, show, speed)


class _View:
    """The live table: every series, and the newest events below it."""

    def __init__(self) -> None:
        self.summary = ReplaySummary()
        self._seen = 0

    def take(self, state: DemoState) -> None:
        for output in state.outputs[self._seen :]:
            self.summary.note(output)
            if isinstance(output, Alert | Suppression) and "signal" in output.labels:
                self._mark(output)
        self._seen = len(state.outputs)

    def _mark(self, output: Alert | Suppression) -> None:
        labels = output.labels
        series = Series(model=labels["model"], engine=labels.get("engine"), signal=labels["signal"])
        if series in self.summary.series:
            if isinstance(output, Suppression):
                shown = f"muted: {output.rule}"
            else:
                shown = {"pending": "pending", "firing": FIRING}.get(output.state, "")
            self.summary.series[series].state = shown

    def render(self, state: DemoState) -> Group:
        self.take(state)
        newest = [o for o in self.summary.events if not isinstance(o, SloThreshold)][-8:]
        lines = [Text(f"{clock(o.event_time_s)}  {describe(o)}") for o in newest]
        return Group(series_table(self.summary, self._title(state)), *lines)

    def _title(self, state: DemoState) -> str:
        first_s, last_s = state.recorded_s
        done_s = max(0.0, state.played.event_time_s - first_s - state.shift_s)
        return (
            f"{done_s / 60.0:.1f} of {(last_s - first_s) / 60.0:.1f} minutes played, "
            f"{state.played.records} records"
        )


class _Notices:
    """The same without a terminal: a line now and then, and every alert."""

    def __init__(self, view: _View, *, quiet: bool) -> None:
        self._view, self._quiet = view, quiet
        self._said, self._due_s = 0, 0.0

    def __call__(self, state: DemoState) -> None:
        self._view.take(state)
        if self._quiet:
            return
        events = self._view.summary.events
        for output in events[self._said :]:
            click.echo(f"{clock(output.event_time_s)}  {describe(output)}", err=True)
        self._said = len(events)
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _QUIET_EVERY_S
            console = Console(stderr=True, width=110)
            console.print(self._view.render(state).renderables[0])


def print_end(state: DemoState) -> None:
    """Print what the demo found, for a person."""
    console = Console(soft_wrap=True, highlight=False)
    found = summary_json(state)
    console.rule("what DAOM found")
    for drift in found["drifts"]:
        console.print(
            f"[bold]drift[/]      {drift['signal']} of {drift['engine'] or 'the fleet'} since "
            f"{drift['began']}: P99 {drift['p99_s']:.3g} s against {drift['threshold_s']:.3g} s, "
            f"KL {drift['kl_nats']:.3g} nats, {drift['attribution']}; the threshold held (preset "
            f"sits2026 would have raised it to {drift['sits2026_threshold_s']:.3g} s)"
        )
    table = Table(
        "[bold]threshold[/] of", "in force, and why it moved", box=None, padding=(0, 2, 0, 0)
    )
    for name, moves in found["thresholds"].items():
        steps = [f"{move['threshold_s']:.3g} s ({move['why']})" for move in moves]
        shown = steps if len(steps) <= _SHOWN_MOVES else [*steps[:2], "...", steps[-1]]
        table.add_row(name, " -> ".join(shown))
    console.print(table)
    for kind in (Alert, Suppression, RcaTrigger):
        for output in (o for o in state.outputs if isinstance(o, kind)):
            console.print(f"{clock(output.event_time_s)}  {describe(output)}")
    console.print(f"[bold]alertmanager[/] {found['alertmanager']['words']}")
    for posted in found["alertmanager"]["would_be_sent"]:
        console.print_json(json.dumps(posted))


def summary_json(state: DemoState) -> dict[str, Any]:
    """Return what the demo found, for scripts."""
    outputs = state.outputs
    return {
        "drifts": _drifts(outputs),
        "thresholds": _threshold_moves(outputs),
        "alerts": [msgspec.to_builtins(o) for o in outputs if isinstance(o, Alert)],
        "muted": [msgspec.to_builtins(o) for o in outputs if isinstance(o, Suppression)],
        "root_causes": [msgspec.to_builtins(o) for o in outputs if isinstance(o, RcaTrigger)],
        "verdicts": sum(isinstance(o, DriftVerdict) for o in outputs),
        "alertmanager": _alertmanager_json(state),
    }


def _drifts(outputs: list[Output]) -> list[dict[str, Any]]:
    """Return each series' first drift to the slower: when it began, and how bad it became."""
    worst: dict[Series, DriftVerdict] = {}
    began: dict[Series, float] = {}
    for output in outputs:
        if not isinstance(output, DriftVerdict) or output.drifting is not True:
            continue
        if output.direction == "slower":
            began.setdefault(output.series, output.event_time_s)
            known = worst.setdefault(output.series, output)
            if (output.kl_nats or 0.0) > (known.kl_nats or 0.0):
                worst[output.series] = output
    return [
        {
            "engine": series.engine,
            "signal": series.signal,
            "began_s": began[series],
            "began": clock(began[series]),
            "kl_nats": verdict.kl_nats,
            "p99_s": verdict.p99_s,
            "threshold_s": verdict.threshold_s,
            "attribution": verdict.attribution,
            # What the rule that widens the threshold with KL would have made of it.
            "sits2026_threshold_s": sits2026_threshold_s(
                verdict.threshold_s or 0.0, verdict.kl_nats or 0.0
            ),
        }
        for series, verdict in sorted(worst.items(), key=lambda item: began[item[0]])
    ]


def _threshold_moves(outputs: list[Output]) -> dict[str, list[dict[str, Any]]]:
    moves: dict[str, list[dict[str, Any]]] = {}
    for output in outputs:
        if isinstance(output, SloThreshold):
            name = f"{output.series.signal} of {output.series.engine or 'the fleet'}"
            moves.setdefault(name, []).append(
                {
                    "event_time_s": output.event_time_s,
                    "threshold_s": output.threshold_s,
                    "why": output.why,
                }
            )
    return moves


def _alertmanager_json(state: DemoState) -> dict[str, Any]:
    if not state.is_real:
        words = "none is installed (Debian: prometheus-alertmanager); the bridge would have sent:"
    elif not state.seen_firing:
        words = "it never held an alert"
    else:
        names = ", ".join(sorted(alert["labels"]["alertname"] for alert in state.seen_firing))
        end = "then resolved" if state.seen_resolved else "still active at the end"
        words = f"a real one at {state.alertmanager} held {names}, {end}"
    first: dict[str, Any] = {}
    for posted in state.posted:
        first.setdefault(json.dumps(posted["labels"], sort_keys=True), posted)
    return {
        "real": state.is_real,
        "words": words,
        "seen_firing": state.seen_firing,
        "seen_resolved": state.seen_resolved,
        "would_be_sent": list(first.values()),
    }
