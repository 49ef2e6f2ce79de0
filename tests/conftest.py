"""Servers, golden files and what was left out, for every test."""

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Protocol

import pytest
from hypothesis import settings

from connectors.embedded_broker import EmbeddedBroker
from tests.kafka_servers import (
    ADDRESS_VARIABLE,
    REPOSITORY,
    ExistingKafka,
    RealKafka,
    find_kafka,
    kafka_is_available,
)
from tests.servers import find_alertmanager
from tests.vllm.engine import find_vllm

GOLDEN_DIRECTORY: Final = REPOSITORY / "tests" / "golden"
REQUIRE_VARIABLE: Final = "DAOM_REQUIRE_SERVERS"

for profile in ("ci", "default"):
    settings.register_profile(profile, derandomize=True, deadline=None, max_examples=100)
settings.load_profile("default")


@dataclass(frozen=True)
class Server:
    """A server that tests carry a marker for, and how to get it."""

    name: str
    bring_it: str


SERVERS: Final = {
    "kafka": Server(
        "Apache Kafka",
        "DAOM_TEST_KAFKA=host:port make test "
        "(any Kafka, e.g. docker run -p 9092:9092 apache/kafka:4.1.0)",
    ),
    "alertmanager": Server("Alertmanager", "apt-get install prometheus-alertmanager"),
    "chromium": Server("Chromium", "apt-get install chromium"),
    "vllm": Server("vLLM", "make vllm (2.5 GB, for the CPU; no GPU needed)"),
}
OWN_KAFKA: Final = Server(
    "an Apache Kafka to kill or secure", "DAOM_KAFKA_SCRIPT=path/to/its/launcher make test"
)
LEFT_OUT: Final = pytest.StashKey[Counter[Server]]()


class Broker(Protocol):
    """Anything that speaks Kafka's protocol."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for any Kafka client."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files with what came out"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a server's fixture, so that ``-m`` can choose them."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "kafka" in fixtures or "kafka_script" in fixtures:
            item.add_marker("kafka")
        if "embedded_broker" in fixtures:
            item.add_marker("broker")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test whose server is missing, or fail it where servers are required."""
    for marker, server in SERVERS.items():
        if item.get_closest_marker(marker) and not _is_available(marker):
            _leave_out(item.config, server)
    if "kafka_script" in getattr(item, "fixturenames", ()) and find_kafka() is None:
        _leave_out(item.config, OWN_KAFKA)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was left out, and the one command that brings it."""
    for server, count in config.stash[LEFT_OUT].items():
        tests = "1 test that needs" if count == 1 else f"{count} tests that need"
        terminalreporter.write_line(
            f"left out: {tests} {server.name}; bring it: {server.bring_it}", yellow=True
        )


def _leave_out(config: pytest.Config, server: Server) -> NoReturn:
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(
            f"{REQUIRE_VARIABLE}=1, but there is no {server.name}: {server.bring_it}",
            pytrace=False,
        )
    config.stash[LEFT_OUT][server] += 1
    pytest.skip(f"needs {server.name}")


def _is_available(marker: str) -> bool:
    if marker == "kafka":
        return kafka_is_available()
    if marker == "vllm":
        return find_vllm() is not None
    if marker == "chromium":
        return find_chromium() is not None
    return find_alertmanager() is not None and shutil.which("amtool") is not None


def find_chromium() -> str | None:
    """Return the path of a Chromium, or of Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[Broker]:
    """One embedded broker for all tests: name topics by ``topic_prefix``."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Apache Kafka for all tests, at an address or started here: see ``topic_prefix``."""
    address = os.environ.get(ADDRESS_VARIABLE)
    directory = tmp_path_factory.mktemp("kafka")
    with ExistingKafka(address) if address else RealKafka(directory) as broker:
        yield broker


@pytest.fixture(
    params=[
        pytest.param("embedded_broker", marks=pytest.mark.broker),
        pytest.param("kafka", marks=pytest.mark.kafka),
    ]
)
def any_broker(request: pytest.FixtureRequest) -> Broker:
    """The embedded broker and Apache Kafka, one after the other."""
    broker: Broker = request.getfixturevalue(request.param)
    return broker


@pytest.fixture(scope="session")
def kafka_script() -> Path:
    """The launcher of Apache Kafka, for tests that kill or secure a broker of their own."""
    script = find_kafka()
    assert script is not None, "the set-up of every test that uses this has looked for it"
    return script


@pytest.fixture
def topic_prefix() -> str:
    """A prefix that no other test uses, nor an earlier run: brokers are shared."""
    return f"test-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class Golden:
    """Expected outputs as files; a changed one is a changed behaviour."""

    update: bool

    def check(self, name: str, text: str) -> None:
        """Compare ``text`` with the file ``name``, or rewrite it with ``--update-golden``."""
        path = GOLDEN_DIRECTORY / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {name}; --update-golden writes it", pytrace=False)
        assert path.read_text("utf-8") == text


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Golden files below ``tests/golden``."""
    return Golden(update=request.config.getoption("--update-golden"))
