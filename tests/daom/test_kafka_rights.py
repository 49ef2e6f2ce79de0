"""Each process with exactly the rights that SECURITY.md gives it, on a real Kafka with ACLs."""

import asyncio
import json
import urllib.request

import pytest

from connectors.kafka import read_topic
from connectors.recordings import read_lines
from connectors.reporter import Reporter
from daom.config import load_config
from daom.events import Source, TelemetryBatch
from daom.topics import Topics
from tests.fleet import OVERLOAD
from tests.kafka_rights import documented_rights, let_in
from tests.kafka_servers import RealKafka
from tests.processes import running, said_at_the_end
from tests.servers import WITHOUT_PROXY, eventually, free_port

pytestmark = pytest.mark.slow

PASSWORD = "marker-s3cr3t"
TOPICS = Topics("daom")
UNTIL_A_CAUSE = 7_200
"""So many records it takes until something of every kind has been said."""
SENDERS = "plugin in vLLM, `daom gpu`, `daom scrape`, `daom play`"
WORKER, BRIDGE = "`daom worker`", "`daom bridge alertmanager`"
CHANGE = "`daom receive`, `daom change`"
REPLAY = "`daom replay`, `daom record`, `daom compare`, `daom evaluate` with `topic:NAME`"
VERIFY = "`daom replay topic:NAME --verify`"
CREATE, DESCRIBE = "`daom topics create`", "`daom topics describe`"
ROWS = {
    process: [r._replace(name=TOPICS.telemetry) if r.name == "NAME" else r for r in rights]
    for process, rights in documented_rights().items()
    if rights
}
USERS = {process: f"user-{number}" for number, process in enumerate(ROWS)}
LACKING = [
    (process, lacked)
    for process in (SENDERS, WORKER, BRIDGE, CHANGE, REPLAY, VERIFY)
    for lacked in ROWS[process]
]
COMMANDS = {
    SENDERS: ["play", OVERLOAD],
    WORKER: ["worker"],
    BRIDGE: ["bridge", "alertmanager"],
    CHANGE: ["change", "--model", "m", "--kind", "deploy"],
    REPLAY: ["replay", f"topic:{TOPICS.telemetry}"],
    VERIFY: ["replay", "topic:", "--verify"],
}


def test_the_table_of_the_documentation_has_the_rows_that_are_tried_here():
    assert set(ROWS) == {*COMMANDS, CREATE, DESCRIBE}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, kafka_script):
    """A Kafka where a user may do what its row says; ``lacks-N`` lacks the Nth right of LACKING."""
    options = ["--sasl-port", str(free_port())]
    options += [
        "--set",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ]
    options += ["--set", "super.users=User:ANONYMOUS;User:daom"]
    with RealKafka(tmp_path_factory.mktemp("kafka"), *options, script=kafka_script) as broker:
        client = {"bootstrap_servers": broker.bootstrap_servers}
        asyncio.run(let_in(client, rights_by_user(), PASSWORD))
        yield broker


def rights_by_user():
    lacking = {
        f"lacks-{number}": [right for right in ROWS[process] if right != lacked]
        for number, (process, lacked) in enumerate(LACKING)
    }
    return {USERS[process]: rights for process, rights in ROWS.items()} | lacking


def variables(broker, user):
    """The variables by which ``user`` logs in."""
    settings = {
        "bootstrap_servers": broker.secured_servers("SASL"),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": user,
        "sasl_password": PASSWORD,
        "ssl_ca_file": str(broker.ca_file),
    }
    return {f"DAOM_KAFKA__{name.upper()}": value for name, value in settings.items()}


@pytest.fixture(scope="module")
def records_in(guarded):
    """Says how many records a topic holds; asked as somebody who may do anything."""

    async def count(topic):
        client = {"bootstrap_servers": guarded.bootstrap_servers}
        return sum([1 async for _ in read_topic(client, topic)])

    return lambda topic: asyncio.run(count(topic))


@pytest.fixture
def as_user(guarded, daom, monkeypatch):
    """Runs a command as a user."""

    def command(user, *arguments):
        for name, value in variables(guarded, user).items():
            monkeypatch.setenv(name, value)
        return daom(*arguments)

    return command


@pytest.fixture
def topics(guarded, as_user):
    """The topics, made by who may; they stay."""
    done = as_user(USERS[CREATE], "topics", "create", "--partitions", 1)
    assert done.code == 0, done.err


