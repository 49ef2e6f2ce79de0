"""TLS and SASL against a real Kafka: every way in works, and every mistake is one line."""

import time

import pytest

from connectors.kafka import create_topics, wait_for_broker
from connectors.recordings import read_lines
from connectors.reporter import Reporter
from daom.cli.play import line_time_s
from daom.config import load_config
from daom.errors import SinkRejected, SinkUnavailable
from daom.events import Source, TelemetryBatch
from daom.topics import Topics
from tests.certificates import make_certificate
from tests.kafka_servers import REPOSITORY, RealKafka
from tests.processes import running, said_at_the_end
from tests.servers import eventually, free_port

SECRET = "marker-s3cr3t"
RECORDING = REPOSITORY / "tests" / "data" / "burstgpt" / "light.jsonl.gz"
TLS = "listener.name.tls.ssl."
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
        ssl_key_file=str(certificate.key_file),
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


def create(variables):
    """Make the topics; return what all clients share, and their names."""
    kafka = load_config(None, variables).kafka
    topics = Topics(kafka.topic_prefix)
    return kafka.client(), topics


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
