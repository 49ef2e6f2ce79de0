"""Alertmanager for tests, and waiting for what a server does in its own time."""

import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

SILENT_CONFIG = """\
route: {receiver: nobody}
receivers: [{name: nobody}]
"""
"""Keeps alerts and notifies nobody."""

WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
READY_WITHIN_S = 30.0
STOPPED_WITHIN_S = 10.0


def eventually(condition: Callable[[], T], within_s: float = 15.0, every_s: float = 0.05) -> T:
    """Return the first truthy answer of ``condition``, or fail with its last after ``within_s``.

    In a coroutine, await ``asyncio.to_thread(eventually, condition)``.
    """
    deadline_s = time.monotonic() + within_s
    while not (answer := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not so within {within_s:g} s; the last answer was {answer!r}")
        time.sleep(every_s)
    return answer


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def find_alertmanager() -> str | None:
    """Return the path of Alertmanager's program, Debian's or the project's, or None."""
    return shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


class Alertmanager:
    """One Alertmanager with everything of it in one directory, on a port of its own.

    It is no member of a cluster. After ``stop``, ``start`` brings it back at the same url; it has
    then forgotten all alerts, as Alertmanager does.
    """

    def __init__(self, directory: Path, config: str = SILENT_CONFIG, path_prefix: str = "") -> None:
        """Describe an Alertmanager; ``start`` starts it.

        Args:
            directory: Where its configuration, data and log go; made if it is missing.
            config: Its configuration file.
            path_prefix: Where its API begins, such as ``/monitoring``.
        """
        self.directory = directory
        self.config = config
        self.url = f"http://127.0.0.1:{free_port()}{path_prefix}"
        self._process: subprocess.Popen[bytes] | None = None

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

    def start(self) -> None:
        """Start it and wait until it is ready: about 0.1 s."""
        program = find_alertmanager()
        if program is None:
            raise LookupError("no Alertmanager to start: install prometheus-alertmanager")
        self.directory.mkdir(parents=True, exist_ok=True)
        config_file = self.directory / "alertmanager.yml"
        config_file.write_text(self.config, "utf-8")
        address = self.url.removeprefix("http://").partition("/")[0]
        command = [
            program,
            f"--config.file={config_file}",
            f"--storage.path={self.directory / 'data'}",
            f"--web.listen-address={address}",
            f"--web.external-url={self.url}",
            "--cluster.listen-address=",
        ]
        with (self.directory / "alertmanager.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            eventually(self._is_ready, READY_WITHIN_S)
        except BaseException:
            self.stop()
            raise

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        """End it with ``sent`` and wait until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(sent)
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _is_ready(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            log = (self.directory / "alertmanager.log").read_text("utf-8", "replace")
            raise RuntimeError(f"Alertmanager ended before it was ready:\n{log[-2000:]}")
        try:
            with WITHOUT_PROXY.open(f"{self.url}/-/ready", timeout=1.0) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
