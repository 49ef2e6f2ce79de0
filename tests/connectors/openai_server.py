"""A small server that speaks OpenAI's streaming protocol, as vLLM does."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

MODEL = "tiny"
MAX_TOKENS = 1024


@dataclass
class OpenAiStandIn:
    """Answers each completion with its ``max_tokens`` of events and a count.

    Attributes:
        is_held: Completions get no token before this is released.
        bodies: What was asked.
        keys: The Authorization headers that came with it.
    """

    is_held: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        self._released.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve, and give the url."""
        app = web.Application(client_max_size=2**24)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._complete)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL, "max_model_len": MAX_TOKENS}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        if self.is_held:
            await self._released.wait()
        if len(body["prompt"]) == 13:
            return web.json_response({"error": "an unlucky number"}, status=400)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        if len(body["prompt"]) == 14:
            await self._say(answer, {"error": {"message": "broke off"}})
        for _ in range(body["max_tokens"]):
            await self._say(answer, {"choices": [{"index": 0, "text": "w3 "}]})
        usage = {"completion_tokens": body["max_tokens"]}
        await self._say(answer, {"choices": [], "usage": usage})
        await answer.write(b"data: [DONE]\n\n")
        return answer

    @staticmethod
    async def _say(answer: web.StreamResponse, event: dict[str, Any]) -> None:
        await answer.write(b"data: " + json.dumps(event).encode() + b"\n\n")
