"""From scrape to scrape: what is sent, and who is asked how."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.metrics_scrape import (
    Access,
    Naming,
    Scraper,
    Server,
    metrics_url,
    scrape,
    since_the_start,
)
from connectors.metrics_text import EngineKey, Reading, Scrape, Total, read_metrics
from daom.codec import decode, encode_json
from daom.errors import ConfigError, SourceError
from daom.events import cell_of
from tests.connectors.metrics_server import SAMPLE, MetricsServer
from tests.servers import eventually

T0 = 1_766_000_000.0
KEY = EngineKey("m", "0")
NAMING = Naming("vllm-0:8000")
EDGES = (0.1, 0.5, math.inf)


def shown(time_s, counts=(0, 0, 0), started_s=None, totals=None, **numbers):
    """A scrape of one engine."""
    reading = Reading({"ttft_s": dict(zip(EDGES, counts, strict=True))}, totals or {}, numbers)
    return Scrape(T0 + time_s, {KEY: reading}, started_s)


def batches(*scrapes):
    """What one server's scrapes make, one list a scrape."""
    server = Server(NAMING)
    return [server.take(each) for each in scrapes]


def counts_of(found):
    (batch,) = found
    histogram = batch.histograms.get("ttft_s")
    return None if histogram is None else histogram.counts.tolist()


def boot_of(found):
    (batch,) = found
    return batch.source.boot


def test_what_was_counted_in_between_is_sent_and_nothing_else():
    _, (batch,) = batches(shown(0, (5, 1, 0)), shown(10, (8, 1, 2), running=3.0))

    assert batch.histograms["ttft_s"].le_s.tolist() == list(EDGES)
    assert batch.histograms["ttft_s"].counts.tolist() == [3, 0, 2]
    assert (batch.start_s, batch.end_s) == (T0, T0 + 10.0)
    assert batch.gauges == {"running": 3.0}
    assert (batch.source.model, batch.source.engine) == ("m", "vllm-0:8000/0")


def test_the_first_scrape_knows_no_past_but_how_the_engine_stands():
    ((batch,),) = batches(shown(0, (5, 1, 0), running=3.0))

    assert batch.histograms == {}
    assert batch.start_s == batch.end_s
    assert batch.gauges == {"running": 3.0}


def test_where_nothing_was_counted_nothing_is_told():
    assert counts_of(batches(shown(0, (5, 1, 0)), shown(10, (5, 1, 0)))[1]) is None


def test_an_engine_that_appears_has_done_it_all_since():
    nobody = Scrape(T0, {})

    assert counts_of(batches(nobody, shown(10, (2, 1, 0)))[1]) == [2, 1, 0]


def test_after_a_long_silence_nobody_knows_when_it_was_counted():
    found = batches(shown(0, (5, 1, 0)), shown(90, (9, 9, 0)), shown(100, (9, 10, 0)))

    assert [counts_of(each) for each in found] == [None, None, [0, 1, 0]]


def test_means_are_of_the_time_in_between():
    _, (batch,) = batches(
        shown(0, totals={"queue_s": Total(10.0, 100.0)}),
        shown(10, totals={"queue_s": Total(11.0, 110.0)}),
    )

    assert batch.gauges == {"queue_s": pytest.approx(0.1)}


def test_a_count_that_falls_is_a_restart_and_counts_from_zero():
    found = batches(shown(0, (5, 1, 0)), shown(10, (2, 1, 0)), shown(20, (3, 1, 0)))

    assert [counts_of(each) for each in found] == [None, [2, 1, 0], [1, 0, 0]]
    first, restarted, later = map(boot_of, found)
    assert first != restarted == later


def test_so_is_a_counter_that_falls():
    found = batches(shown(0, finished_total=9.0), shown(10, (7, 0, 0), finished_total=7.0))

    assert counts_of(found[1]) == [7, 0, 0]
    assert boot_of(found[0]) != boot_of(found[1])


def test_a_gauge_that_falls_is_none():
    found = batches(shown(0, running=9.0), shown(10, running=1.0))

    assert boot_of(found[0]) == boot_of(found[1])


def test_a_process_that_has_started_since_has_counted_from_zero_however_much():
    found = batches(shown(0, (5, 1, 0), T0 - 99.0), shown(10, (9, 9, 0), T0 + 4.0))

    assert counts_of(found[1]) == [9, 9, 0]
    assert found[1][0].start_s == T0 + 4.0
    assert [boot_of(each) for each in found] == [f"{T0 - 99.0:.2f}", f"{T0 + 4.0:.2f}"]


def test_an_engine_that_restarts_behind_its_server_has_another_boot_too():
    found = batches(
        shown(0, (5, 1, 0), T0 - 99.0),
        shown(10, (1, 0, 0), T0 - 99.0),
        shown(20, (1, 0, 0), T0 + 14.0),
    )

    assert len({boot_of(each) for each in found}) == 3
    assert boot_of(found[2]) == f"{T0 + 14.0:.2f}"


