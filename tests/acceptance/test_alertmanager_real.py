"""The bridge against real Alertmanagers: what an operator asks them, and what they notify."""

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

import pytest

from connectors.alert_bridge import BridgeCounters, BridgeEvent, run_bridge
from connectors.alertmanager import AlertmanagerSink
from daom.alert_book import AlertBatch, BookSettings, WrittenAlert
from daom.events import Alert, AlertState, digest, fingerprint
from tests.servers import Alertmanager, eventually

pytestmark = pytest.mark.alertmanager

WITHIN_S = 30.0
OFTEN = BookSettings(resend_s=1.0)
"""What fires ends 4 s after its last send."""

NOTIFYING_CONFIG = """\
route: {{receiver: hook, group_by: [engine], group_wait: 0s, group_interval: 1s}}
receivers: [{{name: hook, webhook_configs: [{{url: "{url}", send_resolved: true}}]}}]
"""


def alert(engine: str, state: AlertState = "firing", labels: dict[str, str] | None = None) -> Alert:
    if labels is None:
        labels = {"alertname": "LatencyDrift", "engine": engine, "severity": "page"}
    now_s = time.time()
    return Alert(
        id=digest(engine, state, now_s),
        event_time_s=now_s,
        cell="llama",
        fingerprint=fingerprint(labels),
        name="LatencyDrift",
        labels=labels,
        state=state,
        started_s=now_s - 90.0,
        annotations={"summary": 'p99 is 0.31 s, "slow" 慢'},
    )


class Topic:
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

    def write(self, *alerts: Alert) -> None:
        self._after.put_nowait(AlertBatch(tuple(WrittenAlert(a, time.time()) for a in alerts)))


@contextlib.asynccontextmanager
async def bridge(
    topic: Topic, *replicas: Alertmanager, settings: BookSettings = OFTEN
) -> AsyncIterator[tuple[BridgeCounters, list[BridgeEvent]]]:
    counters, events = BridgeCounters(), list[BridgeEvent]()
    async with contextlib.AsyncExitStack() as stack:
        sinks = [await stack.enter_async_context(AlertmanagerSink(am.url)) for am in replicas]
        task = asyncio.create_task(
            run_bridge(
                topic,
                sinks,
                settings,
                clock=time.time,
                counters=counters,
                on_event=events.append,
                first_retry_s=0.1,
            )
        )
        try:
            yield counters, events
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def soon(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, condition, WITHIN_S)


def query(replica: Alertmanager) -> dict[str, dict[str, Any]]:
    """What amtool shows as active, by engine."""
    done = subprocess.run(
        ["amtool", f"--alertmanager.url={replica.url}", "alert", "query", "-o", "json"],
        capture_output=True,
        check=True,
        timeout=WITHIN_S,
    )
    return {found["labels"]["engine"]: found for found in json.loads(done.stdout)}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[tuple[Alertmanager, Alertmanager]]:
    with (
        Alertmanager(tmp_path / "one") as one,
        Alertmanager(tmp_path / "two", path_prefix="/am") as two,
    ):
        yield one, two


def test_an_alert_fires_in_both_replicas_and_resolves_in_both(
    replicas: tuple[Alertmanager, Alertmanager],
) -> None:
    one, two = replicas

    async def story() -> None:
        firing = alert("host-1/0")
        topic = Topic(firing, alert("host-2/0", "pending"))
        # With the settings of production: what resolves soon does not end by itself.
        async with bridge(topic, one, two, settings=BookSettings()):
            await soon(lambda: query(one) and query(two))
            for found in (query(one), query(two)):
                assert list(found) == ["host-1/0"]
                assert found["host-1/0"]["labels"] == firing.labels
                assert found["host-1/0"]["annotations"] == firing.annotations
                starts_at = datetime.fromisoformat(found["host-1/0"]["startsAt"])
                assert starts_at.timestamp() == pytest.approx(firing.started_s, abs=0.002)

            topic.write(alert("host-1/0", "resolved"))
            await soon(lambda: not query(one) and not query(two))

    asyncio.run(story())


def test_a_firing_alert_stays_as_long_as_it_is_repeated_and_ends_without_the_bridge(
    replicas: tuple[Alertmanager, Alertmanager],
) -> None:
    one, _ = replicas

    async def story() -> None:
        async with bridge(Topic(alert("host-1/0")), one):
            await soon(lambda: query(one))
            first_end = query(one)["host-1/0"]["endsAt"]
            await soon(lambda: query(one)["host-1/0"]["updatedAt"] > first_end)
        await soon(lambda: not query(one))

    asyncio.run(story())


def test_one_invalid_alert_among_valid_ones_is_named_and_not_retried(
    replicas: tuple[Alertmanager, Alertmanager],
) -> None:
    one, two = replicas
    invalid = alert("none", labels={})

    async def story() -> None:
        topic = Topic(alert("host-1/0"), invalid, alert("host-2/0"))
        async with bridge(topic, one, two) as (counters, events):
            await soon(lambda: len(query(one)) == len(query(two)) == 2)
            await soon(lambda: counters.sent >= 8)

        assert counters.rejected == 2
        for replica in (one, two):
            (words,) = [e.words for e in events if (e.kind, e.replica) == ("rejected", replica.url)]
            assert words.startswith(f"{replica.url} rejected an alert: {{}}: ")
            assert "at least one label pair required" in words

    asyncio.run(story())


def test_a_replica_that_was_down_gets_what_fires(
    replicas: tuple[Alertmanager, Alertmanager],
) -> None:
    up, down = replicas
    down.stop()

    async def story() -> None:
        topic = Topic(alert("host-1/0"))
        async with bridge(topic, up, down) as (_, events):
            await soon(lambda: query(up))
            await soon(lambda: any(e.kind == "unavailable" for e in events))

            await asyncio.to_thread(down.start)
            await soon(lambda: query(down))
            await soon(lambda: any((e.kind, e.replica) == ("available", down.url) for e in events))

            # Alertmanager keeps no alerts over a restart; the next repeat brings them.
            await asyncio.to_thread(down.stop)
            await asyncio.to_thread(down.start)
            await soon(lambda: query(down))
            assert list(query(up)) == ["host-1/0"]

    asyncio.run(story())


class Webhook:
    """What Alertmanager notifies: status and engine, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                heard.extend((a["status"], a["labels"]["engine"]) for a in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def __enter__(self) -> Self:
        Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_people_are_told_once_that_it_fires_and_once_that_it_is_over(tmp_path: Path) -> None:
    """Also where the bridge was away when it ended: the next one reads the resolve."""

    async def story() -> None:
        firing = alert("host-1/0")
        with (
            Webhook() as hook,
            Alertmanager(tmp_path / "am", NOTIFYING_CONFIG.format(url=hook.url)) as replica,
        ):
            async with bridge(Topic(firing), replica, settings=BookSettings()):
                await soon(lambda: hook.heard == [("firing", "host-1/0")])
            async with bridge(
                Topic(firing, alert("host-1/0", "resolved")), replica, settings=BookSettings()
            ):
                await soon(lambda: len(hook.heard) == 2)

        assert hook.heard == [("firing", "host-1/0"), ("resolved", "host-1/0")]

    asyncio.run(story())
