"""TLS and SASL against a real Kafka: every way in works, and every mistake is one line."""

import asyncio
import io
import logging
import time

import pytest

from connectors.kafka import describe_topics, read_topic
from connectors.recordings import read_lines
from connectors.reporter import Reporter
from daom.cli.play import line_time_s
from daom.config import load_config
from daom.events import Source, TelemetryBatch
from daom.topics import Topics
from tests.certificates import make_certificate
from tests.kafka_servers import REPOSITORY, RealKafka
from tests.processes import running, said_at_the_end
from tests.servers import eventually, free_port

pytestmark = pytest.mark.slow

SECRET = "marker-s3cr3t"
RECORDING = REPOSITORY / "tests" / "data" / "burstgpt" / "light.jsonl.gz"
TLS = "listener.name.tls.ssl."
PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_daom="daom-secret" user_stranger="{SECRET}";'
)
"""Who may do anything, and who may do nothing."""
WITHIN_S = 15.0
"""How soon a mistake is told: workers wait for minutes where a broker is merely away."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Of a client that the broker's TLS listener knows."""
    return make_certificate(tmp_path_factory.mktemp("client"), "engine")


@pytest.fixture(scope="module")
def secured(tmp_path_factory, kafka_script, certificate):
    """A Kafka that takes passwords at one port and client certificates at another."""
    settings = (
        f"{TLS}client.auth=required",
        f"{TLS}truststore.type=PEM",
        f"{TLS}truststore.location={certificate.cert_file}",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS;User:daom;User:CN=engine",
        f"listener.name.sasl.plain.sasl.jaas.config={PLAIN_USERS}",
    )
    options = ["--tls-port", str(free_port()), "--sasl-port", str(free_port())]
    for setting in settings:
        options += ["--set", setting]
    with RealKafka(tmp_path_factory.mktemp("kafka"), *options, script=kafka_script) as broker:
        yield broker


def sasl(broker, prefix, **changed):
    """The variables that reach ``broker`` with a password."""
    settings = {
        "bootstrap_servers": broker.secured_servers("SASL"),
        "topic_prefix": prefix,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "daom",
        "sasl_password": "daom-secret",
        "ssl_ca_file": str(broker.ca_file),
    } | changed
    return {f"DAOM_KAFKA__{k.upper()}": v for k, v in settings.items() if v is not None}


def mutual_tls(broker, prefix, certificate):
    """The variables that reach ``broker`` with a certificate."""
    no_password = {"sasl_mechanism": None, "sasl_username": None, "sasl_password": None}
    return sasl(
        broker,
        prefix,
        bootstrap_servers=broker.secured_servers("TLS"),
        security_protocol="SSL",
        ssl_cert_file=str(certificate.cert_file),
        ssl_key_file=str(certificate.encrypted(SECRET)),
        ssl_key_password=SECRET,
        **no_password,
    )


@pytest.fixture
def under(daom, monkeypatch):
    """Runs a command under the given variables."""

    def command(variables, *arguments):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return daom(*arguments)

    return command


def records_of(variables, topic):
    """How many records ``topic`` holds."""

    async def count():
        records = read_topic(load_config(None, variables).kafka.client(), topic)
        return sum([1 async for _ in records])

    return asyncio.run(count())


WAYS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "a certificate"]


@pytest.mark.parametrize("way", WAYS)
def test_the_tools_make_topics_send_and_read(secured, certificate, under, topic_prefix, way):
    variables = (
        mutual_tls(secured, topic_prefix, certificate)
        if way == "a certificate"
        else sasl(secured, topic_prefix, sasl_mechanism=way)
    )

    assert under(variables, "topics", "create", "--partitions", 1).code == 0
    assert under(variables, "play", RECORDING, "--to-now").out.startswith("sent ")
    told = under(variables, "change", "--model", "m", "--kind", "deploy")
    read = under(variables, "replay", "topic:")

    assert (told.code, told.out) == (0, "told m: deploy\n")
    count = sum(line_time_s(line) is not None for line in read_lines(RECORDING))
    assert f"{count + 1} records" in read.out


def test_a_worker_reads_and_writes_as_the_user_that_it_was_given(secured, under, topic_prefix):
    variables, topics = sasl(secured, topic_prefix), Topics(topic_prefix)
    under(variables, "topics", "create", "--partitions", 1)
    under(variables, "play", RECORDING, "--to-now")

    with running("worker", **variables) as worker:
        eventually(lambda: records_of(variables, topics.verdicts), every_s=0.5)
        said = said_at_the_end(worker)

    assert "partition 0: goes on at offset 0" in said
    assert "daom-secret" not in said
    assert records_of(variables, topics.checkpoints) > 0


