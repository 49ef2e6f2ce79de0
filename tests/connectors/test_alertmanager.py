import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web

from connectors.alertmanager import AlertmanagerSink, AlertsRejected, to_wire
from daom.alert_book import AlertBatch, BookSettings, Posting, WrittenAlert
from daom.errors import ConfigError, SinkRejected, SinkUnavailable
from daom.events import Alert, AlertState, digest
from tests.servers import FakeReplica, Hangs, MemoryTopic, bridge, free_port, run, soon

T0 = 1_766_000_000.0
SECRET = "s3cr3t-w0rd"
OFTEN = BookSettings(resend_s=0.2)


def alert(engine: str = "host-1/0", state: AlertState = "firing", at_s: float = T0) -> Alert:
    return Alert(
        id=digest(engine, state, at_s),
        event_time_s=at_s,
        cell="llama",
        fingerprint=engine,
        name="LatencyDrift",
        labels={"alertname": "LatencyDrift", "engine": engine},
        state=state,
        started_s=T0,
        annotations={"p99": "0.31 s"},
    )


def posting(engine: str = "host-1/0") -> Posting:
    return Posting("a", alert(engine), starts_s=T0, ends_s=T0 + 240.0)


def always(status: int, body: object = None, **options: Any) -> FakeReplica:
    return FakeReplica(lambda _: web.json_response(body, status=status, **options))


def refusing(*engines: str) -> FakeReplica:
    """Answers as Alertmanager does: 400 as soon as one alert of a batch is invalid."""

    def answer(body: list[dict[str, Any]]) -> web.Response:
        bad = [sent["labels"]["engine"] for sent in body if sent["labels"]["engine"] in engines]
        return web.json_response(
            f"invalid label set: {bad}" if bad else {}, status=400 if bad else 200
        )

    return FakeReplica(answer)


def send(
    replica: FakeReplica, postings: Sequence[Posting], prefix: str = "", **options: Any
) -> BaseException | None:
    """Send, and return the error if there was one."""

    async def story() -> BaseException | None:
        async with replica.running() as url, AlertmanagerSink(url + prefix, **options) as sink:
            try:
                await sink.send(postings)
            except (SinkUnavailable, SinkRejected) as error:
                return error
        return None

    return asyncio.run(story())


# The wire


def test_an_alert_goes_out_as_alertmanager_wants_it() -> None:
    wire = to_wire(posting(), generator_url="http://daom.example/")

    assert wire == {
        "labels": {"alertname": "LatencyDrift", "engine": "host-1/0"},
        "annotations": {"p99": "0.31 s"},
        "startsAt": "2025-12-17T19:33:20.000Z",
        "endsAt": "2025-12-17T19:37:20.000Z",
        "generatorURL": "http://daom.example/",
    }


def test_times_keep_their_milliseconds_and_a_link_is_optional() -> None:
    wire = to_wire(Posting("a", alert(), starts_s=T0 + 0.1239, ends_s=T0 + 1.5))

    assert (wire["startsAt"], wire["endsAt"]) == (
        "2025-12-17T19:33:20.123Z",
        "2025-12-17T19:33:21.500Z",
    )
    assert "generatorURL" not in wire


# One replica


def test_all_alerts_of_a_call_go_out_in_one_request() -> None:
    replica = always(200)

    assert send(replica, [posting("e1"), posting("e2")]) is None
    assert replica.bodies == [[to_wire(posting("e1")), to_wire(posting("e2"))]]
    assert replica.headers[0]["Content-Type"] == "application/json"


def test_nothing_to_send_asks_nobody() -> None:
    asyncio.run(AlertmanagerSink("http://127.0.0.1:1").send([]))


@pytest.mark.parametrize("prefix", ["/monitoring/am", "/monitoring/am/"])
def test_a_path_prefix_comes_before_the_api(prefix: str) -> None:
    replica = always(200)
    replica.path = "/monitoring/am/api/v2/alerts"

    assert send(replica, [posting()], prefix=prefix) is None
    assert len(replica.bodies) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_busy_replica_is_retryable(status: int) -> None:
    replica = always(status, "come back later")

    error = send(replica, [posting()])

    assert isinstance(error, SinkUnavailable)
    assert str(error) == f"{replica.url} answered {status}: come back later"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, "", "Unauthorized"),
        (404, "page not found", "page not found"),
        (405, {"code": 405, "message": "method  POST\nnot allowed"}, "method POST not allowed"),
    ],
)
def test_a_request_that_is_refused_as_such_blames_no_alert(
    status: int, body: object, reason: str
) -> None:
    replica = always(status, body)

    error = send(replica, [posting("e1"), posting("e2")])

    assert type(error) is SinkRejected
    assert str(error) == f"{replica.url} answered {status}: {reason}"
    assert len(replica.bodies) == 1


