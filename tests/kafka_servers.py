"""The Kafka that tests run against: one of their own, or one that is there already."""

import atexit
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPT_VARIABLE = "DAOM_KAFKA_SCRIPT"
ADDRESS_VARIABLE = "DAOM_TEST_KAFKA"
COMMAND_WITHIN_S = 120.0


def find_kafka() -> Path | None:
    """Return the launcher of Apache Kafka, or None if there is none or no Java to run it."""
    script = Path(os.environ.get(SCRIPT_VARIABLE) or REPOSITORY / "../shared/kafka/kafka")
    return script.resolve() if script.is_file() and shutil.which("java") else None


def kafka_is_available() -> bool:
    """Whether tests that need Apache Kafka can run."""
    return bool(os.environ.get(ADDRESS_VARIABLE)) or find_kafka() is not None


@dataclass(frozen=True)
class ExistingKafka:
    """A Kafka that somebody else runs. It keeps its topics, so tests need names of their own."""

    bootstrap_servers: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it as it is."""


class RealKafka:
    """An Apache Kafka of one node, with everything of it in one directory.

    ``kill`` and then ``start`` finds all data again, at the same address.
    """

    def __init__(self, directory: Path, *options: str, script: Path | None = None) -> None:
        """Describe a Kafka; ``start`` starts it.

        Args:
            directory: Where its data, log and settings go.
            options: Further options of the launcher's ``start``, such as ``--sasl-port N``.
            script: The launcher; by default the one that ``find_kafka`` finds.
        """
        found = script or find_kafka()
        if found is None:
            raise LookupError(f"no Apache Kafka to start: set {SCRIPT_VARIABLE} to its launcher")
        self._script = found
        self._options = options
        self.directory = directory

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{(self.directory / 'port').read_text().strip()}"

    def secured_servers(self, listener: str) -> str:
        """Its address at the ``listener`` TLS or SASL, where it was started with that port."""
        lines = (self.directory / "server.properties").read_text().splitlines()
        [advertised] = [line for line in lines if line.startswith("advertised.listeners=")]
        return advertised.partition(f",{listener}://")[2].partition(",")[0]

    @property
    def ca_file(self) -> Path:
        """The authority that signed its certificate, where it was started with TLS or SASL."""
        return self.directory / "tls" / "ca.pem"

    def start(self) -> None:
        """Start it and wait until it is ready: about 5 s."""
        # It is detached from this process and would outlive a test run that was broken off.
        atexit.register(self.kill)
        self._run("start", *self._options)

    def stop(self) -> None:
        """Shut it down in order."""
        self._run("stop")
        atexit.unregister(self.kill)

    def kill(self) -> None:
        """End it with kill -9."""
        self._run("kill")
        atexit.unregister(self.kill)

    def pause(self) -> None:
        """Make it hang."""
        self._run("pause")

    def resume(self) -> None:
        """Let it go on."""
        self._run("resume")

    def _run(self, command: str, *options: str) -> None:
        done = subprocess.run(
            [self._script, command, self.directory, *options],
            capture_output=True,
            check=False,
            text=True,
            timeout=COMMAND_WITHIN_S,
        )
        if done.returncode:
            raise RuntimeError(f"kafka {command}: {done.stderr.strip() or done.stdout.strip()}")
