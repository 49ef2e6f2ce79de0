"""``daom play --openai`` as a user meets it."""

import asyncio
import json
import threading

import pytest

from tests.connectors.openai_server import OpenAiStandIn
from tests.fleet import LIGHT


@pytest.fixture
def server():
    """A server in a thread, since the command has a loop of its own."""
    stand_in, loop, ready = OpenAiStandIn(), asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def serve():
        async with stand_in.running() as url:
            stand_in.url = url
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(20.0)
    yield stand_in
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


@pytest.fixture
def trace(tmp_path):
    """Forty arrivals as Mooncake records them, two of them longer than the model."""
    path = tmp_path / "trace.jsonl"
    lengths = [(3_000, 5), (5, 3_000), *((20 + number, 4) for number in range(38))]
    path.write_text(
        "".join(
            f'{{"timestamp": {100 * n}, "input_length": {i}, "output_length": {o}}}\n'
            for n, (i, o) in enumerate(lengths)
        )
    )
    return path


def test_the_requests_of_a_trace_are_sent_and_their_latencies_said(daom, server, trace):
    arguments = ("play", trace, "--openai", server.url, "--speed", 1_000, "--limit", 30)

    people, scripts = daom(*arguments), daom(*arguments, "--json")

    assert (people.code, scripts.code) == (0, 0)
    assert "30 arrived, 30 sent, 30 answered, 0 failed, 0 skipped" in people.out
    assert all(word in people.out for word in ("ttft_s", "e2e_s", "P50 s", "P90 s", "P99 s"))
    said = json.loads(scripts.out)
    assert (said["answered"], said["cut"], said["failures"]) == (30, 2, {})
    assert 0.0 < said["ttft_s"]["p50"] <= said["e2e_s"]["p99"]
    assert {body["model"] for body in server.bodies} == {"tiny"}
    assert max(len(b["prompt"]) + b["max_tokens"] for b in server.bodies) <= 1_024


def test_a_model_that_is_not_served_is_refused_with_those_that_are(daom, server, trace):
    done = daom("play", trace, "--openai", server.url, "--model", "other")

    assert (done.code, done.out) == (2, "")
    assert "--model: got 'other'; the server serves tiny" in done.err


def test_without_a_server_nothing_was_judged(daom, trace):
    done = daom("play", trace, "--openai", "http://127.0.0.1:1")

    assert (done.code, done.out) == (3, "")
    assert "daom: http://127.0.0.1:1/v1/models: " in done.err


def test_where_nothing_is_answered_that_is_the_exit_code(daom, server, tmp_path):
    unlucky = tmp_path / "trace.jsonl"
    unlucky.write_text('{"timestamp": 0, "input_length": 13, "output_length": 1}\n')

    done = daom("play", unlucky, "--openai", server.url)

    assert done.code == 3
    assert 'failed: 1 x 400: {"error": "an unlucky number"}' in done.out


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--seed", "1"], "--seed needs --openai"),
        (["--seed", "0"], "--seed needs --openai"),
        (["--max-in-flight", "3"], "--max-in-flight needs --openai"),
        (["--json"], "--json needs --openai"),
        (["--openai", "http://h", "--to-now"], "--to-now"),
        (["--openai", "http://h", "--brokers", "b:1"], "--brokers"),
    ],
)
def test_options_of_the_one_are_refused_with_the_other(daom, options, why):
    done = daom("play", LIGHT, *options)

    assert (done.code, done.out) == (2, "")
    assert why in done.err
