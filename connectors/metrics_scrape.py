"""Engines that cannot take the plugin, seen from outside: /metrics, scraped, becomes telemetry.

What has been counted in every bucket since the scrape before is sent as it is; nothing is made of
it, above all no quantile. One thread a server asks it at a steady pace, so one that hangs holds up
itself alone.
"""

from __future__ import annotations

import base64
import http.client
import logging
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import numpy as np

from connectors.metrics_text import EngineKey, Reading, Scrape, Total, read_metrics
from daom.errors import ConfigError, SourceError
from daom.events import Histogram, Record, Source, TelemetryBatch, cell_of

LONGEST_GAP_S: Final = 60.0
"""Of what was counted over a longer time nobody knows when it was: it is left out."""
MAX_ANSWER_BYTES: Final = 16 * 2**20

_MAX_WAITING: Final = 10_000
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Naming:
    """What the engines of one server are called.

    Attributes:
        engine: Of a server of one engine; ``engine/0`` where engines have labels.
        model: Instead of the model_name that it shows.
    """

    engine: str
    model: str | None = None

    def source(self, key: EngineKey, boot: str, time_s: float) -> Source:
        """Return who sends for an engine at ``time_s``."""
        engine = self.engine if key.engine is None else f"{self.engine}/{key.engine}"
        # Milliseconds as numbers go on ascending when the scraper itself is started anew.
        seq = round(1_000.0 * time_s)
        return Source(model=self.model or key.model, engine=engine, boot=boot, seq=seq)


@dataclass(slots=True)
class Server:
    """One server, from scrape to scrape.

    Attributes:
        before: The scrape before; None: there is none.
        boots: The run of each engine, where no start of a process tells it.
    """

    naming: Naming
    before: Scrape | None = None
    boots: dict[EngineKey, str] = field(default_factory=dict)

    def take(self, now: Scrape) -> list[TelemetryBatch]:
        """Return what ``now`` says beyond the scrape before: a batch for each engine."""
        before, self.before = self.before, now
        if before is not None and now.time_s <= before.time_s:
            return []
        batches = []
        for key, reading in now.engines.items():
            restarted = before is not None and has_restarted(before, now, key)
            if restarted:
                self._note_restart(key, before, now)
            boot = self.boots.get(key, "first" if now.started_s is None else f"{now.started_s:.2f}")
            source = self.naming.source(key, boot, now.time_s)
            batches.append(batch_of(source, before, now, key, reading, restarted=restarted))
        return batches

    def _note_restart(self, key: EngineKey, before: Scrape | None, now: Scrape) -> None:
        """Name the new run of an engine, unless the start of its process does."""
        if before is not None and now.started_s != before.started_s:
            self.boots.pop(key, None)
        else:
            self.boots[key] = f"restarted {now.time_s:.0f}"


def has_restarted(before: Scrape, now: Scrape, key: EngineKey) -> bool:
    """Return whether an engine has counted from zero since the scrape before."""
    if before.started_s is not None and now.started_s not in {None, before.started_s}:
        return True
    was, reading = before.engines.get(key), now.engines[key]
    return was is not None and _fell(was, reading)


def _fell(was: Reading, now: Reading) -> bool:
    """Return whether anything that only ever rises has fallen."""
    for column, counts in was.histograms.items():
        newest = now.histograms.get(column, counts)
        if any(newest.get(edge, 0) < count for edge, count in counts.items()):
            return True
    counters = ((name, n) for name, n in was.numbers.items() if name.endswith("_total"))
    return any(now.numbers.get(name, value) < value for name, value in counters)


def batch_of(
    source: Source,
    before: Scrape | None,
    now: Scrape,
    key: EngineKey,
    reading: Reading,
    *,
    restarted: bool,
) -> TelemetryBatch:
    """Return what one engine has done between two scrapes, and how it stands.

    An engine that was not there before has done it all in between; one that was not asked before,
    or not for long, has no known past: then there are its gauges alone.
    """
    start_s, done = now.time_s, Reading()
    if before is not None and now.time_s - before.time_s <= LONGEST_GAP_S:
        was = Reading() if restarted else before.engines.get(key, Reading())
        start_s, done = before.time_s, difference(was, reading)
        if restarted and now.started_s is not None:
            start_s = min(max(start_s, now.started_s), now.time_s)
    means = {name: total.added / total.samples for name, total in done.totals.items()}
    return TelemetryBatch(
        source=source,
        start_s=start_s,
        end_s=now.time_s,
        gauges={**reading.numbers, **means},
        histograms={name: _histogram(counts) for name, counts in done.histograms.items()},
    )


def difference(was: Reading, now: Reading) -> Reading:
    """Return what was counted from ``was`` to ``now``; where nothing was, nothing is told."""
    done = Reading()
    for column, counts in now.histograms.items():
        known = was.histograms.get(column, {})
        increases = {edge: count - known.get(edge, 0) for edge, count in counts.items()}
        if any(increases.values()):
            done.histograms[column] = increases
    for name, total in now.totals.items():
        before = was.totals.get(name, Total(0.0, 0.0))
        fresh = Total(total.added - before.added, total.samples - before.samples)
        if fresh.samples > 0.0 and fresh.added >= 0.0:
            done.totals[name] = fresh
    return done


