"""What a process says of itself is there over HTTP, whatever else the process does."""

import json
import urllib.error
import urllib.request

import pytest

from connectors.status_server import Page, as_json, serving
from daom.errors import ConfigError
from tests.servers import WITHOUT_PROXY, free_port

PAGES = {
    "/metrics": lambda: Page("text/plain; version=1.0.0", b"daom_lag 4\n"),
    "/healthz": lambda: as_json({"healthy": False, "stuck": [3]}, ok=False),
}


@pytest.fixture
def url():
    with serving("127.0.0.1", 0, PAGES) as address:
        yield address


def answer(url, method="GET"):
    request = urllib.request.Request(url, method=method)
    try:
        with WITHOUT_PROXY.open(request, timeout=10.0) as response:
            return response.status, response.headers["Content-Type"], response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


@pytest.mark.parametrize("path", ["/metrics", "/metrics?name=daom_lag"])
def test_a_page_is_served_as_what_it_is(url, path):
    assert answer(url + path) == (200, "text/plain; version=1.0.0", b"daom_lag 4\n")


def test_what_is_not_well_is_a_503_that_says_why(url):
    status, kind, body = answer(f"{url}/healthz")

    assert (status, kind) == (503, "application/json")
    assert json.loads(body) == {"healthy": False, "stuck": [3]}


def test_a_head_is_answered_without_the_body(url):
    assert answer(f"{url}/metrics", "HEAD") == (200, "text/plain; version=1.0.0", b"")


def test_another_path_is_not_found_and_told_what_there_is(url):
    status, _, body = answer(f"{url}/")

    assert status == 404
    assert b"/metrics, /healthz" in body


def test_nobody_is_served_after_the_end():
    with serving("127.0.0.1", 0, PAGES) as url:
        pass

    with pytest.raises(urllib.error.URLError):
        answer(f"{url}/metrics")


def test_a_port_that_is_taken_is_a_mistake_in_the_configuration():
    port = free_port()
    taken = pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: ")

    with serving("127.0.0.1", port, PAGES), taken, serving("127.0.0.1", port, PAGES):
        pass
