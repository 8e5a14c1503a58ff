import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from loadtest.bench.front.floor import running
from serve.config import ServerConfig
from serve.http.standalone import build_standalone_app


@pytest.fixture(scope="module")
def servers(bundle_folder: Path) -> Iterator[tuple[TestClient, TestClient]]:
    """Run the server and the floor for all tests."""
    config = ServerConfig(bundles=[str(bundle_folder)], precision="fp32")
    app = build_standalone_app(config)
    with (
        TestClient(app, base_url="http://127.0.0.1") as served,
        running(bundle_folder, "fp32") as floor,
    ):
        yield served, TestClient(floor)


@pytest.mark.parametrize("inputs", ["w1 w2 w3", ["w4", "w5 w6 w7 w8"]])
@pytest.mark.parametrize("exit", [{"rule": "never"}, "balanced", None])
def test_floor_gives_the_same_answer_as_the_server(
    servers: tuple[TestClient, TestClient], inputs: object, exit: object
) -> None:
    body = {"inputs": inputs} | ({"exit": exit} if exit else {})
    expected, found = (_comparable(each.post("/v1/classify", json=body).text) for each in servers)
    assert json.dumps(found) == json.dumps(expected)


def _comparable(answer: str) -> dict[str, Any]:
    """Read an answer, its numbers rounded and its times replaced by their names."""
    fields: dict[str, Any] = json.loads(answer, parse_float=lambda text: round(float(text), 4))
    return fields | {"timing": list(fields["timing"])}
