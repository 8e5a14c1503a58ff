"""The command of mode deployment on a real server with the chart's keys, and what talks to it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helm.chart import Object, Rendered, render
from tests.helm.test_scripts import syncing
from tests.serve.support.live_server import FULL_DEPTH, LiveServer, Problem, serving_bundles
from tests.serve.support.server_process import ServerProcess
from tests.support.patience import until

VALUES: dict[str, Any] = {
    "mode": "deployment",
    "bundles": {"names": ["tiny"]},
    "server": {"precision": "fp32", "activeExits": {"tiny": [1, 2, 4]}},
    "test": {"text": "w1 w2"},
}
POLICY = "/v1/models/tiny/policy"


def server_container(release: Rendered) -> Object:
    found: Object = release.pods()["server"]["spec"]["containers"][0]
    return found


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def release(bundle_folder: Path) -> Rendered:
    values = {**VALUES, "bundles": {**VALUES["bundles"], "path": str(bundle_folder.parent)}}
    return render(values)


@pytest.fixture(scope="module")
def process(release: Rendered, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Run the container's command with another port, and with the Secret's file elsewhere."""
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    file.write_text(release.keys["keys.json"])
    elsewhere = {"8000": "0", "/keys/keys.json": str(file)}
    offramp, serve, *words = server_container(release)["args"]
    assert (offramp, serve) == ("offramp", "serve")
    with ServerProcess(*(elsewhere.get(word, word) for word in words)) as process:
        yield process


@pytest.fixture
def server(process: ServerProcess) -> LiveServer:
    """Return a client without a key."""
    return process.client()


def test_command_serves_the_bundle_as_the_values_say(server: LiveServer, release: Rendered) -> None:
    key = bearer(release.keys["admin-key"])
    model = server.http.get("/v1/models/tiny", headers=key).json()
    assert model["precision"] == "fp32"
    assert [e["layer"] for e in model["exits"]] == [1, 2, 4]


def test_request_without_a_key_is_refused(server: LiveServer, release: Rendered) -> None:
    refused = server.refusal("w1 w2")
    assert (refused.status, refused.code) == (401, "unauthorized")
    for path in (POLICY, "/v1/models"):
        assert server.http.get(path).status_code == 401
    change = FULL_DEPTH
    assert server.http.put(POLICY, json=change).status_code == 401
    assert Problem.of(server.http.get("/v1/models", headers=bearer("offramp_x"))).status == 401

    key = bearer(release.keys["classify-key"])
    asked = {"json": {"inputs": "w1 w2"}, "headers": key}
    assert server.http.post("/v1/classify", **asked).status_code == 200
    assert server.http.put(POLICY, json=change, headers=key).status_code == 403


def test_probes_ask_for_paths_that_answer(server: LiveServer, release: Rendered) -> None:
    container = server_container(release)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert server.http.get(path).status_code == 200


def test_metric_that_pods_are_scaled_by_is_there(server: LiveServer) -> None:
    assert "\nofframp_queue_seconds{" in server.http.get("/metrics").text


def test_policies_are_sent_with_the_admin_key_even_after_it_has_changed(
    process: ServerProcess,
    release: Rendered,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server, folder, key = process.client(), tmp_path / "policies", tmp_path / "admin-key"
    folder.mkdir()
    (folder / "tiny.json").write_text(json.dumps({"default": {"rule": "layer", "layer": 2}}))
    monkeypatch.setenv("OFFRAMP_KEY_FILE", str(key))
    url, sent = f"http://127.0.0.1:{server.port}", {}
    key.write_text("offramp_of_before")
    assert not syncing.send_due(url, folder, sent)
    assert "tiny: trying again: HTTP Error 401" in capfd.readouterr().err
    key.write_text(release.keys["admin-key"])
    assert syncing.send_due(url, folder, sent)
    report = server.http.get(POLICY, headers=bearer(release.keys["admin-key"])).json()
    assert report["policy"]["default"] == {"rule": "layer", "layer": 2}
    # The log, JSON by default in the chart, says whose key it was.
    assert until(lambda: changes_of_policy(process)) == ["admin"]


def changes_of_policy(process: ServerProcess) -> list[str]:
    """Return who has changed the policy, as the log says."""
    lines = [json.loads(line) for line in process.output.splitlines() if line[:1] == "{"]
    return [line["key"] for line in lines if line["message"] == "policy changed"]


def helm_test(
    release: Rendered, server: LiveServer, key: str, body: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run what the pod of `helm test` runs."""
    code, _, rendered = release.pods()["classify"]["spec"]["containers"][0]["args"]
    assert json.loads(rendered) == {"model": "tiny", "inputs": "w1 w2"}
    url = f"http://127.0.0.1:{server.port}"
    return subprocess.run(
        [sys.executable, "-c", code, url, body or rendered],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OFFRAMP_KEY": key},
    )


def test_helm_test_asks_with_a_key_and_checks_that_it_is_needed(
    server: LiveServer, release: Rendered
) -> None:
    key = release.keys["classify-key"]
    done = helm_test(release, server, key)
    assert done.returncode == 0, done.stderr
    assert ", left at layer " in done.stdout
    assert done.stdout.endswith("without a key: refused\n")
    assert helm_test(release, server, "").returncode
    wrong = json.dumps({"model": "nope", "inputs": "w1"})
    assert helm_test(release, server, key, wrong).returncode


def test_helm_test_fails_where_no_key_is_needed(bundle_folder: Path, release: Rendered) -> None:
    with serving_bundles(bundle_folder) as open_server:
        done = helm_test(release, open_server, "offramp_any")
        assert (done.returncode, "answers a request without a key" in done.stderr) == (1, True)
        assert helm_test(release, open_server, "").returncode == 0
