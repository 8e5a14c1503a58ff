from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

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
