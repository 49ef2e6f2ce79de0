"""A real HTTP server that shows metrics, and whose answer can be changed."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

SAMPLE = Path(__file__).parents[1] / "data" / "vllm" / "metrics_sample.txt"
"""What a real vLLM showed."""


class MetricsServer:
    """Answers every GET with ``text`` and ``status``; what it was asked is in ``headers``."""

    def __init__(self, text: str = "", status: int = 200, **headers: str) -> None:
        self.text = text
        self.status = status
        self.answer_headers = headers
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._http.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/metrics"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.headers.append(dict(self.headers))
                server.paths.append(self.path)
                self.send_response(server.status)
                for name, value in server.answer_headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(server.text.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
