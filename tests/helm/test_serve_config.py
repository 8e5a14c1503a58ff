"""The rendered `serveConfigV2`, deployed to a real Ray Serve the way KubeRay deploys it."""

import logging
import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.ray_server import ENVIRONMENT, OBJECT_STORE_BYTES
from tests.helm.chart import Object, render
from tests.patience import until
from tests.serve.web.live_server import LiveServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports are not free of them
    import ray
    from ray import serve as ray_serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

pytestmark = pytest.mark.ray

Deploy = Callable[..., None]


@pytest.fixture(scope="module")
def configure(bundle_folder: Path) -> Callable[..., Object]:
    """Render the config over the tiny bundle."""

    def configure(*sets: str) -> Object:
        values: dict[str, Any] = {
            "replicas": 1,
            "bundles": {"names": ["tiny"], "path": str(bundle_folder.parent)},
            "server": {"precision": "fp32", "numThreads": 1, "maxInputs": 3},
            "ray": {"gracefulShutdownSeconds": 35, "logLevel": "WARNING", "logEncoding": "TEXT"},
            "policies": {"tiny": {"default": {"rule": "entropy", "threshold": 0}}},
        }
        return render(values, sets).serve_config

    return configure


@pytest.fixture(scope="module")
def server(configure: Callable[..., Object]) -> Iterator[LiveServer]:
    """Start Ray Serve as the config says, but for address and port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = configure()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        ray.init(
            address="local",
            num_cpus=1,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        try:
            ray_serve.start(
                proxy_location=config["proxy_location"],
                http_options={**config["http_options"], "host": "127.0.0.1", "port": port},
            )
            live = LiveServer(port)
            with live.http:
                yield live
        finally:
            ray_serve.shutdown()
            ray.shutdown()


@pytest.fixture(scope="module")
def deploy(server: LiveServer, configure: Callable[..., Object]) -> Deploy:
    """Deploy what the chart renders; KubeRay puts the same document to the head's dashboard."""

    def deploy(*sets: str) -> None:
        _get_global_client().deploy_apps(ServeDeploySchema(**configure(*sets)))
        until(_running, timeout_s=180, every_s=0.1)

    return deploy


def _running() -> bool:
    application = ray_serve.status().applications.get("offramp")
    assert application is None or application.status != "DEPLOY_FAILED", application.message
    if application is None or application.status != "RUNNING":
        return False
    return all(d.status == "HEALTHY" for d in application.deployments.values())


def details() -> Object:
    found: Object = _get_global_client().get_serve_details()["applications"]["offramp"]
    return found


def replica() -> Object:
    [found] = details()["deployments"]["Classifiers"]["replicas"]
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


def test_arguments_of_the_values_reach_the_server(server: LiveServer, deploy: Deploy) -> None:
    deploy()
    assert server.refusal(["w1"] * 4).code == "too_many_inputs"
    assert server.http.get("/v1/models/tiny").json()["precision"] == "fp32"
    config = details()["deployments"]["Classifiers"]["deployment_config"]
    assert config["graceful_shutdown_timeout_s"] == 35
    assert config["max_replicas_per_node"] == 1


def test_metrics_of_the_one_target_cover_the_replicas(server: LiveServer, deploy: Deploy) -> None:
    deploy()
    server.answer("w1")
    assert server.metric("offramp_replicas_scraped") == 1
    assert server.metric("offramp_queue_seconds") >= 0