def reported(client):
    """What a reporter counts that sends one batch."""
    source = Source(model="m", engine="e", boot="b", seq=0)
    batches = [("m", TelemetryBatch(source=source, start_s=1.0, end_s=2.0, gauges={}))]
    reporter = Reporter(client, TOPICS.telemetry, lambda: [batches.pop()] if batches else [])
    reporter.start()
    eventually(lambda: reporter.counts.sent or reporter.counts.refused)
    reporter.stop()
    return reporter.counts.sent, reporter.counts.refused


def asked(url, body=None):
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with WITHOUT_PROXY.open(request, timeout=10.0) as answer:
        return answer.read().decode()


def test_every_process_does_its_work_with_the_rights_of_its_row(
    guarded, topics, as_user, records_in, tmp_path
):
    recording = tmp_path / "with_noise.jsonl"
    lines = [line.value for line in read_lines(OVERLOAD)][:UNTIL_A_CAUSE]
    recording.write_bytes(b"\n".join([*lines[:50], b"noise", *lines[50:]]))
    port, status, health = free_port(), free_port(), free_port()

    assert as_user(USERS[DESCRIBE], "topics", "describe").code == 0
    assert as_user(USERS[SENDERS], "play", recording).code == 0
    client = load_config(None, variables(guarded, USERS[SENDERS])).kafka.client()
    assert reported(client) == (1, 0)
    with running("worker", **variables(guarded, USERS[WORKER])) as worker:
        for topic in (TOPICS.rca, TOPICS.audit, TOPICS.dead_letters, TOPICS.thresholds):
            eventually(lambda topic=topic: records_in(topic), 60.0, every_s=0.5)
        said_at_the_end(worker)
    monitored = {"DAOM_WORKER__METRICS_PORT": str(health)}
    with running("worker", **variables(guarded, USERS[WORKER]), **monitored) as worker:
        eventually(lambda: answers(f"http://127.0.0.1:{health}/readyz"), 60.0)
        with running(
            "bridge", "alertmanager", "--port", str(status), **variables(guarded, USERS[BRIDGE])
        ):
            page = f"http://127.0.0.1:{status}/metrics"
            eventually(lambda: answers(page) and "daom_bridge" in asked(page))
        with running("receive", "--port", str(port), **variables(guarded, USERS[CHANGE])):
            eventually(lambda: answers(f"http://127.0.0.1:{port}/healthz"))
            change = json.dumps({"model": "m", "kind": "deploy"}).encode()
            assert "m" in asked(f"http://127.0.0.1:{port}/v1/changes", change)
        restarted = said_at_the_end(worker)
    verified = as_user(USERS[VERIFY], *COMMANDS[VERIFY])
    told = as_user(USERS[CHANGE], *COMMANDS[CHANGE])
    replayed = as_user(USERS[REPLAY], *COMMANDS[REPLAY])
    recorded = as_user(USERS[REPLAY], "record", "topic:", tmp_path / "recorded.jsonl")

    assert "goes on at offset" in restarted
    assert "goes on at offset 0" not in restarted
    assert verified.code == 0, verified.out + verified.err
    assert (told.code, told.out) == (0, "told m: deploy\n")
    assert f"{len(lines) + 3} records" in replayed.out
    assert recorded.code == 0, recorded.err


def answers(url):
    try:
        return asked(url)
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "process", "lacked"),
    [(number, *each) for number, each in enumerate(LACKING)],
    ids=[f"{process}-{right.operation}-{right.name}" for process, right in LACKING],
)
def test_who_lacks_a_right_is_told_which_and_of_what(topics, as_user, number, process, lacked):
    done = as_user(f"lacks-{number}", *COMMANDS[process])

    [line] = [line for line in done.err.splitlines() if line.startswith("daom: ")]
    assert done.code == 2
    assert lacked.name in line
    assert lacked.operation in line
    assert PASSWORD not in done.out + done.err
    assert "Traceback" not in done.err


def test_a_reporter_says_which_right_it_lacks_and_serves_on(guarded, topics, caplog):
    client = load_config(None, variables(guarded, "lacks-0")).kafka.client()

    assert reported(client) == (0, 1)

    said, at_the_end = [r.getMessage() for r in caplog.records if r.name == "connectors.reporter"]
    assert TOPICS.telemetry in said
    assert "Write" in said
    assert "not confirmed 1 of 1 records" in at_the_end
    assert PASSWORD not in caplog.text
