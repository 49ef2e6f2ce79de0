"""``daom scrape`` as a user meets it."""

import json

import pytest

from connectors.metrics_scrape import Naming, since_the_start
from connectors.metrics_text import read_metrics
from daom.topics import Topics
from tests.connectors.metrics_server import SAMPLE, MetricsServer
from tests.fleet import Fleet
from tests.processes import running, said_at_the_end
from tests.servers import eventually

ENDED_WITHIN_S = 20.0


@pytest.fixture
def vllm():
    with MetricsServer(SAMPLE.read_text("utf-8")) as server:
        yield server


def test_once_prints_what_each_engine_shows(daom, vllm):
    done = daom("scrape", "--once", vllm.address)

    assert (done.code, done.err) == (0, "")
    assert f"tiny, engine {vllm.address}/0 ({vllm.url}), since its start:" in done.out
    assert "ttft_s: 145 samples in 5 of 23 buckets, 0.005 to 0.08 s" in done.out
    assert "finished_total: 145" in done.out


def test_once_in_json_prints_what_would_be_sent(daom, vllm):
    done = daom("scrape", "--once", "--json", "--engine", "east", "--model", "llama", vllm.url)

    sent = json.loads(done.out)
    (expected,) = since_the_start(Naming("east", "llama"), read_metrics(vllm.text, sent["end_s"]))
    assert sent["source"]["engine"] == expected.source.engine == "east/0"
    assert sent["source"]["model"] == "llama"
    assert sent["histograms"]["ttft_s"]["counts"] == expected.histograms["ttft_s"].counts.tolist()
    assert sent["histograms"]["ttft_s"]["le_s"][-1] is None


def test_one_that_shows_nothing_is_said_and_the_others_are_printed(daom, vllm):
    with MetricsServer("<html>not found</html>", 200) as page:
        done = daom("scrape", "--once", page.address, vllm.address)

    assert done.code == 3
    assert done.err == (f"daom: {page.url}: not Prometheus text: '<html>not found</html>'\n")
    assert "tiny, engine" in done.out


WRONG = {
    "no URL": ((), "Missing argument 'URL...'"),
    "an address that is none": (("ftp://x",), "http://HOST:PORT/metrics is needed"),
    "one name for two": (("a:1", "b:1", "--engine", "e"), "--engine needs a single URL"),
    "JSON of nothing": (("a:1", "--json"), "--json needs --once"),
    "too slow": (("a:1", "--interval", "5m"), "1s to 30s is allowed"),
    "a file that is missing": (("a:1", "--token-file", "/none"), "cannot be read"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_wrong_usage_is_one_message(daom, arguments, said):
    done = daom("scrape", *arguments)

    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_secrets_come_from_a_file_or_the_environment(daom, vllm, tmp_path, monkeypatch):
    basic = tmp_path / "basic"
    basic.write_text("me:pass\n")

    daom("scrape", "--once", vllm.address, "--basic-file", basic)
    monkeypatch.setenv("DAOM_SCRAPE_TOKEN", "s3cret")
    daom("scrape", "--once", vllm.address)
    both = daom("scrape", "--once", vllm.address, "--basic-file", basic)

    sent = [headers["Authorization"] for headers in vllm.headers]
    assert sent == ["Basic bWU6cGFzcw==", "Bearer s3cret"]
    assert "drop one of them" in both.err


@pytest.mark.broker
def test_what_it_scrapes_is_on_the_telemetry_topic(embedded_broker, topic_prefix, vllm):
    with Fleet(embedded_broker.bootstrap_servers, topic_prefix) as fleet:
        with running("scrape", vllm.address, "--interval", "1s", **fleet.environment) as process:
            telemetry = Topics(topic_prefix).telemetry
            eventually(lambda: fleet.values(telemetry))
            said = said_at_the_end(process)
        key, _, headers = fleet.records(telemetry)[0]

    assert f"scraping 1 URL every 1 s -> {telemetry}" in said
    assert (key, headers["schema"]) == (b"tiny", b"TelemetryBatch/1")
