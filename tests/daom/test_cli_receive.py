"""``daom receive`` as a user meets it."""

import contextlib
import json
import urllib.error
import urllib.request

import pytest

from tests.processes import ENDED_WITHIN_S, running, said_at_the_end
from tests.servers import WITHOUT_PROXY


@contextlib.contextmanager
def receiving(*options, **variables):
    """A running ``daom receive``, and where it says that it listens."""
    with running("receive", "--port", "0", *options, **variables) as process:
        yield process, process.stdout.readline().strip()


def posted(url, fields, **headers):
    request = urllib.request.Request(
        f"{url}/v1/changes",
        json.dumps(fields).encode(),
        {"Content-Type": "application/json", **headers},
    )
    try:
        with WITHOUT_PROXY.open(request, timeout=ENDED_WITHIN_S) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


@pytest.mark.broker
def test_it_listens_takes_what_has_the_token_and_ends_when_told(
    daom, embedded_broker, topic_prefix, tmp_path, monkeypatch
):
    monkeypatch.setenv("DAOM_KAFKA__TOPIC_PREFIX", topic_prefix)
    at = ("--brokers", embedded_broker.bootstrap_servers)
    daom("topics", "create", *at)
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    deploy = {"model": "m", "kind": "deploy"}

    with receiving(*at, "--token-file", str(token)) as (process, url):
        assert posted(url, deploy) == 401
        assert posted(url, deploy, Authorization="Bearer s3cret") == 202
        said_at_the_end(process)


def test_the_token_may_come_from_the_environment_and_kafka_later():
    with receiving("--brokers", "127.0.0.1:1", DAOM_RECEIVE_TOKEN="s3cret") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert posted(url, {}) == 401
        assert posted(url, {}, Authorization="Bearer s3cret") == 400
        assert "what comes is kept until it is back" in said_at_the_end(process)


def test_beyond_this_machine_it_asks_for_a_token_or_a_clear_no(daom):
    done = daom("receive", "--host", "0.0.0.0")

    assert (done.code, done.out) == (2, "")
    assert "--token-file, or DAOM_RECEIVE_TOKEN" in done.err
    assert "--no-auth" in done.err


def test_a_token_that_is_none_is_refused(daom, tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.write_text("\n")

    assert f"the token: {empty} is empty" in daom("receive", "--token-file", empty).err
    assert "cannot be read" in daom("receive", "--token-file", tmp_path / "missing").err
    monkeypatch.setenv("DAOM_RECEIVE_TOKEN", "s3cret")
    assert "drop one of them" in daom("receive", "--no-auth").err


@pytest.mark.kafka
def test_topics_that_are_missing_are_told_at_the_start(daom, kafka, topic_prefix, monkeypatch):
    monkeypatch.setenv("DAOM_KAFKA__TOPIC_PREFIX", topic_prefix)

    done = daom("receive", "--port", "0", "--brokers", kafka.bootstrap_servers)

    assert done.code == 2
    assert f"there is no topic {topic_prefix}.telemetry; run: daom topics create" in done.err
