"""The bridge's way to a real Alertmanager that speaks TLS and asks for a password."""

import asyncio
import time

import pytest

from connectors.alertmanager import AlertmanagerSink
from daom.alert_book import Posting
from daom.config import load_config
from daom.errors import SinkRejected, SinkUnavailable
from daom.events import Alert
from tests.certificates import make_certificate
from tests.servers import Alertmanager

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
