import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from loadtest.bench.front.floor import running
from serve.bundle.loader import Bundle
from serve.config import ServerConfig
from serve.http.standalone import build_standalone_app


@pytest.mark.parametrize("inputs", ["w1 w2 w3", ["w4", "w5 w6 w7 w8"]])
@pytest.mark.parametrize("exit", [{"rule": "never"}, "balanced", None])
def test_floor_gives_the_same_answer_as_the_server(
    bundle: Bundle, inputs: object, exit: object
) -> None:
    body = {"inputs": inputs} | ({"exit": exit} if exit else {})
    config = ServerConfig(bundles=[str(bundle.folder)], precision="fp32")
    with TestClient(build_standalone_app(config), base_url="http://127.0.0.1") as served:
        expected = served.post("/v1/classify", json=body).text
    with running(bundle.folder, "fp32") as floor:
        found = TestClient(floor).post("/v1/classify", json=body).text
    assert json.dumps(_comparable(found)) == json.dumps(_comparable(expected))


def _comparable(answer: str) -> dict[str, Any]:
    """Read an answer, its numbers rounded and its times replaced by their names."""
    fields: dict[str, Any] = json.loads(answer, parse_float=lambda text: round(float(text), 4))
    return fields | {"timing": list(fields["timing"])}
