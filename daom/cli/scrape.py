"""``daom scrape``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from connectors.metrics_scrape import Access, Naming, Scraper, metrics_url, scrape, since_the_start
from connectors.probe_settings import probe_section
from daom.cli.options import (
    EXIT_NOT_JUDGED,
    Seconds,
    brokers_option,
    config_option,
    configured,
    json_option,
    secret,
)
from daom.cli.reporting import reporting, stop_event
from daom.codec import encode_json
from daom.config import Config
from daom.errors import ConfigError, SourceError
from daom.events import Histogram, TelemetryBatch
from daom.logs import log_to_stderr
from daom.topics import Topics

TOKEN_VARIABLE: Final = "DAOM_SCRAPE_TOKEN"
BASIC_VARIABLE: Final = "DAOM_SCRAPE_BASIC"

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_INTERVAL: Final = Seconds(1.0, 30.0)


@click.command(name="scrape")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@config_option
@brokers_option
@click.option("--model", help="Of all engines, instead of the model_name that they show.")
@click.option("--engine", help="Of the one URL's engine, instead of its host and port.")
@click.option("--interval", "interval_s", type=_INTERVAL, default="10s", show_default=True)
@click.option("--timeout", "timeout_s", type=Seconds(), default="5s", show_default=True)
@click.option("--token-file", type=_FILE, help=f"Bearer token; or set {TOKEN_VARIABLE}.")
@click.option("--basic-file", type=_FILE, help=f"user:password; or set {BASIC_VARIABLE}.")
@click.option("--once", is_flag=True, help="Print what each engine shows now; send nothing.")
@json_option
def command(
    urls: tuple[str, ...],
    config_path: Path | None,
    brokers: str | None,
    model: str | None,
    engine: str | None,
    interval_s: float,
    timeout_s: float,
    token_file: Path | None,
    basic_file: Path | None,
    *,
    once: bool,
    as_json: bool,
) -> None:
    """Send what the /metrics of vLLM and SGLang show, for engines that cannot take the plugin.

    Latencies are sent as bucket counts, never as quantiles: drift is seen as well as the buckets
    let it be seen, and verdicts say so. A URL that does not answer is said once and asked again.
    --once prints all that was counted since the engine's start, and exits with 3 if any URL shows
    nothing.

    \b
    Examples: daom scrape --once 127.0.0.1:8000
              daom scrape http://vllm-0:8000/metrics http://vllm-1:8000/metrics
    """
    importlib.import_module("prometheus_client")  # An extra: better missed now than by a thread.
    if as_json and not once:
        raise click.UsageError("--json needs --once")
    if engine is not None and len(urls) > 1:
        raise click.UsageError("--engine needs a single URL: names must differ")
    targets = [(url, _naming(url, engine, model)) for url in dict.fromkeys(map(metrics_url, urls))]
    access = _access(timeout_s, token_file, basic_file)
    if once:
        _print(targets, access, as_json=as_json)
    else:
        _send(targets, access, configured(config_path, brokers), interval_s)


def _naming(url: str, engine: str | None, model: str | None) -> Naming:
    return Naming(engine or urlsplit(url).netloc, model)


def _access(timeout_s: float, token_file: Path | None, basic_file: Path | None) -> Access:
    token = secret(token_file, TOKEN_VARIABLE)
    basic = secret(basic_file, BASIC_VARIABLE, "password")
    if token is not None and basic is not None:
        raise ConfigError("a token and a password are given: drop one of them")
    if basic is not None and ":" not in basic:
        raise ConfigError("the password must be given as user:password")
    return Access(timeout_s, token, basic)


def _send(
    targets: Sequence[tuple[str, Naming]], access: Access, config: Config, interval_s: float
) -> None:
    log_to_stderr()
    stopping = stop_event()
    topic = Topics(config.kafka.topic_prefix).telemetry
    scraper = Scraper(targets, access, interval_s, probe_section(config.probe).cells)
    number = "1 URL" if len(targets) == 1 else f"{len(targets)} URLs"
    click.echo(f"daom: scraping {number} every {interval_s:g} s -> {topic}", err=True)
    with reporting(config, scraper.collect):
        scraper.start()
        stopping.wait()
        scraper.stop()


def _print(targets: Sequence[tuple[str, Naming]], access: Access, *, as_json: bool) -> None:
    failed = False
    for url, naming in targets:
        try:
            batches = since_the_start(naming, scrape(url, access))
        except SourceError as error:
            click.echo(f"daom: {error}", err=True)
            failed = True
            continue
        for batch in batches:
            click.echo(encode_json(batch) if as_json else _words(url, batch))
    if failed:
        raise click.exceptions.Exit(EXIT_NOT_JUDGED)


def _words(url: str, batch: TelemetryBatch) -> str:
    lines = [f"{batch.source.model}, engine {batch.source.engine} ({url}), since its start:"]
    lines += [f"  {name}: {_counted(h)}" for name, h in batch.histograms.items()]
    lines += [f"  {name}: {value:,.6g}" for name, value in batch.gauges.items()]
    return "\n".join(lines)


def _counted(histogram: Histogram) -> str:
    """Return the buckets that hold anything: ``145 samples, 3 of 22 buckets, 0.005 to 0.25 s``."""
    held = histogram.counts.nonzero()[0]
    lowest_s = histogram.le_s[held[0] - 1] if held[0] else 0.0
    buckets = f"{held.size} of {histogram.le_s.size} buckets"
    return f"{histogram.total} samples in {buckets}, {lowest_s:g} to {histogram.le_s[held[-1]]:g} s"
