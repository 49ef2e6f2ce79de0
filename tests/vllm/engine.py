"""A real vLLM server on the CPU, with a tiny random model, and a client that counts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import aiohttp
import numpy as np

from tests.kafka_servers import REPOSITORY
from tests.servers import WITHOUT_PROXY, eventually, free_port

PYTHON_VARIABLE = "DAOM_VLLM_PYTHON"
MODEL = "tiny"
READY_WITHIN_S = 240.0
STOPS_WITHIN_S = 60.0
_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
_OPTIONS = (
    *("--load-format", "dummy", "--served-model-name", MODEL, "--host", "127.0.0.1"),
    *("--max-model-len", "1024", "--dtype", "bfloat16", "--enforce-eager"),
)


def find_vllm() -> Path | None:
    """Return the Python of vLLM's environment (``make vllm``), or None if there is none."""
    python = Path(os.environ.get(PYTHON_VARIABLE) or REPOSITORY / ".venv-vllm/bin/python")
    return python if python.is_file() else None


class Vllm:
    """A server; leave the context and it has stopped.

    Args:
        folder: Where its model and its log go.
        options: Further options of ``vllm serve``.
        environment: Further variables, such as DAOM_KAFKA__BOOTSTRAP_SERVERS.
    """

    def __init__(
        self, folder: Path, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        python = find_vllm()
        if python is None:
            raise LookupError(f"no vLLM: make vllm, or {PYTHON_VARIABLE}=path/to/its/python")
        self._python = python
        self._folder = folder
        self._options = options
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        model = self._folder / "model"
        if not model.exists():
            made = [self._python, Path(__file__).with_name("tiny_model.py"), model]
            subprocess.run(made, check=True, timeout=READY_WITHIN_S)
        command = [self._python, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
        port = self.url.rpartition(":")[2]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*map(str, command), "--port", port, *_OPTIONS, *self._options],
                cwd=self._folder,
                env={**_without_daom(os.environ), **_ENVIRONMENT, **self._environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            eventually(self.is_healthy, READY_WITHIN_S, every_s=1.0)
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"vLLM is not ready:\n{self.log[-4_000:]}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log_path(self) -> Path:
        return self._folder / "vllm.log"

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_healthy(self) -> bool:
        """Return whether it serves."""
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"vLLM has ended with {self._process.returncode}")
        try:
            with WITHOUT_PROXY.open(f"{self.url}/health", timeout=5.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> float:
        """Ask it to stop, and wait until it has; return how long that took."""
        began_s = time.monotonic()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        return time.monotonic() - began_s


def _without_daom(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("DAOM_")}


class Answer(NamedTuple):
    """What a client saw of one request."""

    ttft_s: float
    e2e_s: float
    prompt_tokens: int
    output_tokens: int


def assert_clocks_agree(told_s: np.ndarray, seen_s: Sequence[float]) -> None:
    """A client adds the way there and back, and no more than the noise that is reported.

    By the median over the quantiles: a machine that stands still for a moment, as shared ones do,
    is seen by some of the clients and told by none of the clocks.
    """
    assert not np.isnan(told_s).any()
    assert told_s.size == len(seen_s)
    added_s = float(np.median(np.sort(seen_s) - np.sort(told_s)))
    allowed_s = 0.1 + 0.25 * float(np.median(seen_s))
    assert -0.005 < added_s < allowed_s, (added_s, allowed_s, np.sort(seen_s), np.sort(told_s))


@dataclass(frozen=True)
class Load:
    """Streams that each send one request after the other.

    Attributes:
        streams: At a time.
        requests: Of each stream.
        prompt_words: Length of the prompts, at most; from half of it.
        output_tokens: Of each answer.
        think_s: Mean pause after each answer, exponential.
    """

    streams: int = 20
    requests: int = 5
    prompt_words: int = 80
    output_tokens: int = 50
    think_s: float = 0.0
    seed: int = 1

    def run(self, url: str) -> list[Answer]:
        """Send it all; return every answer, or raise what went wrong with the first that failed."""
        return asyncio.run(self.send(url))

    async def send(self, url: str) -> list[Answer]:
        rng = np.random.default_rng(self.seed)
        answers: list[Answer] = []
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            await asyncio.gather(
                *(
                    self._stream(session, seed, answers)
                    for seed in rng.integers(2**32, size=self.streams)
                )
            )
        return answers

    async def _stream(
        self, session: aiohttp.ClientSession, seed: int, answers: list[Answer]
    ) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(self.requests):
            words = rng.integers(
                3, 512, rng.integers(self.prompt_words // 2, self.prompt_words + 1)
            )
            answers.append(await _ask(session, words.tolist(), self.output_tokens))
            if self.think_s:
                await asyncio.sleep(rng.exponential(self.think_s))


def break_off(url: str, after_tokens: int) -> None:
    """Ask for a long answer, and go away once ``after_tokens`` of it are there."""

    async def go_away() -> None:
        seen = 0
        async with (
            aiohttp.ClientSession(url) as session,
            session.post("/v1/completions", json=_body(range(3, 40), 900)) as response,
        ):
            response.raise_for_status()
            async for line in response.content:
                seen += line.startswith(b"data: {")
                if seen == after_tokens:
                    return

    asyncio.run(go_away())


def _body(words: Sequence[int], tokens: int) -> dict[str, object]:
    return {
        "model": MODEL,
        "prompt": " ".join(f"w{word}" for word in words),
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def _ask(session: aiohttp.ClientSession, words: Sequence[int], tokens: int) -> Answer:
    began_s, first_s, usage = time.perf_counter(), None, None
    async with session.post("/v1/completions", json=_body(words, tokens)) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[len(b"data: ") :])
            if chunk["choices"] and first_s is None:
                first_s = time.perf_counter()
            usage = chunk.get("usage") or usage
    assert first_s is not None, "an answer without a token"
    assert usage is not None, "an answer without its usage"
    return Answer(
        ttft_s=first_s - began_s,
        e2e_s=time.perf_counter() - began_s,
        prompt_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
    )