def test_a_redirect_is_not_followed() -> None:
    """It would turn the POST into a GET, whose 200 looks like a delivery."""
    error = send(always(302, headers={"Location": "https://login.example/"}), [posting()])

    assert isinstance(error, SinkRejected)
    assert "redirects to https://login.example/" in str(error)


def test_one_invalid_alert_is_named_and_the_others_are_delivered() -> None:
    replica = refusing("bad")

    error = send(replica, [posting("e1"), posting("bad"), posting("e2")])

    assert isinstance(error, AlertsRejected)
    assert [rejected.alert.fingerprint for rejected, _ in error.rejections] == ["bad"]
    assert "1 of 3 alerts refused (400)" in str(error)
    assert "'engine': 'bad'}: invalid label set: ['bad']" in str(error)
    assert replica.engines() == [["e1", "bad", "e2"], ["e1"], ["bad"], ["e2"]]


def test_a_400_that_is_not_alertmanagers_blames_no_alert() -> None:
    """A server that expects TLS answers so, and every alert would count as invalid."""
    text = "Client sent an HTTP request to an HTTPS server."
    replica = FakeReplica(lambda _: web.Response(status=400, text=text))

    error = send(replica, [posting("e1"), posting("e2")])

    assert type(error) is SinkRejected
    assert str(error) == f"{replica.url} answered 400: {text}"


def test_a_single_invalid_alert_is_not_sent_twice() -> None:
    replica = refusing("bad")

    assert isinstance(send(replica, [posting("bad")]), AlertsRejected)
    assert replica.engines() == [["bad"]]


def test_a_slow_replica_is_retryable() -> None:
    def hang(_: object) -> web.Response:
        raise Hangs

    replica = FakeReplica(hang)

    error = send(replica, [posting()], timeout_s=0.2)

    assert isinstance(error, SinkUnavailable)
    assert str(error) == f"{replica.url}: no answer in 0.2 s"


def test_a_replica_that_is_not_there_is_retryable() -> None:
    sink = AlertmanagerSink(f"http://127.0.0.1:{free_port()}")

    async def story() -> None:
        async with sink:
            await sink.send([posting()])

    with pytest.raises(SinkUnavailable, match=f"{sink.url}: Cannot connect to host"):
        asyncio.run(story())


# Credentials


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({"username": "daom", "password": SECRET}, basic("daom", SECRET)),
        ({"bearer_token": f"{SECRET}\n"}, f"Bearer {SECRET}"),
    ],
)
def test_credentials_reach_the_replica_and_no_error(options: dict[str, Any], header: str) -> None:
    """Not even where the replica answers with what it was sent."""
    replica = always(500, f"what is {header}, {SECRET}?")

    error = send(replica, [posting()], **options)

    assert replica.headers[0]["Authorization"] == header
    assert SECRET not in f"{error!r} {AlertmanagerSink('http://am', **options)!r}"
    assert header.partition(" ")[2] not in f"{error!r}"