def test_a_scraper_that_is_started_anew_is_no_restart_of_the_engine():
    """Its numbers go on ascending, so that no batch is taken for one seen before."""
    ((before,),), ((after,),) = batches(shown(0, started_s=T0)), batches(shown(10, started_s=T0))

    assert before.source.boot == after.source.boot
    assert after.source.seq > before.source.seq


@given(steps=st.lists(st.tuples(*[st.integers(0, 2**40)] * 3).filter(any), min_size=1, max_size=6))
def test_no_count_is_lost_or_made_up(steps):
    totals = [(0, 0, 0)]
    for step in steps:
        totals.append(tuple(a + b for a, b in zip(totals[-1], step, strict=True)))

    found = batches(*(shown(10.0 * i, counts) for i, counts in enumerate(totals)))

    assert [counts_of(each) for each in found[1:]] == [list(step) for step in steps]


def test_names_may_be_given():
    (batch,) = since_the_start(Naming("east-1", "llama"), shown(0, (1, 0, 0)))

    assert (batch.source.model, batch.source.engine) == ("llama", "east-1/0")


def test_a_real_vllm_makes_a_batch_that_is_read_with_nothing_left_out():
    before = read_metrics(SAMPLE.read_text("utf-8"), T0)
    later = dataclasses.replace(before, time_s=T0 + 10.0)

    (batch,) = since_the_start(NAMING, later)
    record, faults = decode(encode_json(batch))

    assert faults == ()
    assert record.histograms["itl_s"].total == 28_467
    assert record.gauges["prompt_tokens"] == pytest.approx(69.869, abs=1e-3)
    assert counts_of(batches(before, later)[1]) is None


# Asking


def test_a_server_is_asked_and_read():
    with MetricsServer(SAMPLE.read_text("utf-8")) as server:
        found = scrape(metrics_url(server.address), Access())

    assert list(found.engines) == [EngineKey("tiny", "0")]
    assert server.paths == ["/metrics"]


@pytest.mark.parametrize(
    ("access", "header"),
    [
        (Access(), None),
        (Access(token="s3cret"), "Bearer s3cret"),
        (Access(basic="me:pass"), "Basic bWU6cGFzcw=="),
    ],
)
def test_a_token_or_a_password_goes_with_it(access, header):
    with MetricsServer(SAMPLE.read_text("utf-8")) as server:
        scrape(server.url, access)

    assert server.headers[0].get("Authorization") == header


def test_no_redirect_is_followed_for_it_would_take_the_token_along():
    with (
        MetricsServer() as other,
        MetricsServer(status=302, Location=other.url) as server,
        pytest.raises(SourceError, match="answers 302"),
    ):
        scrape(server.url, Access(token="s3cret"))

    assert other.headers == []


def test_what_is_wrong_is_said_with_the_url():
    with MetricsServer("<html>", 200) as page, MetricsServer("", 503) as busy:
        with pytest.raises(SourceError, match=rf"{page.url}: not Prometheus text: '<html>'"):
            scrape(page.url, Access())
        with pytest.raises(SourceError, match=rf"{busy.url}: answers 503"):
            scrape(busy.url, Access())
    with pytest.raises(SourceError, match=rf"{page.url}: does not answer"):
        scrape(page.url, Access())


URLS = {
    "host:8000": "http://host:8000/metrics",
    "http://host:8000": "http://host:8000/metrics",
    "https://host/": "https://host/metrics",
    "http://host/other/metrics": "http://host/other/metrics",
}


@pytest.mark.parametrize(("given_url", "whole"), URLS.items(), ids=list(URLS))
def test_host_and_port_will_do(given_url, whole):
    assert metrics_url(given_url) == whole


@pytest.mark.parametrize("url", ["ftp://host/metrics", "http://", "host:port", "http://[x"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match="http://HOST:PORT/metrics is needed"):
        metrics_url(url)


def test_a_password_in_a_url_is_refused_and_not_repeated():
    with pytest.raises(ConfigError, match="--basic-file") as refused:
        metrics_url("http://me:s3cret@host")

    assert "s3cret" not in str(refused.value)


def test_one_that_does_not_answer_is_said_once_holds_nobody_up_and_is_said_when_it_does(caplog):
    with MetricsServer(SAMPLE.read_text("utf-8")) as well, MetricsServer("", 503) as ill:
        scraper = Scraper([(ill.url, NAMING), (well.url, Naming("well"))], Access(), 0.02, 4)
        scraper.start()
        eventually(lambda: len(ill.paths) > 3)
        ill.text, ill.status = SAMPLE.read_text("utf-8"), 200
        eventually(lambda: f"{ill.url}: answers again" in caplog.messages)
        about_ill = [message for message in caplog.messages if ill.url in message]
        scraper.stop()
        shown = scraper.collect()

    engines = {batch.source.engine for _, batch in shown}
    assert all(key == cell_of(batch.source, 4) for key, batch in shown)
    assert len(about_ill) == 2
    assert "answers 503" in about_ill[0]
    assert engines == {"well/0", "vllm-0:8000/0"}
