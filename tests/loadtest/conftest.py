import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtest.http import console
from loadtest.http.server_process import ServerProcess, on_free_port
from tests.loadtest.fake_server import FakeServer

StartFake = Callable[..., FakeServer]
MakeChild = Callable[..., ServerProcess]

_FAKE = Path(__file__).with_name("fake_server.py")


@pytest.fixture(autouse=True)
def _signals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the test process's own signal handlers when a command runs in it."""
    monkeypatch.setattr(console, "interrupt_on_signals", lambda: None)


@pytest.fixture
def start_fake() -> Iterator[StartFake]:
    """Start fake servers, each in a thread, with the faults named."""
    with ExitStack() as stack:

        def start(*faults: str) -> FakeServer:
            server = stack.enter_context(FakeServer(faults=faults))
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            return server

        yield start


@pytest.fixture
def make_child() -> MakeChild:
    """Make fake servers that are child processes, not yet started, with the faults named."""

    def make(*faults: str) -> ServerProcess:
        return on_free_port(sys.executable, str(_FAKE), *faults)

    return make
