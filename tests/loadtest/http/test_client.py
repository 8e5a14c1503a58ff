from pathlib import Path

import pytest

from loadtest.http.client import ApiError, Client
from loadtest.http.server_process import HOST, free_port
from serve.access.keys import Key, new_key
from tests.loadtest.conftest import StartFake
from tests.serve.support.live_server import serving_bundles


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("refuses everything", "POST /v1/classify: 422 at most one text"),
        ("speaks nonsense", "no JSON"),
        ("hangs up", "/v1/classify"),
    ],
)
def test_failure_is_an_api_error(start_fake: StartFake, fault: str, complaint: str) -> None:
    with pytest.raises(ApiError, match=complaint):
        Client(start_fake(fault).url).classify("text")


def test_server_that_is_not_there_is_an_api_error() -> None:
    client = Client(f"http://{HOST}:{free_port()}")
    assert not client.ready()
    with pytest.raises(ApiError, match="refused"):
        client.metrics()


def test_key_of_the_environment_is_sent(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys.json"
    secret = new_key(Key(name="load", sha256="0" * 64, scopes=("admin",)), keys)
    with serving_bundles(bundle_folder, keys=keys) as server:
        client = Client(f"http://{HOST}:{server.port}")
        with pytest.raises(ApiError, match="401 a key with scope `classify` is needed"):
            client.classify("w1")
        monkeypatch.setenv("OFFRAMP_KEY", secret)
        assert client.classify("w1")["results"]