def since_the_start(naming: Naming, now: Scrape) -> list[TelemetryBatch]:
    """Return a batch for each engine with all that it has counted since its start."""
    return Server(naming, before=Scrape(now.time_s - 1e-3, started_s=now.started_s)).take(now)


def _histogram(counts: Mapping[float, int]) -> Histogram:
    return Histogram(
        le_s=np.array(list(counts), np.float64), counts=np.array(list(counts.values()), np.int64)
    )


# Asking


@dataclass(frozen=True, slots=True)
class Access:
    """How servers are asked.

    Attributes:
        timeout_s: For an answer.
        token: Bearer token,
        basic: or user:password; None: neither is sent.
    """

    timeout_s: float = 5.0
    token: str | None = None
    basic: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that go with every request."""
        headers = {"Accept": "text/plain; version=0.0.4", "User-Agent": "daom"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        elif self.basic is not None:
            encoded = base64.b64encode(self.basic.encode()).decode("ascii")
            headers["Authorization"] = f"Basic {encoded}"
        return headers


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A password or token goes to the server that was named, and to no other."""

    def redirect_request(self, *_: object) -> None:
        """Follow nothing."""


_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())


def metrics_url(url: str) -> str:
    """Return the address of the metrics of ``url``: ``host:8000`` will do.

    Raises:
        ConfigError: If it is no address of an HTTP server.
    """
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"got URL {url!r}; http://HOST:PORT/metrics is needed")
    if "@" in parts.netloc:
        raise ConfigError("a URL must hold no password: it would be logged; give --basic-file")
    return whole if parts.path.strip("/") else parts._replace(path="/metrics").geturl()


def ask(url: str, access: Access) -> str:
    """Return what ``url`` answers.

    Raises:
        SourceError: If it answers nothing, or something else.
    """
    request = urllib.request.Request(url, headers=access.headers())
    try:
        with _OPENER.open(request, timeout=access.timeout_s) as answer:
            body: bytes = answer.read(MAX_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise SourceError(f"answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise SourceError(f"does not answer: {str(why) or type(error).__name__}") from error
    if len(body) > MAX_ANSWER_BYTES:
        raise SourceError(f"answers more than {MAX_ANSWER_BYTES >> 20} MB")
    return body.decode("utf-8", "replace")


def scrape(url: str, access: Access) -> Scrape:
    """Return what ``url`` shows now.

    Raises:
        SourceError: If it shows nothing that can be used; the message names ``url``.
    """
    try:
        text = ask(url, access)
        return read_metrics(text, round(time.time(), 3))
    except SourceError as error:
        raise SourceError(f"{url}: {error}") from error


class Scraper:
    """Asks servers at a steady pace; ``collect`` hands over what they have shown.

    Args:
        urls: Whose they are and what their engines are called.
        access: How they are asked.
        interval_s: Time between two scrapes of one server.
        cells: A model is cut into so many, by its engines' names.
    """

    def __init__(
        self,
        urls: Iterable[tuple[str, Naming]],
        access: Access,
        interval_s: float,
        cells: int = 1,
    ) -> None:
        self._cells = cells
        self._access = access
        self._interval_s = interval_s
        self._stopping = threading.Event()
        # More than a reporter ever leaves: a bound, so that none is needed elsewhere.
        self._shown: deque[TelemetryBatch] = deque(maxlen=_MAX_WAITING)
        self._threads = [
            threading.Thread(target=self._follow, args=(url, Server(naming)), daemon=True)
            for url, naming in urls
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask no more; who waits for an answer is left to it."""
        self._stopping.set()

    def collect(self) -> Sequence[tuple[str, Record]]:
        """Return what has been shown since the last call, with the keys of the cells."""
        shown = [self._shown.popleft() for _ in range(len(self._shown))]
        return [(cell_of(batch.source, self._cells), batch) for batch in shown]

    def _follow(self, url: str, server: Server) -> None:
        answers, due_s = True, time.monotonic()
        while not self._stopping.is_set():
            answers = self._ask_once(url, server, answers=answers)
            # A scrape that took long does not shift those after it, and none is caught up.
            due_s = max(due_s + self._interval_s, time.monotonic())
            self._stopping.wait(due_s - time.monotonic())

    def _ask_once(self, url: str, server: Server, *, answers: bool) -> bool:
        """Ask once; return whether it answered. What changes is said, once."""
        try:
            self._shown.extend(server.take(scrape(url, self._access)))
        except SourceError as error:
            # A server that ends together with the scraper is none that fails.
            if answers and not self._stopping.is_set():
                _LOGGER.warning("%s (said once; asked again every %g s)", error, self._interval_s)
            return False
        if not answers:
            _LOGGER.warning("%s: answers again", url)
        return True
