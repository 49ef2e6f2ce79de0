"""A way to a real Alertmanager that can be closed, slow, or answer in its place."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.servers import WITHOUT_PROXY

SLOW_S = 3.0
_ANSWER_WITHIN_S = 10.0


class Way:
    """Passes requests on to ``to``, or does as ``fault`` says.

    Args:
        to: Where Alertmanager is.
        token: Whoever does not show it is answered 401, as by a proxy that asks for it.

    Attributes:
        fault: "" passes on; "400" and "500" answer that; "slow" waits before it passes on; "down"
            closes the connection.
    """

    def __init__(self, to: str, token: str | None = None) -> None:
        self.fault = ""
        self._token = token
        self._healed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, to))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def breaks(self, fault: str) -> None:
        """Do as ``fault`` says from now on."""
        self._healed.clear()
        self.fault = fault

    def heals(self) -> None:
        """Pass everything on again."""
        self.fault = ""
        self._healed.set()

    def lets_in(self, authorization: str | None) -> bool:
        """Return whether who sends that header may pass."""
        return self._token is None or authorization == f"Bearer {self._token}"

    def dawdle(self) -> None:
        """Wait as long as a slow server does, or until it is healed."""
        self._healed.wait(SLOW_S)


def _handler(way: Way, to: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not way.lets_in(self.headers["Authorization"]):
                self._answer(401, b"")
                return
            if way.fault == "down":
                self.close_connection = True
                return
            if way.fault == "slow":
                way.dawdle()
            if way.fault.isdigit():
                self._answer(int(way.fault), b'{"error": "so it shall be"}')
                return
            request = urllib.request.Request(
                to + self.path, body, {"Content-Type": self.headers["Content-Type"]}
            )
            try:
                with WITHOUT_PROXY.open(request, timeout=_ANSWER_WITHIN_S) as answer:
                    self._answer(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
