"""The demo: broker, worker, bridge and player, each as it would really run, and a table of it all.

Everything is a real process or a real client; only the Alertmanager is stood in for where none is
installed, by a receiver that keeps what it is sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from aiohttp import web
from aiokafka import AIOKafkaConsumer

from connectors.embedded_broker import EmbeddedBroker
from connectors.kafka import create_topics
from connectors.player import Played, play
from connectors.recordings import Line, read_lines, record_time_s
from daom.codec import decode, decode_output
from daom.config import ENV_PREFIX, Config, load_config
from daom.errors import SinkUnavailable, SourceError
from daom.events import Alert, DriftVerdict, Output
from daom.topics import Topics

RECORDING: Final = "light_to_overload.jsonl.gz"
_SPEED: Final = 45.0
_DRAIN_S: Final = 20.0
_READY_S: Final = 30.0
_PARTITIONS: Final = 4
_LAST_WORDS: Final = 1_000


@dataclass(slots=True)
class DemoState:
    """What the demo has seen so far."""

    recorded_s: tuple[float, float] = (0.0, 0.0)
    shift_s: float = 0.0
    alertmanager: str = ""
    is_real: bool = False
    played: Played = field(default_factory=lambda: Played(0, 0.0))
    outputs: list[Output] = field(default_factory=list)
    posted: list[dict[str, Any]] = field(default_factory=list)
    seen_firing: list[dict[str, Any]] = field(default_factory=list)
    seen_resolved: bool = False


def demo_recording() -> Path:
    """Return the recording that the demo plays: installed with the package, or in the repository.

    Raises:
        SourceError: If it is in neither place.
    """
    here = Path(str(files("daom")))
    places = (here / "recordings" / "burstgpt", here.parent / "tests" / "data" / "burstgpt")
    for place in places:
        if (place / RECORDING).exists():
            return place / RECORDING
    raise SourceError(f"{RECORDING} is in none of {', '.join(map(str, places))}")


async def run_demo(
    recording: Path, on_change: Callable[[DemoState], None], speed: float = _SPEED
) -> DemoState:
    """Run the main job on ``recording`` and return all that it said.

    Args:
        recording: What the player sends, moved in time so that it ends now.
        on_change: Called whenever there is something new to show.
        speed: Event seconds a real second.

    Raises:
        MissingExtra: If the embedded broker is not installed.
        SinkUnavailable: If a part does not come up.
    """
    state = DemoState()
    lines = list(read_lines(recording))
    times_s = [record_time_s(decode(line.value).record) for line in lines]
    state.recorded_s = min(times_s), max(times_s)
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="daom-demo-")))
        broker = stack.enter_context(EmbeddedBroker())
        config = _config(broker.bootstrap_servers)
        topics = Topics(config.kafka.topic_prefix)
        await create_topics(config.kafka.client(), topics.specs(partitions=_PARTITIONS))
        await stack.enter_async_context(_alertmanager(state, scratch))
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(ENV_PREFIX)}
        environment = inherited | _settings(broker.bootstrap_servers)
        bridge = ["bridge", "alertmanager", "--url", state.alertmanager]
        running = [
            stack.enter_context(_Running(name, arguments, environment, scratch))
            for name, arguments in (("worker", ["worker"]), ("bridge", bridge))
        ]
        watcher = await stack.enter_async_context(_outputs(config, topics))

        def check_and_show(state: DemoState) -> None:
            for process in running:
                process.check()
            on_change(state)

        await _play_and_watch(state, lines, config, watcher, check_and_show, speed)
        await _confirm(state)
    return state


def _settings(brokers: str) -> dict[str, str]:
    return {
        "DAOM_KAFKA__BOOTSTRAP_SERVERS": brokers,
        # The embedded broker lets a member join after the rebalance timeout: make it short.
        "DAOM_KAFKA__SESSION_TIMEOUT_S": "6",
        "DAOM_KAFKA__REBALANCE_TIMEOUT_S": "5",
        "DAOM_WORKER__CHECKPOINT_S": "10",
        "DAOM_BRIDGE__RESEND_S": "5",
    }


def _config(brokers: str) -> Config:
    return load_config(None, _settings(brokers))


class _Running:
    """A ``daom`` command in a process of its own, ended with the demo."""

    def __init__(
        self, name: str, arguments: list[str], environment: dict[str, str], scratch: Path
    ) -> None:
        self._name = name
        self._command = [sys.executable, "-m", "daom", *arguments]
        self._environment = environment
        self._log = scratch / f"{name}.log"

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log
            )
        return self

    def check(self) -> None:
        """Raise SinkUnavailable, with its last words, if the process has ended."""
        if self._process.poll() is not None:
            words = self._log.read_text("utf-8", "replace").strip()[-_LAST_WORDS:]
            raise SinkUnavailable(f"daom {self._name} ended by itself: {words}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()


@asynccontextmanager
async def _outputs(config: Config, topics: Topics) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        topics.verdicts,
        topics.thresholds,
        topics.alerts,
        topics.suppressions,
        topics.rca,
        **config.kafka.client(),
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _play_and_watch(
    state: DemoState,
    lines: list[Line],
    config: Config,
    watcher: AIOKafkaConsumer,
    on_change: Callable[[DemoState], None],
    speed: float,
) -> None:
    """Play, take every output as it comes, and go on until the last pane has been judged."""
    first_s, last_s = state.recorded_s
    # Alertmanager and people live in the present: the recording is moved so that it ends now, by
    # whole panes, so that it says the same at any time of day.
    shift_s = time.time() - last_s + (last_s - first_s) / speed
    state.shift_s = shift_s // config.time.pane_s * config.time.pane_s
    player = asyncio.create_task(_play(state, lines, config, speed))
    judged_s = _last_pane_s(last_s + state.shift_s, config)
    deadline_s = time.monotonic() + (last_s - first_s) / speed + _READY_S + _DRAIN_S
    newest_s = 0.0
    async with aiohttp.ClientSession() as http:
        while newest_s < judged_s or not player.done():
            if time.monotonic() > deadline_s:
                raise SinkUnavailable("the demo's worker has not judged everything in time")
            batch = await watcher.getmany(timeout_ms=300)
            for output in _decoded(batch):
                state.outputs.append(output)
                if isinstance(output, DriftVerdict):
                    newest_s = max(newest_s, output.event_time_s)
            await _ask(state, http)
            on_change(state)
    await player


async def _play(state: DemoState, lines: list[Line], config: Config, speed: float) -> None:
    def played(progress: Played) -> None:
        state.played = progress

    topic = Topics(config.kafka.topic_prefix).telemetry
    await play(
        lines,
        config.kafka.client(),
        topic,
        speed=speed,
        shift_s=state.shift_s,
        on_progress=played,
    )


def _last_pane_s(last_record_s: float, config: Config) -> float:
    """Return the end of the last pane that the watermark closes."""
    pane_s = config.time.pane_s
    return (last_record_s - config.time.lateness_s) // pane_s * pane_s


def _decoded(batch: dict[object, list[Any]]) -> list[Output]:
    outputs = [decode_output(record.value) for records in batch.values() for record in records]
    return sorted(outputs, key=lambda output: output.event_time_s)


async def _ask(state: DemoState, http: aiohttp.ClientSession) -> None:
    """Ask a real Alertmanager, once an alert is due, what it holds."""
    fired = any(isinstance(o, Alert) and o.state == "firing" for o in state.outputs)
    if not state.is_real or not fired or state.seen_resolved:
        return
    url = f"{state.alertmanager}/api/v2/alerts"
    async with http.get(url, params={"active": "true"}) as answer:
        active = await answer.json()
    if active:
        state.seen_firing = active
    elif state.seen_firing:
        state.seen_resolved = True


async def _confirm(state: DemoState) -> None:
    """Wait a moment for the bridge to have told the last alert's end."""
    resolved = any(isinstance(o, Alert) and o.state == "resolved" for o in state.outputs)
    deadline_s = time.monotonic() + _DRAIN_S
    async with aiohttp.ClientSession() as http:
        while state.is_real and resolved and not state.seen_resolved:
            if time.monotonic() > deadline_s:
                return
            await _ask(state, http)
            await asyncio.sleep(0.2)


