"""What the bridge says of itself over HTTP (``connectors.status_server``)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

from connectors.alert_bridge import BridgeCounters, BridgeEvent
from connectors.status_server import Page, as_json

BEAT_S: Final = 1.0
HUNG_AFTER_S: Final = 60.0
"""The bridge waits for everything without blocking: its loop comes round many times a second."""

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


class BridgeStatus:
    """Keeps what the bridge does, and answers for it from another thread.

    It is healthy as long as its loop comes round. It is ready once the alert topic has been read to
    its end, unless every Alertmanager is away: a restart helps neither that nor a broker.

    Args:
        replicas: How many Alertmanagers it feeds.
        clock: Monotonic seconds.
    """

    def __init__(self, replicas: int, clock: Callable[[], float]) -> None:
        self.counters = BridgeCounters()
        self._replicas = replicas
        self._clock = clock
        self._beat_s = clock()
        self._restored = False
        self._away: dict[str, str] = {}

    def note(self, event: BridgeEvent) -> None:
        """Take what the bridge did or met."""
        if event.kind == "restored":
            self._restored = True
        elif event.kind == "unavailable":
            self._away = {**self._away, event.replica: event.words}
        elif event.kind == "available":
            self._away = {url: why for url, why in self._away.items() if url != event.replica}

    async def beat(self) -> None:
        """Show that the loop comes round, for ever."""
        while True:
            self._beat_s = self._clock()
            await asyncio.sleep(BEAT_S)

    def pages(self) -> Mapping[str, Callable[[], Page]]:
        """Return the pages by their path."""
        return {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness}

    def _health(self) -> Page:
        hung_s = self._clock() - self._beat_s
        if hung_s < HUNG_AFTER_S:
            return as_json({"healthy": True}, ok=True)
        why = f"its loop has not come round for {hung_s:.0f} s"
        return as_json({"healthy": False, "why": why}, ok=False)

    def _readiness(self) -> Page:
        why = None
        if not self._restored:
            why = "the alert topic has not been read to its end"
        elif len(self._away) == self._replicas:
            why = "no Alertmanager takes alerts"
        said = {"ready": why is None, "away": self._away} | ({"why": why} if why else {})
        return as_json(said, ok=why is None)

    def _metrics(self) -> Page:
        lines = [
            "# HELP daom_bridge_alerts_total Alerts since the start, by what became of them",
            "# TYPE daom_bridge_alerts_total counter",
        ]
        for what, count in dataclasses.asdict(self.counters).items():
            lines.append(f'daom_bridge_alerts_total{{what="{what}"}} {count}')
        lines += [
            "# HELP daom_bridge_replicas_away Alertmanagers that do not take alerts",
            "# TYPE daom_bridge_replicas_away gauge",
            f"daom_bridge_replicas_away {len(self._away)}",
        ]
        return Page(_TEXT, "\n".join([*lines, ""]).encode())
