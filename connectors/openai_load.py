"""Load for a server that speaks OpenAI's API: recorded arrivals as streaming completions.

Open loop: arrivals come when they are due, whether or not earlier ones are answered, as users do.
Only a bound on what is in flight keeps a server that hangs from taking this process with it.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import aiohttp

from connectors.arrivals import Arrival
from daom.errors import SinkRejected, SinkUnavailable

Prompt = Literal["tokens", "words"]

_FIRST_TOKEN: Final = 3
_LAST_TOKEN: Final = 511
"""Ordinary tokens of every vocabulary: the first few are special."""
_CONNECT_S: Final = 10.0
_REQUEST_S: Final = 900.0
_REASON_CHARACTERS: Final = 160
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_OK: Final = 200


class Model(NamedTuple):
    """A model that is served; its length in tokens where the server tells."""

    name: str
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """How arrivals become requests.

    Args:
        speed: Trace seconds a real second.
        max_in_flight: An arrival that finds so many unanswered is skipped and counted.
        max_tokens: Prompt and answer together are cut to it; None for not.
        prompt: ``tokens`` sends ids, exactly as many as recorded; ``words`` sends as many words.
        seed: Of the prompts: the same are sent again.
    """

    speed: float = 1.0
    max_in_flight: int = 256
    max_tokens: int | None = None
    prompt: Prompt = "tokens"
    seed: int = 0


@dataclass(slots=True)
class Driven:
    """What has happened so far.

    Attributes:
        sent: Requests that were sent,
        skipped: and arrivals that were not: too many were in flight.
        cut: Requests that were cut to the model's length.
        failed: Why requests failed, and how many.
        output_tokens: Tokens that were answered, as the server counts them.
        ttft_s: Of each that was answered: until its first token,
        e2e_s: and until its last.
    """

    sent: int = 0
    skipped: int = 0
    cut: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    output_tokens: int = 0
    ttft_s: list[float] = field(default_factory=list)
    e2e_s: list[float] = field(default_factory=list)

    @property
    def arrived(self) -> int:
        """Arrivals that were due."""
        return self.sent + self.skipped


class OpenAiServer:
    """A server, from the outside.

    Args:
        url: Its address, with or without the ``/v1``.
        key: Sent as a bearer token.
    """

    def __init__(self, url: str, key: str | None, session: aiohttp.ClientSession) -> None:
        self._base = url.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._session = session

    async def models(self) -> list[Model]:
        """Return what it serves.

        Raises:
            SinkUnavailable: If it does not answer.
            SinkRejected: If it answers something else.
        """
        url = f"{self._base}/models"
        try:
            async with self._session.get(url, headers=self._headers) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SinkUnavailable(f"{url}: {str(error) or type(error).__name__}") from error
        except ValueError as error:
            raise SinkRejected(f"{url}: {error}") from error
        try:
            data = json.loads(text)["data"]
            return [Model(str(one["id"]), one.get("max_model_len")) for one in data]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SinkRejected(
                f"{url}: got {answer.status} {text!r:.160}; a list of models is needed"
            ) from error

    async def complete(self, body: dict[str, Any], driven: Driven) -> None:
        """Ask for one completion, and note in ``driven`` how it went."""
        began_s = time.monotonic()
        first_s: float | None = None
        try:
            async with self._session.post(
                f"{self._base}/completions", json=body, headers=self._headers
            ) as answer:
                if answer.status != _OK:
                    reason = " ".join((await answer.text()).split())[:_REASON_CHARACTERS]
                    driven.failed[f"{answer.status}: {reason}"] += 1
                    return
                async for event in _events(answer):
                    if "error" in event:
                        driven.failed[f"{event['error']}"[:_REASON_CHARACTERS]] += 1
                        return
                    if first_s is None and event.get("choices"):
                        first_s = time.monotonic()
                    usage = event.get("usage") or {}
                    driven.output_tokens += int(usage.get("completion_tokens") or 0)
        except (aiohttp.ClientError, TimeoutError, ValueError, AttributeError, TypeError) as error:
            driven.failed[f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]] += 1
            return
        if first_s is None:
            driven.failed["an answer without a token"] += 1
            return
        driven.ttft_s.append(first_s - began_s)
        driven.e2e_s.append(time.monotonic() - began_s)


@asynccontextmanager
async def open_server(url: str, key: str | None = None) -> AsyncIterator[OpenAiServer]:
    """Give the server at ``url``."""
    # No limit on connections: a pool's would close the loop.
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=_REQUEST_S, sock_connect=_CONNECT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield OpenAiServer(url, key, session)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.content:
        if line.startswith(_DATA) and (data := line.removeprefix(_DATA).strip()) != _DONE:
            yield json.loads(data)


async def drive(
    server: OpenAiServer,
    model: str,
    arrivals: Sequence[Arrival],
    load: Load,
    driven: Driven,
    on_progress: Callable[[], None] = lambda: None,
) -> None:
    """Send ``arrivals`` when they are due, and wait for the answers; ``driven`` is kept up to date.

    Cancelled, it gives up what is in flight.
    """
    began_s = time.monotonic()
    in_flight: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as tasks:
        for number, arrival in enumerate(arrivals):
            due_s = began_s + arrival.at_s / load.speed
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if len(in_flight) >= load.max_in_flight:
                driven.skipped += 1
                on_progress()
                continue
            fitting = arrival.within(load.max_tokens)
            driven.cut += fitting != arrival
            driven.sent += 1
            # Seeded by its number: what is skipped changes no other prompt.
            drawing = random.Random(f"{load.seed}/{number}")
            body = _body(model, fitting, load.prompt, drawing)
            task = tasks.create_task(server.complete(body, driven))
            in_flight.add(task)
            task.add_done_callback(in_flight.discard)
            task.add_done_callback(lambda _: on_progress())
            on_progress()


def _body(model: str, arrival: Arrival, prompt: Prompt, drawing: random.Random) -> dict[str, Any]:
    ids = drawing.choices(range(_FIRST_TOKEN, _LAST_TOKEN + 1), k=arrival.prompt_tokens)
    return {
        "model": model,
        "prompt": ids if prompt == "tokens" else " ".join(f"w{number}" for number in ids),
        "max_tokens": arrival.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
