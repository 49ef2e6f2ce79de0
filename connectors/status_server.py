"""What a process says of itself over HTTP: ``/metrics``, ``/healthz``, ``/readyz``.

It answers from a thread of its own, so also where the process does nothing else any more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple

from daom.errors import ConfigError

_PATIENCE_S: Final = 10.0
"""A client that sends nothing for so long is hung up on."""


class Page(NamedTuple):
    """An answer; one that is not ``ok`` is a 503."""

    content_type: str
    body: bytes
    ok: bool = True


def as_json(fields: Mapping[str, object], *, ok: bool) -> Page:
    """Return ``fields`` as a page; 503 unless ``ok``."""
    return Page("application/json", json.dumps(fields).encode() + b"\n", ok)


@contextmanager
def serving(host: str, port: int, pages: Mapping[str, Callable[[], Page]]) -> Iterator[str]:
    """Serve ``pages`` by their path, and give the URL.

    Args:
        host: Interface to listen on.
        port: 0 takes any that is free.
        pages: Called from threads of the server.

    Raises:
        ConfigError: If nobody can listen there.
    """
    try:
        server = ThreadingHTTPServer((host, port), _handler(pages))
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="status", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _handler(pages: Mapping[str, Callable[[], Page]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_S

        def do_GET(self) -> None:
            make = pages.get(self.path.partition("?")[0])
            if make is None:
                self.send_error(HTTPStatus.NOT_FOUND, explain=f"there are {', '.join(pages)}")
                return
            page = make()
            status = HTTPStatus.OK if page.ok else HTTPStatus.SERVICE_UNAVAILABLE
            self.send_response(status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page.body)

        do_HEAD = do_GET  # noqa: N815 - the name that http.server calls.

        def log_message(self, *_: object) -> None:
            """Say nothing: a probe asks every few seconds."""

    return Handler
