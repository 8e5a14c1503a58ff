"""The declarative way: a Serve config that names `serve.app:build`, as Helm deploys it.

At the end, how Ray Serve's proxy is closed in front of what was deployed: one cluster for all.
"""

import json
import logging
import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.bundle import Bundle
from serve.control import LivePolicy, VersionedPolicy
from serve.policy import Policy
from serve.ray_proxy import close_proxy
from tests.patience import until
from tests.serve.declarative import deploy_document, details_of, serving
from tests.serve.web.live_server import LiveServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports are not free of them
    from ray._private import worker
    from ray.experimental import internal_kv

    from serve.ray_store import KEPT_VERSIONS, NAMESPACE, RayStore

pytestmark = pytest.mark.ray

Deploy = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """Start Ray and Ray Serve in this process."""
    with serving() as live:
        yield live


@pytest.fixture(scope="module")
def deploy(server: LiveServer, bundle_folder: Path) -> Deploy:
    """Deploy the app with a `user_config`, as `serve deploy` does."""

    def deploy(user_config: dict[str, Any]) -> None:
        config = {
            "applications": [
                {
                    "name": "declared",
                    "route_prefix": "/",
                    "import_path": "serve.app:build",
                    "args": {"bundles": [str(bundle_folder)], "precision": "fp32"},
                    "deployments": [
                        {
                            "name": "Classifiers",
                            "user_config": user_config,
                            "graceful_shutdown_timeout_s": 2,
                            "ray_actor_options": {"num_cpus": 0.5},
                        }
                    ],
                }
            ]
        }
        deploy_document(config, "declared")

    return deploy


def leave_at(layer: int) -> dict[str, Any]:
    return {"policies": {"tiny": {"default": {"rule": "layer", "layer": layer}}}}


def layer_now(server: LiveServer) -> int:
    layer: int = server.answer("w1")["results"][0]["exit"]["layer"]
    return layer


def replica_pid() -> int:
    """Return the process id of the only replica."""
    details = details_of("declared")
    [replica] = details["deployments"]["Classifiers"]["replicas"]
    pid: int = replica["pid"]
    return pid


def log_of(pid: int) -> str:
    """Return what a process of the cluster has written to stderr."""
    logs = Path(worker._global_node.get_session_dir_path()) / "logs"
    return "".join(path.read_text() for path in logs.glob(f"worker-*-{pid}.err"))


def test_policy_of_the_config_changes_in_place_and_a_wrong_one_changes_nothing(
    server: LiveServer, deploy: Deploy
) -> None:
    deploy(leave_at(1))
    assert layer_now(server) == 1
    report = server.http.get("/v1/models/tiny/policy").json()
    assert (report["version"], report["source"]) == (1, "config")
    pid = replica_pid()

    deploy(leave_at(3))
    until(lambda: layer_now(server) == 3)
    assert replica_pid() == pid

    for wrong, complaint in (
        (leave_at(9), "policies.tiny: default: layer 9 has no exit"),
        ({"policies": {"tiny": {"default": "nope"}}}, "policies.tiny: no profile 'nope'"),
        ({"policies": {}, "colour": "red"}, "colour: unknown field"),
        ({"policies": []}, "policies: must be a JSON object"),
    ):
        deploy(wrong)
        until(lambda complaint=complaint: complaint in log_of(pid))  # type: ignore[misc]
        assert layer_now(server) == 3
        assert replica_pid() == pid
        assert server.http.get("/health/ready").status_code == 200

    deploy(leave_at(2))
    until(lambda: layer_now(server) == 2)
    assert replica_pid() == pid


@pytest.fixture
def store(server: LiveServer) -> RayStore:
    return RayStore("store-test")


def entry(version: int, layer: int = 1) -> VersionedPolicy:
    policy = Policy.model_validate({"default": {"rule": "layer", "layer": layer}})
    return VersionedPolicy(version=version, policy=policy, source="api", baseline="")


def test_store_takes_each_version_once_and_gives_the_newest(store: RayStore) -> None:
    assert (store.latest("m"), store.newest_version("m")) == (None, 0)
    assert all(store.append("m", entry(version)) for version in range(1, 13))
    assert not store.append("m", entry(12, layer=2))
    assert store.latest("m") == entry(12)
    assert store.newest_version("m") == 12
    assert RayStore("other-app").latest("m") is None
    assert store.latest("m2") is None


def test_store_forgets_what_is_old(store: RayStore) -> None:
    for version in range(1, KEPT_VERSIONS + 3):
        store.append("old", entry(version))
    assert len(store._keys("old")) == KEPT_VERSIONS
    assert store.newest_version("old") == KEPT_VERSIONS + 2


def test_entry_of_another_release_is_passed_over(store: RayStore, bundle: Bundle) -> None:
    key = f"{store._prefix('tiny')}{7:010d}".encode()
    internal_kv._internal_kv_put(key, b'{"from": "the future"}', namespace=NAMESPACE)
    assert store.latest("tiny") is None
    live = LivePolicy("tiny", bundle.manifest, store)
    live.set_baseline(bundle.manifest.policy, "bundle")
    assert live.current.version == 8
    assert live.replace(Policy(), based_on=8).version == 9


def test_door_is_closed_first_and_what_was_taken_in_is_answered(
    server: LiveServer, deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    # The last one: it closes the proxy that all tests above share.
    deploy(leave_at(1))
    content = json.dumps({"inputs": "w1"}).encode()
    head = (
        "POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    caplog.set_level(logging.WARNING)
    with server.half_sent(head.encode() + content[:5]) as unfinished:
        server.answer("w1")
        close_proxy(drain_s=0.2)
        assert caplog.messages == ["stopped with requests unanswered"]
        until(lambda: _refuses(server.port))
        unfinished.sendall(content[5:])
        caplog.clear()
        close_proxy(drain_s=60.0)
        assert not caplog.messages
        assert unfinished.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


def _refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
