"""The Python of docs/clients.md runs as it stands there."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.support.live_server import LiveServer, serving_grpc

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
LIGHT = ("huggingface_hub", "tei_client", "openai", "tritonclient.http", "tritonclient.grpc")


def blocks(live: LiveServer, name: str) -> list[str]:
    """Return the page's Python that names a package, pointed at a server of the model `tiny`."""
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    places = {
        "127.0.0.1:8000": f"127.0.0.1:{live.port}",
        "127.0.0.1:8001": live.grpc_address,
        "sst2-minilm": "tiny",
    }
    pointed = []
    for block in found:
        if re.search(rf"^\s*(import|from) .*\b{re.escape(name)}\b", block, re.M):
            pointed.append(re.sub("|".join(places), lambda place: places[place[0]], block))
    return pointed


def check_lines(live: LiveServer, name: str, python: str) -> None:
    """Run the page's Python that names a package; each block prints an answer."""
    found = blocks(live, name)
    assert found, f"the page has no Python that imports {name}"
    for block in found:
        ran = subprocess.run([python, "-c", block], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert re.search(r"positive|negative|tiny|What a dull|sorry", ran.stdout), ran.stdout


def name_exact(live: LiveServer) -> None:
    """Give the tiny model the profile `exact`, which the shipped one has."""
    policy = live.http.get("/v1/models/tiny/policy").json()["policy"]
    policy["profiles"]["exact"] = {"rule": "never"}
    assert live.put_policy(policy).is_success


@pytest.fixture(scope="module")
def live(bundle_folder: Path) -> Iterator[LiveServer]:
    with serving_grpc(bundle_folder) as server:
        name_exact(server)
        yield server


@pytest.mark.nightly
@pytest.mark.parametrize("name", LIGHT)
def test_the_lines_of_each_client_work(live: LiveServer, name: str) -> None:
    check_lines(live, name, sys.executable)
