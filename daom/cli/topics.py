"""``daom topics create|describe``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from connectors.kafka import create_topics, describe_topics
from daom.cli.options import brokers_option, config_option, configured, json_option
from daom.config import Config
from daom.topics import Topics, TopicSpec


@click.group(name="topics")
def command() -> None:
    """Make and describe DAOM's topics."""


def topic_specs(config: Config) -> list[TopicSpec]:
    """Return the topics that ``config`` asks for."""
    return Topics(config.kafka.topic_prefix).specs(
        partitions=config.kafka.partitions,
        replication_factor=config.kafka.replication_factor,
        telemetry_retention_s=config.kafka.retention_s,
    )


@command.command()
@config_option
@brokers_option
@click.option("--partitions", type=click.IntRange(1), help="Instead of the configured number.")
def create(config_path: Path | None, brokers: str | None, partitions: int | None) -> None:
    """Create the topics that are missing; leave the others as they are.

    Exits with 1 if one that is there differs from what is configured.

    \b
    Example: daom topics create --partitions 16
    """
    config = configured(config_path, brokers)
    if partitions is not None:
        kafka = config.kafka.model_copy(update={"partitions": partitions})
        config = config.model_copy(update={"kafka": kafka})
    report = asyncio.run(create_topics(config.kafka.client(), topic_specs(config)))
    for name in report.created:
        click.echo(f"created {name}")
    for name in report.kept:
        click.echo(f"kept    {name}")
    for difference in report.differences:
        click.echo(f"daom: {difference}", err=True)
    if report.differences:
        raise click.exceptions.Exit(1)


@command.command()
@config_option
@brokers_option
@json_option
def describe(config_path: Path | None, brokers: str | None, *, as_json: bool) -> None:
    """Print the topics as they are on the broker, and what each is for.

    \b
    Example: daom topics describe --json
    """
    config = configured(config_path, brokers)
    names = [spec.name for spec in topic_specs(config)]
    found = asyncio.run(describe_topics(config.kafka.client(), names))
    if as_json:
        rows = [
            {"name": t.name, "partitions": t.partitions, "config": dict(t.config)} for t in found
        ]
        click.echo(json.dumps(rows))
    else:
        for topic in found:
            policy = topic.config.get("cleanup.policy", "(not told)")
            click.echo(f"{topic.name:24} {topic.partitions:4} partitions  cleanup {policy}")
    missing = sorted(set(names) - {topic.name for topic in found})
    if missing:
        click.echo(f"daom: missing: {', '.join(missing)}; run: daom topics create", err=True)
        raise click.exceptions.Exit(1)
