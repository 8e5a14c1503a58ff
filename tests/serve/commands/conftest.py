import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

from serve.cli import main
from tests.serve.support.live_server import LiveServer, serving_bundles


class Ran(NamedTuple):
    """How a command has ended, and what it has printed."""

    status: int
    said: str
    error: str


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
def offramp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offramp:
    """Run `offramp` in this process."""

    def run(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["offramp", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capsys.readouterr())

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("OFFRAMP_KEY", raising=False)
    # Commands of other packages: each call of `main` would add them once more.
    monkeypatch.setattr("serve.cli.entry_points", lambda group: ())
    return run


@pytest.fixture
def here(offramp: Offramp, live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Offramp:
    """Run `offramp` about a server of the test's own."""
    monkeypatch.setenv("OFFRAMP_URL", str(live.http.base_url))
    return offramp


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
