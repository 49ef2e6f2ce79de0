"""``daom receive``."""

from __future__ import annotations

from pathlib import Path

import click

from daom.cli.options import brokers_option, config_option, configured, secret
from daom.errors import ConfigError
from daom.logs import log_to_stderr
from daom.service import run_receiver

TOKEN_VARIABLE = "DAOM_RECEIVE_TOKEN"


@click.command(name="receive")
@config_option
@brokers_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=4318, show_default=True, help="Port; 0 picks one.")
@click.option("--model", help="Of spans that name no model, instead of their service's name.")
@click.option("--engine", help="Of spans whose resource names no instance, host or pod.")
@click.option("--client-spans", is_flag=True, help="Spans of clients are requests, too.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File with the bearer token that senders must have; or set {TOKEN_VARIABLE}.",
)
@click.option("--no-auth", is_flag=True, help="Listen beyond this machine without a token.")
def command(
    config_path: Path | None,
    brokers: str | None,
    *,
    host: str,
    port: int,
    model: str | None,
    engine: str | None,
    client_spans: bool,
    token_file: Path | None,
    no_auth: bool,
) -> None:
    """Take spans of requests from engines, and changes from CI, over HTTP.

    POST /v1/traces takes OTLP (protobuf or JSON): vLLM's spans, and those of the semantic
    conventions for generative AI, become telemetry. POST /v1/changes takes a JSON object of the
    fields that daom change has as options. GET /healthz says what has come and what Kafka took.
    It prints its address, and listens beyond this machine only with a token or --no-auth.

    \b
    Examples: daom receive --model llama-3-8b
              daom receive --host 0.0.0.0 --token-file /run/secrets/daom-token
    """
    from connectors.otlp import Naming  # noqa: PLC0415 - an extra.
    from connectors.receiver import Address  # noqa: PLC0415

    config = configured(config_path, brokers)
    token = secret(token_file, TOKEN_VARIABLE)
    address = Address(host, port, token)
    if no_auth and token is not None:
        raise ConfigError("a token is given, and --no-auth says to ask for none: drop one of them")
    if not (address.is_loopback or token or no_auth):
        raise ConfigError(
            f"--host {host} lets others send: give a token (--token-file, or {TOKEN_VARIABLE}), "
            "or say --no-auth"
        )
    log_to_stderr()
    run_receiver(config, address, Naming(model, engine, client_spans), on_listening=click.echo)
