from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.task_bundles import LABELS, Kind, write_task_bundle

StartServer = Callable[..., LiveServer]


@pytest.fixture(scope="session")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    """Return a server that all tests share; none may change its policy."""
    with serving_bundles(bundle_folder) as live:
        yield live


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Return a server with a model of every task; none may change its policies."""
    folder = tmp_path_factory.mktemp("tasks")
    with serving_bundles(*(write_task_bundle(folder, Kind(task)) for task in LABELS)) as live:
        yield live


@pytest.fixture
def start_server(bundle_folder: Path) -> Iterator[StartServer]:
    """Start servers of the test's own, with the bundles and `ServerConfig` fields given."""
    with ExitStack() as stack:

        def start(*folders: Path, **config: Any) -> LiveServer:
            return stack.enter_context(serving_bundles(*(folders or (bundle_folder,)), **config))

        yield start
