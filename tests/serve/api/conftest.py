from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from serve.config import ServerConfig
from serve.http.standalone import build_standalone_app
from serve.metrics.connections import ConnectionState
from tests.serve.support.live_server import LiveServer, listening

StartServer = Callable[..., LiveServer]


@pytest.fixture(scope="session")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    """Return a server that all tests share; none may change its policy."""
    with ExitStack() as stack:
        yield _start(stack, bundle_folder)


@pytest.fixture
def start_server(bundle_folder: Path) -> Iterator[StartServer]:
    """Start servers of the test's own, with the bundles and `ServerConfig` fields given."""
    with ExitStack() as stack:

        def start(*folders: Path, **config: Any) -> LiveServer:
            return _start(stack, *(folders or (bundle_folder,)), **config)

        yield start


def _start(stack: ExitStack, *folders: Path, **config: Any) -> LiveServer:
    fields = {"precision": "fp32", "num_threads": 1, **config}
    wanted = ServerConfig(bundles=[str(folder) for folder in folders], **fields)
    limits, active = wanted.web_limits, wanted.active_exits
    state = ConnectionState()
    app = build_standalone_app(wanted.bundles, wanted.engine_options, limits, active, state)
    return stack.enter_context(listening(app, wanted.connections, state))
