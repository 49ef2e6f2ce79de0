"""``daom change`` as a user meets it."""

import asyncio
import json

import pytest

from connectors.kafka import read_topic
from daom.codec import decode
from daom.events import ChangeEvent, Source

NOON_S = 1_796_040_000.0


def records(broker, topic):
    async def read():
        client = {"bootstrap_servers": broker.bootstrap_servers}
        return [(r.key, decode(r.value).record) async for r in read_topic(client, topic)]

    return asyncio.run(read())


@pytest.mark.broker
def test_a_change_is_told_and_said(daom, embedded_broker, topic_prefix, monkeypatch):
    monkeypatch.setenv("DAOM_KAFKA__TOPIC_PREFIX", topic_prefix)
    at = ("--brokers", embedded_broker.bootstrap_servers, "--at", "2026-11-30T12:00:00Z")
    daom("topics", "create", *at[:2])

    deploy = daom("change", "--model", "m", "--kind", "deploy", "--version", "v2", *at)
    until = ("--kind", "maintenance", "--until", "45m", "--engine", "e", "--detail", "switches")
    maintenance = daom("change", "--model", "m", *until, "--json", *at)

    assert deploy == (0, "told m: deploy v2\n", "")
    assert (maintenance.code, maintenance.err) == (0, "")
    assert json.loads(maintenance.out) == {
        "cells": ["m"],
        "model": "m",
        "kind": "maintenance",
        "version": None,
        "engine": "e",
        "detail": "switches",
        "at_s": NOON_S,
        "until_s": NOON_S + 2_700.0,
    }
    assert records(embedded_broker, f"{topic_prefix}.telemetry") == [
        (b"m", ChangeEvent(source=Source(model="m"), time_s=NOON_S, kind="deploy", version="v2")),
        (
            b"m",
            ChangeEvent(
                source=Source(model="m", engine="e"),
                time_s=NOON_S,
                kind="maintenance",
                detail="switches",
                until_s=NOON_S + 2_700.0,
            ),
        ),
    ]


def test_an_unknown_kind_is_refused_with_the_known_ones(daom):
    done = daom("change", "--model", "m", "--kind", "deployed")

    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "daom: kind: got 'deployed'; allowed: deploy, config, lora, restart, scale, stop, "
        "maintenance, accept, other\n"
    )


def test_without_a_broker_nobody_was_told(daom):
    done = daom("change", "--model", "m", "--kind", "deploy", "--brokers", "127.0.0.1:1")

    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("daom: no Kafka broker answers: 127.0.0.1:1")
