"""A proxy that writes down what a client sends, for tests that send it again without the client."""

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from serve.http.tls import TlsFiles

# Others tell of the machine or of the connection.
KEPT = ("accept", "content-type")
FOR_THE_KEY = (401, 403, 429)


class Recorder(ThreadingHTTPServer):
    """Passes requests on to a server.

    Attributes:
        address: where it is asked.
        requests: what came, with the status of its answer; each once, and none that was refused
            for its key, which is not written down.
    """

    def __init__(self, port: int, certificate: TlsFiles | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.cert, certificate.key)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        scheme = "https" if certificate else "http"
        self.address = f"{scheme}://127.0.0.1:{self.server_port}"
        self.target = port
        self.requests: list[dict[str, Any]] = []

    def record(self, request: dict[str, Any]) -> None:
        """Write down a request."""
        if request["status"] not in FOR_THE_KEY and request not in self.requests:
            self.requests.append(request)


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
        self.server.record(
            {
                "method": self.command,
                "path": self.path,
                "headers": {name: self.headers[name] for name in KEPT if name in self.headers},
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
def recording(port: int, certificate: TlsFiles | None) -> Iterator[Recorder]:
    """Record what comes for the server on this port while the block runs.

    Args:
        port: of the server.
        certificate: to be asked by TLS; None for plain HTTP.
    """
    with Recorder(port, certificate) as recorder:
        thread = threading.Thread(target=recorder.serve_forever)
        thread.start()
        try:
            yield recorder
        finally:
            recorder.shutdown()
            thread.join()
