"""The bridge's way to a real Alertmanager that speaks TLS and asks who is there."""

import asyncio
import json
import ssl
import time

import pytest

from connectors.alertmanager import AlertmanagerSink
from daom.alert_book import Posting
from daom.config import load_config
from daom.errors import SinkRejected, SinkUnavailable
from daom.events import Alert
from tests.certificates import make_certificate
from tests.chaos.alertmanager import Way
from tests.servers import WITHOUT_PROXY, Alertmanager

pytestmark = pytest.mark.alertmanager

SECRET = "marker-s3cr3t"
HASH = "$2b$04$Gq.XES2xRoscgBtNGSpNVeyM.ZA24XrD4L/BXTR/O.wZmkir1dlN2"
"""The secret, as Alertmanager wants it (bcrypt)."""


@pytest.fixture
def own(tmp_path):
    """A certificate that vouches for itself."""
    return make_certificate(tmp_path, "alertmanager")


@pytest.fixture
def secured(own, tmp_path):
    """An Alertmanager that shows that certificate, and lets in who knows the secret."""
    web_config = (
        f"tls_server_config: {{cert_file: {own.cert_file}, key_file: {own.key_file}}}\n"
        f"basic_auth_users: {{daom: {HASH}}}\n"
    )
    with Alertmanager(tmp_path / "alertmanager", web_config=web_config) as running:
        yield running


@pytest.fixture
def mutual(own, tmp_path):
    """An Alertmanager that asks for a certificate, and knows one: its own."""
    tls = f"cert_file: {own.cert_file}, key_file: {own.key_file}, client_ca_file: {own.cert_file}"
    web_config = f"tls_server_config: {{{tls}, client_auth_type: RequireAndVerifyClientCert}}\n"
    client = ssl.create_default_context(cafile=own.cert_file)
    client.load_cert_chain(own.cert_file, own.key_file)
    with Alertmanager(tmp_path / "mutual", web_config=web_config, client=client) as running:
        yield running


def posting():
    labels = {"alertname": "LatencyDrift", "engine": "gpu-0"}
    now_s = time.time()
    alert = Alert(
        id="1",
        event_time_s=now_s,
        cell="m",
        fingerprint="f",
        name="LatencyDrift",
        labels=labels,
        state="firing",
        started_s=now_s,
    )
    return Posting("f", alert, starts_s=now_s, ends_s=now_s + 240.0)


def send(replica, settings):
    """Send an alert as the bridge would under ``settings``; raise what came of it."""
    variables = {f"DAOM_BRIDGE__{name.upper()}": str(value) for name, value in settings.items()}
    bridge = load_config(None, variables).bridge

    async def story():
        async with AlertmanagerSink(replica.url, **bridge.sink_options()) as sink:
            await sink.send([posting()])

    asyncio.run(story())


def test_an_alert_goes_over_tls_with_the_password_of_a_file(secured, own, tmp_path):
    password_file = tmp_path / "password"
    password_file.write_text(f"{SECRET}\n")
    settings = {"basic_auth_username": "daom", "basic_auth_password_file": password_file}

    send(secured, settings | {"tls_ca_file": own.cert_file})
    send(secured, settings | {"tls_insecure_skip_verify": "true"})


def test_an_alert_goes_with_a_certificate_and_without_one_it_is_told(mutual, own):
    settings = {"tls_ca_file": own.cert_file}

    send(mutual, settings | {"tls_cert_file": own.cert_file, "tls_key_file": own.key_file})
    with pytest.raises(SinkUnavailable, match=r"certificate required|bad certificate"):
        send(mutual, settings)


def test_an_alert_goes_with_a_token_through_a_proxy_that_asks_for_it(tmp_path):
    """Alertmanager itself knows no tokens."""
    token_file = tmp_path / "token"
    token_file.write_text(f"{SECRET}\n")

    with Alertmanager(tmp_path / "alertmanager") as behind, Way(behind.url, SECRET) as proxy:
        send(proxy, {"bearer_token_file": token_file})
        with pytest.raises(SinkRejected, match="answered 401") as caught:
            send(proxy, {"bearer_token": f"not-{SECRET}"})
        with WITHOUT_PROXY.open(f"{behind.url}/api/v2/alerts") as answer:
            [alert] = json.load(answer)

    assert alert["labels"] == posting().alert.labels
    assert SECRET not in f"{caught.value!r}"


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"tls_ca_file": None}, SinkUnavailable, "certificate verify failed"),
        ({"basic_auth_password": f"not-{SECRET}"}, SinkRejected, "answered 401"),
    ],
    ids=["an untrusted certificate", "a wrong password"],
)
def test_a_mistake_is_told_without_the_secret(secured, own, changed, kind, words):
    settings = {
        "basic_auth_username": "daom",
        "basic_auth_password": SECRET,
        "tls_ca_file": own.cert_file,
    } | changed

    with pytest.raises(kind, match=words) as caught:
        send(secured, {name: value for name, value in settings.items() if value is not None})

    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"