@asynccontextmanager
async def _alertmanager(state: DemoState, scratch: Path) -> AsyncIterator[None]:
    """Start a real Alertmanager where one is installed, else a receiver in its place."""
    binary = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    start = _real_alertmanager if binary else _stand_in
    async with start(state, scratch, binary or ""):
        yield


@asynccontextmanager
async def _real_alertmanager(state: DemoState, scratch: Path, binary: str) -> AsyncIterator[None]:
    configuration = scratch / "alertmanager.yml"
    configuration.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    state.alertmanager, state.is_real = f"http://127.0.0.1:{_free_port()}", True
    with (scratch / "alertmanager.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            binary,
            f"--config.file={configuration}",
            f"--storage.path={scratch / 'alertmanager'}",
            f"--web.listen-address={state.alertmanager.removeprefix('http://')}",
            "--cluster.listen-address=",
            stdout=log,
            stderr=log,
        )
    try:
        await _wait_until_ready(f"{state.alertmanager}/-/ready")
        yield
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _stand_in(state: DemoState, scratch: Path, binary: str) -> AsyncIterator[None]:  # noqa: ARG001
    async def receive(request: web.Request) -> web.Response:
        state.posted.extend(json.loads(await request.text()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/api/v2/alerts", receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = _free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    state.alertmanager = f"http://127.0.0.1:{port}"
    try:
        yield
    finally:
        await runner.cleanup()


async def _wait_until_ready(url: str) -> None:
    deadline_s = time.monotonic() + _READY_S
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < deadline_s:
            try:
                async with http.get(url) as answer:
                    if answer.ok:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise SinkUnavailable(f"{url} did not become ready in {_READY_S:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