MISTAKES = {
    "a wrong password": ({"sasl_password": SECRET}, "SaslAuthenticationFailed"),
    "a wrong password, sent as it is": (
        {"sasl_password": SECRET, "sasl_mechanism": "PLAIN"},
        "SaslAuthenticationFailed",
    ),
    "an untrusted certificate": ({"ssl_ca_file": None}, "certificate verify failed"),
}
COMMANDS = {
    "worker": ["worker"],
    "bridge": ["bridge", "alertmanager"],
    "topics": ["topics", "create"],
    "play": ["play", RECORDING],
    "change": ["change", "--model", "m", "--kind", "deploy"],
    "replay": ["replay", "topic:"],
    "receive": ["receive", "--port", 0],
    "scrape": ["scrape", "127.0.0.1:1"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_at_once_and_no_secret(
    secured, under, topic_prefix, mistake, arguments
):
    changed, words = MISTAKES[mistake]
    began_s = time.monotonic()

    done = under(sasl(secured, topic_prefix, **changed), *arguments)

    [line] = [line for line in done.err.splitlines() if "Kafka cannot be used" in line]
    assert done.code == 2
    assert line.startswith("daom: Kafka cannot be used as configured: ")
    assert words in line
    assert SECRET not in done.out + done.err
    assert "daom-secret" not in done.out + done.err
    assert "Traceback" not in done.err
    assert time.monotonic() - began_s < WITHIN_S


REFUSED = {
    "worker": (["worker"], "join the group daom-worker: it needs Read on it"),
    "topics": (["topics", "create"], "It needs Create on the topic"),
    "play": (["play", RECORDING], "it lacks Write on topic test-"),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
def test_who_lacks_a_right_is_told_in_one_line(secured, under, topic_prefix, arguments, words):
    under(sasl(secured, topic_prefix), "topics", "create", "--partitions", 1)
    stranger = sasl(
        secured,
        f"{topic_prefix}.new" if "topics" in arguments else topic_prefix,
        sasl_mechanism="PLAIN",
        sasl_username="stranger",
        sasl_password=SECRET,
    )

    done = under(stranger, *arguments)

    [line] = [line for line in done.err.splitlines() if line.startswith("daom: ")]
    assert (done.code, words in line) == (2, True), line
    assert SECRET not in done.out + done.err


OTHER_PORTS = {
    "TLS at a port without": (
        {"security_protocol": "SSL", "ssl_ca_file": None},
        "it speaks no TLS there (see security_protocol)",
    ),
    "no TLS at a port with": (
        {"security_protocol": None, "ssl_ca_file": None},
        "it speaks TLS there: see security_protocol",
    ),
}


@pytest.mark.parametrize("command", ["topics", "worker"])
@pytest.mark.parametrize("case", OTHER_PORTS)
def test_the_wrong_protocol_is_named_at_once(secured, under, topic_prefix, case, command):
    changed, words = OTHER_PORTS[case]
    tls = case == "TLS at a port without"
    servers = secured.bootstrap_servers if tls else secured.secured_servers("TLS")
    nobody = {"sasl_mechanism": None, "sasl_username": None, "sasl_password": None}
    variables = sasl(secured, topic_prefix, bootstrap_servers=servers, **nobody, **changed)
    began_s = time.monotonic()

    done = under(variables, *COMMANDS[command])

    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"Kafka cannot be used as configured: {servers}: " in done.err
    assert words in done.err
    assert time.monotonic() - began_s < WITHIN_S


def test_a_password_sent_as_it_is_stays_out_of_the_libraries_debug_log(
    secured, topic_prefix, monkeypatch, caplog
):
    """aiokafka writes down every request at that level."""
    written, library = io.StringIO(), logging.getLogger("aiokafka")
    monkeypatch.setattr(library, "handlers", [logging.StreamHandler(written)])
    monkeypatch.setattr(library, "propagate", False)
    caplog.set_level(logging.DEBUG, "aiokafka")
    client = load_config(None, sasl(secured, topic_prefix, sasl_mechanism="PLAIN")).kafka.client()

    asyncio.run(describe_topics(client, [topic_prefix]))

    assert "Authenticated as daom via PLAIN" in written.getvalue()
    assert "daom-secret" not in written.getvalue()


def test_a_reporter_says_a_wrong_password_once_and_keeps_what_it_has(secured, topic_prefix, caplog):
    """vLLM serves on: nothing is raised, and the broker is asked again after a pause."""
    client = load_config(None, sasl(secured, topic_prefix, sasl_password=SECRET)).kafka.client()
    source = Source(model="m", engine="e", boot="b", seq=0)
    batches = [("m", TelemetryBatch(source=source, start_s=1.0, end_s=2.0, gauges={}))]

    def collect():
        return [batches.pop()] if batches else []

    reporter = Reporter(client, topic_prefix, collect)
    reporter.start()
    eventually(lambda: reporter.counts.errors.get("SinkRejected", 0) > 1)
    reporter.stop(0.1)

    [said] = [r.getMessage() for r in caplog.records if r.name == "connectors.reporter"]
    assert "Kafka cannot be used as configured: localhost:" in said
    assert "SaslAuthenticationFailed" in said
    assert SECRET not in caplog.text
    assert (reporter.counts.dropped, reporter.counts.refused) == (0, 0)
