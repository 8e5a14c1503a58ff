from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.serve.support.live_server import LiveServer, serving_bundles

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
    return stack.enter_context(serving_bundles(*folders, **config))
