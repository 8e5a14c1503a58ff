"""A proxy that writes down what a client sends, for tests that send it again without the client."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Others tell of the machine or of the connection.
KEPT = ("accept", "content-type")


class Recorder(ThreadingHTTPServer):
    """Passes requests on to a server.

    Attributes:
        requests: what came, with the status of its answer.
    """

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = port
        self.requests: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def log_message(self, *args: Any) -> None:
        pass

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        upstream.request(self.command, self.path, body, dict(self.headers.items()))
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        sent = {name: self.headers[name] for name in KEPT if name in self.headers}
        self.server.requests.append(
            {
                "method": self.command,
                "path": self.path,
                "headers": sent,
                "body": json.loads(body) if body else None,
                "status": answer.status,
            }
        )
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def recording(port: int) -> Iterator[Recorder]:
    """Record what comes for the server on this port while the block runs."""
    with Recorder(port) as recorder:
        thread = threading.Thread(target=recorder.serve_forever)
        thread.start()
        try:
            yield recorder
        finally:
            recorder.shutdown()
            thread.join()
