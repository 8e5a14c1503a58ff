"""The command of mode deployment on a real server, and the request of `helm test`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helm.chart import Object, Rendered, render
from tests.serve.support.server_process import ServerProcess

VALUES: dict[str, Any] = {
    "mode": "deployment",
    "bundles": {"names": ["tiny"]},
    "server": {"precision": "fp32", "activeExits": {"tiny": [1, 2, 4]}},
    "test": {"text": "w1 w2"},
}


def server_container(release: Rendered) -> Object:
    found: Object = release.pods()["server"]["spec"]["containers"][0]
    return found


@pytest.fixture(scope="module")
def release(bundle_folder: Path) -> Rendered:
    values = {**VALUES, "bundles": {**VALUES["bundles"], "path": str(bundle_folder.parent)}}
    return render(values)


@pytest.fixture(scope="module")
def process(release: Rendered) -> Iterator[ServerProcess]:
    """Run the container's command with another address and port."""
    command = server_container(release)["args"]
    assert command[:2] == ["offramp", "serve"]
    host, port = command.index("0.0.0.0"), command.index("--port") + 1
    command[host], command[port] = "127.0.0.1", "0"
    with ServerProcess(*command[2:]) as process:
        yield process


def test_command_serves_the_bundle_as_the_values_say(process: ServerProcess) -> None:
    server = process.client()
    model = server.http.get("/v1/models/tiny").json()
    assert model["precision"] == "fp32"
    assert [e["layer"] for e in model["exits"]] == [1, 2, 4]


def test_probes_ask_for_paths_that_answer(process: ServerProcess, release: Rendered) -> None:
    container = server_container(release)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert process.client().http.get(path).status_code == 200


def test_metric_that_pods_are_scaled_by_is_there(process: ServerProcess) -> None:
    assert "\nofframp_queue_seconds{" in process.client().http.get("/metrics").text


def test_helm_test_asks_for_one_classification(process: ServerProcess, release: Rendered) -> None:
    container = release.pods()["classify"]["spec"]["containers"][0]
    code, _, body = container["args"]
    assert json.loads(body) == {"model": "tiny", "inputs": "w1 w2"}
    url = f"http://127.0.0.1:{process.client().port}"
    command = [sys.executable, "-c", code, url]
    done = subprocess.run([*command, body], capture_output=True, text=True, check=True)
    assert ", left at layer " in done.stdout
    wrong = json.dumps({"model": "nope", "inputs": "w1"})
    assert subprocess.run([*command, wrong], capture_output=True, check=False).returncode