def test_credentials_in_the_url_are_used_and_not_shown() -> None:
    replica = always(401)

    async def story() -> tuple[str, BaseException]:
        async with replica.running() as url:
            secret_url = url.replace("http://", f"http://daom:{SECRET}@")
            async with AlertmanagerSink(secret_url) as sink:
                with pytest.raises(SinkRejected) as caught:
                    await sink.send([posting()])
                return f"{sink!r} {sink.url}", caught.value

    shown, error = asyncio.run(story())

    assert replica.headers[0]["Authorization"] == basic("daom", SECRET)
    assert shown == f"AlertmanagerSink('{replica.url}') {replica.url}"
    assert SECRET not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("am:9093", {}, "must be http://HOST"),
        (f"ftp://daom:{SECRET}@am", {}, "must be http://HOST"),
        (f"http://daom:{SECRET}@am:x", {}, "must be http://HOST"),
        (f"http://am?token={SECRET}", {}, "http://am: an Alertmanager url has no query"),
        ("http://am", {"username": "u", "bearer_token": SECRET}, "not both"),
        ("http://am", {"bearer_token": f"{SECRET}\n2"}, "a character that no header may have"),
    ],
)
def test_what_cannot_work_is_refused(url: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        AlertmanagerSink(url, **options)

    assert SECRET not in repr(caught.value)


def test_a_redirect_carries_no_credentials_elsewhere() -> None:
    elsewhere = always(200)

    async def story() -> None:
        async with elsewhere.running() as there:
            location = {"Location": there + elsewhere.path}
            moved = FakeReplica(lambda _: web.Response(status=307, headers=location))
            error = await asyncio.to_thread(send, moved, [posting()], bearer_token=SECRET)
            assert "answered 307" in str(error)

    asyncio.run(story())

    assert elsewhere.bodies == []


def test_the_bridge_sends_what_it_restored_and_what_comes_then() -> None:
    async def story() -> None:
        replica, source = always(200), MemoryTopic(alert("e1"), alert("e0", "pending"))
        async with replica.running() as url, bridge(source, url, settings=OFTEN) as told:
            await soon(lambda: replica.engines()[:1] == [["e1"]])
            source.write(alert("e2"))
            await soon(lambda: ["e2"] in replica.engines())
            source.write(alert("e1", "resolved", T0 + 1.0))
            ended = "2025-12-17T19:33:21.000Z"
            await soon(lambda: any(s["endsAt"] == ended for b in replica.bodies for s in b))

        assert told.words("restored") == ["restored 2 alerts (1 firing)"]
        assert f"sent 1 alerts (1 firing, 1 new) to {url}" in told.words("sent")
        assert not any("e0" in engines for engines in replica.engines())

    run(story())


def test_nothing_is_sent_before_the_topic_is_read_to_its_end() -> None:
    class Slow(MemoryTopic):
        async def restore(self) -> AsyncIterator[AlertBatch]:
            yield AlertBatch((WrittenAlert(alert("e1"), T0),))
            assert replica.bodies == []
            yield AlertBatch((WrittenAlert(alert("e1", "resolved", T0 + 1.0), T0 + 1.0),))

    replica = always(200)

    async def story() -> None:
        source = Slow()
        async with replica.running() as url, bridge(source, url, settings=OFTEN) as told:
            await soon(lambda: told.counters.restored)
            source.write(alert("e2"))
            await soon(lambda: replica.engines()[:1] == [["e2"]])

    run(story())


def test_a_replica_that_is_down_stops_no_other_and_is_told_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "connectors.alert_bridge")

    async def story() -> None:
        up, late, port = always(200), always(200), free_port()
        down_url = f"http://127.0.0.1:{port}"
        source = MemoryTopic(alert("e1"))
        async with up.running() as url, bridge(source, url, down_url, settings=OFTEN) as told:
            await soon(lambda: len(up.bodies) > 2 and told.counters.failed > 2)
            async with late.running(port):
                await soon(lambda: late.engines()[:1] == [["e1"]])
                await soon(lambda: "available" in told.kinds(down_url))

        assert told.kinds(down_url)[:3] == ["unavailable", "sent", "available"]
        assert "unavailable" not in told.kinds(url)

    run(story())
    lines = [record.getMessage() for record in caplog.records]
    assert sum("replica unavailable, retrying until it is back" in line for line in lines) == 1
    assert sum("replica available again" in line for line in lines) == 1


def test_wrong_credentials_lose_no_alert() -> None:
    """A 401 says nothing about the alerts, so they stay due."""

    async def story() -> None:
        answers = iter([401, 401] + 100 * [200])
        replica = FakeReplica(lambda _: web.json_response({}, status=next(answers)))
        source = MemoryTopic(alert("e1"))
        async with replica.running() as url, bridge(source, url, settings=OFTEN) as told:
            await soon(lambda: told.counters.sent)

        assert told.kinds(url)[:2] == ["unavailable", "sent"]
        assert told.counters.rejected == 0

    run(story())


def test_an_invalid_alert_is_told_once_and_the_others_go_on() -> None:
    async def story() -> None:
        replica, source = refusing("bad"), MemoryTopic(alert("e1"), alert("bad"), alert("e2"))
        async with replica.running() as url, bridge(source, url, settings=OFTEN) as told:
            await soon(lambda: told.counters.sent >= 6)

        assert told.counters.rejected == 1
        assert ["'engine': 'bad'" in words for words in told.words("rejected")] == [True]
        assert replica.engines().count(["e1", "e2"]) >= 2

    run(story())


def test_malformed_values_are_counted_and_told() -> None:
    async def story() -> None:
        source = MemoryTopic()
        async with bridge(source, settings=OFTEN) as told:
            source.write(malformed=3)
            await soon(lambda: told.counters.malformed == 3)

        assert told.words("malformed") == ["skipped 3 malformed alerts of the topic, such as bad"]

    run(story())


def test_a_hundred_alerts_go_out_in_batches() -> None:
    async def story() -> None:
        replica = always(200)
        source = MemoryTopic(*(alert(f"e{n}") for n in range(100)))
        async with replica.running() as url, bridge(source, url, settings=OFTEN):
            await soon(lambda: len(replica.bodies) >= 2)

        assert [len(engines) for engines in replica.engines()[:2]] == [64, 36]

    run(story())
