"""Alertmanager for tests, real and fake, the bridge to it, and waiting for what they do."""

import asyncio
import contextlib
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest
from aiohttp import web

from connectors.alert_bridge import AlertSource, BridgeCounters, BridgeEvent, run_bridge
from connectors.alertmanager import AlertmanagerSink
from daom.alert_book import AlertBatch, BookSettings, WrittenAlert
from daom.events import Alert

T = TypeVar("T")

SILENT_CONFIG = """\
route: {receiver: nobody}
receivers: [{name: nobody}]
"""
"""Keeps alerts and notifies nobody."""

WITHOUT_PROXY = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    # Whether a server is ready is asked of those with a certificate of the test's own, too.
    urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),
)
READY_WITHIN_S = 30.0
STOPPED_WITHIN_S = 10.0
WITHIN_S = 20.0
STORY_WITHIN_S = 60.0


def eventually(condition: Callable[[], T], within_s: float = WITHIN_S, every_s: float = 0.05) -> T:
    """Return the first truthy answer of ``condition``, or fail with its last after ``within_s``.

    In a coroutine, await ``soon`` instead.
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

    def __init__(
        self,
        directory: Path,
        config: str = SILENT_CONFIG,
        path_prefix: str = "",
        web_config: str | None = None,
        client: ssl.SSLContext | None = None,
    ) -> None:
        """Describe an Alertmanager; ``start`` starts it.

        Args:
            directory: Where its configuration, data and log go; made if it is missing.
            config: Its configuration file.
            path_prefix: Where its API begins, such as ``/monitoring``.
            web_config: Its certificate and the users that it lets in; it then speaks TLS.
            client: The certificate to ask it with, where it lets in no others.
        """
        self._open = WITHOUT_PROXY.open
        if client is not None:
            handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=client)
            self._open = urllib.request.build_opener(*handlers).open
        self.directory = directory
        self.config = config
        self.web_config = web_config
        self.url = f"http{'s' if web_config else ''}://127.0.0.1:{free_port()}{path_prefix}"
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
        address = self.url.partition("://")[2].partition("/")[0]
        command = [
            program,
            f"--config.file={config_file}",
            f"--storage.path={self.directory / 'data'}",
            f"--web.listen-address={address}",
            f"--web.external-url={self.url}",
            "--cluster.listen-address=",
        ]
        if self.web_config is not None:
            web_file = self.directory / "web.yml"
            web_file.write_text(self.web_config, "utf-8")
            command.append(f"--web.config.file={web_file}")
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
            with self._open(f"{self.url}/-/ready", timeout=1.0) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            return error.code == HTTPStatus.UNAUTHORIZED
        except (urllib.error.URLError, OSError):
            return False


class Hangs(Exception):  # noqa: N818 - an answer, not an error.
    """Raised by the answer of a fake replica that shall never answer."""


@dataclass
class FakeReplica:
    """An Alertmanager as a client sees it: what it was sent, and what it answers.

    Attributes:
        answer: Makes the answer to a request's body; may raise ``Hangs``.
        path: Path of its API.
        url: Where it is, while it runs.
        bodies: The bodies of all requests.
        headers: Their headers.
    """

    answer: Callable[[list[dict[str, Any]]], web.Response]
    path: str = "/api/v2/alerts"
    url: str = ""
    bodies: list[list[dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[str]:
        """Serve, and give the url."""
        app = web.Application()
        app.router.add_post(self.path, self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self.url
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        try:
            return self.answer(self.bodies[-1])
        except Hangs:
            await asyncio.Event().wait()
            raise

    def engines(self) -> list[list[str]]:
        """The label ``engine`` of every alert of every request."""
        return [[sent["labels"]["engine"] for sent in body] for body in self.bodies]


class MemoryTopic:
    """An alert topic in memory; what is in it at first is restored."""

    def __init__(self, *before: Alert) -> None:
        self._before = before
        self._after: asyncio.Queue[AlertBatch] = asyncio.Queue()

    async def restore(self) -> AsyncIterator[AlertBatch]:
        yield AlertBatch(tuple(WrittenAlert(a, time.time()) for a in self._before))

    async def next(self, timeout_s: float) -> AlertBatch:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self._after.get()
        return AlertBatch()

    def write(self, *alerts: Alert, malformed: int = 0) -> None:
        """Append ``alerts`` as one batch, and so many malformed values."""
        written = tuple(WrittenAlert(a, time.time()) for a in alerts)
        self._after.put_nowait(AlertBatch(written, malformed, "bad" if malformed else ""))


@dataclass
class WatchedBridge:
    """A bridge, what it counted and what it told."""

    counters: BridgeCounters = field(default_factory=BridgeCounters)
    events: list[BridgeEvent] = field(default_factory=list)

    def kinds(self, url: str) -> list[str]:
        """What it told of one replica, but for the failures of each single try."""
        return [e.kind for e in self.events if e.replica == url and e.kind != "failed"]

    def words(self, kind: str) -> list[str]:
        """Its log lines of one kind."""
        return [event.words for event in self.events if event.kind == kind]


@contextlib.asynccontextmanager
async def bridge(
    topic: AlertSource, *urls: str, settings: BookSettings
) -> AsyncIterator[WatchedBridge]:
    """Run a bridge from ``topic`` to ``urls``, with quick retries, until the block ends."""
    watched = WatchedBridge()
    async with contextlib.AsyncExitStack() as stack:
        sinks = [await stack.enter_async_context(AlertmanagerSink(url)) for url in urls]
        task = asyncio.create_task(
            run_bridge(
                topic,
                sinks,
                settings,
                clock=time.time,
                counters=watched.counters,
                on_event=watched.events.append,
                first_retry_s=0.05,
            )
        )
        try:
            yield watched
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def soon(condition: Callable[[], object]) -> None:
    """Wait in a coroutine until ``condition`` is true; it is asked in another thread."""
    await asyncio.to_thread(eventually, condition)


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that must end."""
    asyncio.run(asyncio.wait_for(story, STORY_WITHIN_S))
