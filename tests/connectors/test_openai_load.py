import asyncio

import pytest
from aiohttp import web

from connectors.arrivals import Arrival
from connectors.openai_load import Driven, Load, Model, drive, open_server
from daom.errors import SinkRejected, SinkUnavailable
from tests.connectors.openai_server import MAX_TOKENS, MODEL, OpenAiStandIn
from tests.servers import run, soon


def at_once(*prompts, output=2):
    return [Arrival(0.0, prompt, output) for prompt in prompts]


async def driven_by(stand_in, arrivals, load, key=None):
    driven = Driven()
    async with stand_in.running() as url, open_server(url, key) as server:
        await drive(server, MODEL, arrivals, load, driven)
    return driven


def test_every_arrival_is_a_streaming_completion_of_the_recorded_length():
    async def story():
        stand_in = OpenAiStandIn()
        driven = await driven_by(stand_in, [Arrival(0.0, 5, 3), Arrival(0.1, 7, 1)], Load(speed=10))

        assert [(len(b["prompt"]), b["max_tokens"]) for b in stand_in.bodies] == [(5, 3), (7, 1)]
        assert all(
            b["stream"] and b["ignore_eos"] and b["temperature"] == 0 for b in stand_in.bodies
        )
        assert {type(token) for b in stand_in.bodies for token in b["prompt"]} == {int}
        assert (driven.sent, driven.output_tokens, driven.failed.total()) == (2, 4, 0)
        assert len(driven.ttft_s) == len(driven.e2e_s) == 2
        assert all(0.0 < t <= e for t, e in zip(driven.ttft_s, driven.e2e_s, strict=True))

    run(story())


def test_a_prompt_may_be_words():
    async def story():
        stand_in = OpenAiStandIn()
        await driven_by(stand_in, at_once(5), Load(prompt="words"))

        words = stand_in.bodies[0]["prompt"].split(" ")
        assert len(words) == 5
        assert all(word[0] == "w" and 3 <= int(word[1:]) <= 511 for word in words)

    run(story())


def test_the_same_seed_sends_the_same_prompts():
    async def prompts(seed):
        stand_in = OpenAiStandIn()
        await driven_by(stand_in, at_once(20, 21), Load(seed=seed))
        return sorted(body["prompt"] for body in stand_in.bodies)

    async def story():
        assert await prompts(1) == await prompts(1)
        assert await prompts(1) != await prompts(2)

    run(story())


def test_arrivals_do_not_wait_for_answers_and_are_skipped_beyond_the_bound():
    async def story():
        stand_in, driven = OpenAiStandIn(is_held=True), Driven()
        async with stand_in.running() as url, open_server(url) as server:
            load = Load(max_in_flight=3)
            driving = asyncio.create_task(
                drive(server, MODEL, at_once(1, 2, 3, 4, 5), load, driven)
            )
            await soon(lambda: driven.arrived == 5 and len(stand_in.bodies) == 3)
            assert driven.e2e_s == []
            stand_in.release()
            await driving

        assert (driven.sent, driven.skipped, len(driven.e2e_s)) == (3, 2, 3)

    run(story())


def test_a_request_too_long_for_the_model_is_cut_and_counted():
    async def story():
        stand_in = OpenAiStandIn()
        driven = await driven_by(stand_in, at_once(5_000, 5), Load(max_tokens=100))

        assert sorted(len(body["prompt"]) for body in stand_in.bodies) == [5, 98]
        assert driven.cut == 1

    run(story())


def test_what_fails_is_counted_by_its_reason_and_the_rest_goes_on():
    async def story():
        driven = await driven_by(OpenAiStandIn(), at_once(13, 13, 14, 15), Load())

        assert driven.failed == {
            '400: {"error": "an unlucky number"}': 2,
            "{'message': 'broke off'}": 1,
        }
        assert len(driven.e2e_s) == 1

    run(story())


def test_the_key_is_sent_as_a_bearer_token():
    async def story():
        stand_in = OpenAiStandIn()
        await driven_by(stand_in, at_once(1), Load(), key="k")

        assert stand_in.keys == ["Bearer k"]

    run(story())


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_address_may_have_the_version_or_not(suffix):
    async def story():
        async with OpenAiStandIn().running() as url, open_server(url + suffix) as server:
            assert await server.models() == [Model(MODEL, MAX_TOKENS)]

    run(story())


def test_a_server_that_is_away_or_another_is_told_from_one_another():
    async def story():
        async with open_server("http://127.0.0.1:1") as nobody:
            with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
                await nobody.models()
        runner = web.AppRunner(web.Application())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with open_server(f"http://127.0.0.1:{runner.addresses[0][1]}") as other:
            with pytest.raises(SinkRejected, match="got 404"):
                await other.models()
        await runner.cleanup()

    run(story())
