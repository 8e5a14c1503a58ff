"""The rendered `serveConfigV2`, deployed to a real Ray Serve the way KubeRay deploys it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helm.chart import Object, render
from tests.serve.support.declarative import deploy_document, details_of, serving
from tests.serve.support.live_server import LiveServer
from tests.support.patience import until

pytestmark = pytest.mark.ray

Deploy = Callable[..., None]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the Secret of one rendering into a folder."""
    folder = tmp_path_factory.mktemp("keys")
    for name, content in render().keys.items():
        (folder / name).write_text(content)
    return folder


@pytest.fixture(scope="module")
def configure(bundle_folder: Path, keys: Path) -> Callable[..., Object]:
    """Render the config over the tiny bundle, with keys from a folder of this machine."""

    def configure(*sets: str) -> Object:
        values: dict[str, Any] = {
            "replicas": 1,
            "bundles": {"names": ["tiny"], "path": str(bundle_folder.parent)},
            "server": {"precision": "fp32", "numThreads": 1, "maxInputs": 3},
            "ray": {"gracefulShutdownSeconds": 35, "logLevel": "WARNING", "logEncoding": "TEXT"},
            "policies": {"tiny": {"default": {"rule": "entropy", "threshold": 0}}},
        }
        config = render(values, sets).serve_config
        [application] = config["applications"]
        assert application["args"]["keys"] == "/keys/keys.json"
        application["args"]["keys"] = str(keys / "keys.json")
        return config

    return configure


@pytest.fixture(scope="module")
def server(configure: Callable[..., Object], keys: Path) -> Iterator[LiveServer]:
    """Start Ray Serve as the config says, with another address and port; send the admin key."""
    config = configure()
    with serving(config["proxy_location"], config["http_options"]) as live:
        live.http.headers["Authorization"] = f"Bearer {(keys / 'admin-key').read_text()}"
        yield live


@pytest.fixture(scope="module")
def deploy(server: LiveServer, configure: Callable[..., Object]) -> Deploy:
    """Deploy what the chart renders; KubeRay puts the same document to the head's dashboard."""

    def deploy(*sets: str) -> None:
        deploy_document(configure(*sets), "offramp")

    return deploy


def replica() -> Object:
    [found] = details_of("offramp")["deployments"]["Classifiers"]["replicas"]
    return dict(found)


def exit_layer(server: LiveServer) -> int:
    layer: int = server.answer("w1 w2 w3")["results"][0]["exit"]["layer"]
    return layer


def test_rendered_config_serves_and_a_new_threshold_applies_in_place(
    server: LiveServer, deploy: Deploy
) -> None:
    deploy()
    assert exit_layer(server) == 4  # threshold 0 never leaves early
    report = server.http.get("/v1/models/tiny/policy").json()
    assert report["source"] == "config"
    assert report["policy"]["default"] == {"rule": "entropy", "threshold": 0.0}
    pid, actor = replica()["pid"], replica()["actor_id"]

    deploy("policies.tiny.default.threshold=1.05")  # close to ln 3: leaves at once
    until(lambda: exit_layer(server) == 1)
    assert (replica()["pid"], replica()["actor_id"]) == (pid, actor)

    deploy(
        "policies.tiny.default.rule=layer",
        "policies.tiny.default.threshold=null",
        "policies.tiny.default.layer=3",
    )
    until(lambda: exit_layer(server) == 3)
    assert (replica()["pid"], replica()["actor_id"]) == (pid, actor)
    assert server.http.get("/v1/models/tiny/policy").json()["version"] == 3


def test_request_without_a_key_is_refused(server: LiveServer, deploy: Deploy) -> None:
    deploy()
    for path in ("/v1/models", "/v1/models/tiny/policy"):
        assert server.http.get(path).status_code == 200
        assert server.http.get(path, headers={"Authorization": ""}).status_code == 401
    refused = server.http.post("/v1/classify", json={"inputs": "w1"}, headers={"Authorization": ""})
    assert refused.status_code == 401
    for path in ("/health/ready", "/metrics"):
        assert server.http.get(path, headers={"Authorization": ""}).status_code == 200


def test_arguments_of_the_values_reach_the_server(server: LiveServer, deploy: Deploy) -> None:
    deploy()
    assert server.refusal(["w1"] * 4).code == "too_many_inputs"
    assert server.http.get("/v1/models/tiny").json()["precision"] == "fp32"
    config = details_of("offramp")["deployments"]["Classifiers"]["deployment_config"]
    assert config["graceful_shutdown_timeout_s"] == 35
    assert config["max_replicas_per_node"] == 1


def test_metrics_of_the_one_target_cover_the_replicas(server: LiveServer, deploy: Deploy) -> None:
    deploy()
    server.answer("w1")
    assert server.metric("offramp_replicas_scraped") == 1
    assert server.metric("offramp_queue_seconds") >= 0
