from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.server_process import Ran, run_offramp

Offramp = Callable[..., Ran]


@pytest.fixture
def live(bundle_folder: Path) -> Iterator[LiveServer]:
    with serving_bundles(bundle_folder) as server:
        yield server


@pytest.fixture(scope="session")
def still(bundle_folder: Path) -> Iterator[str]:
    """Return the URL of a server that tests share; none may change its policy."""
    with serving_bundles(bundle_folder) as server:
        yield str(server.http.base_url)


@pytest.fixture
def offramp(monkeypatch: pytest.MonkeyPatch) -> Offramp:
    """Run `offramp` in this process, on a narrow terminal."""
    monkeypatch.delenv("OFFRAMP_KEY", raising=False)
    return partial(run_offramp, columns=40)


@pytest.fixture
def here(offramp: Offramp, live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Offramp:
    """Run `offramp` about a server of the test's own."""
    monkeypatch.setenv("OFFRAMP_URL", str(live.http.base_url))
    return offramp


def sending(body: str, content_type: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return an answer, 200, with a body."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", content_type)
        request.end_headers()
        request.wfile.write(body.encode())

    return answer


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Answer GET as a server might that is none of ours; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
