"""A Serve config that names `serve.app:build`, deployed as Helm does; one cluster for all tests."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from serve.bundle.loader import MANIFEST, Bundle, sha256_of
from serve.config import ServerConfig
from serve.errors import Unavailable
from serve.http.listener import take_shared_port
from serve.policy.document import Policy
from serve.policy.entry import VersionedPolicy
from serve.policy.live import LivePolicy
from serve.policy.store import KEPT_COUNTS, KEPT_VERSIONS
from tests.helm.chart import NoHelm, render
from tests.serve.support.declarative import (
    DeployFailed,
    deploy_document,
    details_of,
    serving,
    submit,
)
from tests.serve.support.ladders import served
from tests.serve.support.live_server import LiveServer, Problem, request_of
from tests.serve.support.server_process import asking
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.patience import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports are not free of them
    import ray
    from ray import serve as ray_serve
    from ray.experimental import internal_kv
    from ray.serve.context import _get_global_client
    from ray.serve.exceptions import RayServeException

    from serve.cluster.deployment import bind, build
    from serve.cluster.policy_store import NAMESPACE, RayStore

pytestmark = pytest.mark.ray

POLICY = "/v1/models/tiny/policy"

Deploy = Callable[..., None]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """Start Ray and Ray Serve in this process."""
    with serving() as live:
        yield live


def application(
    name: str, prefix: str, bundle: Path, deployment: dict[str, Any], **args: Any
) -> dict[str, Any]:
    """Return the part of a Serve config that is about a bundle's application."""
    known = {"bundles": [str(bundle)], "precision": "fp32", "no_auth": True}
    return {
        "name": name,
        "route_prefix": prefix,
        "import_path": "serve.app:build",
        "args": {**known, **args},
        "deployments": [{"name": "Classifiers", **deployment}],
    }


@pytest.fixture(scope="module")
def deploy(server: LiveServer, bundle_folder: Path) -> Deploy:
    """Deploy the app with a `user_config`, as `serve deploy` does."""

    def deploy(user_config: dict[str, Any], **args: Any) -> None:
        deployment = {
            "user_config": user_config,
            "graceful_shutdown_timeout_s": 2,
            "ray_actor_options": {"num_cpus": 0.5},
        }
        args = {"access_log": True, **args}
        declared = application("declared", "/", bundle_folder, deployment, **args)
        deploy_document({"applications": [declared]}, "declared")

    return deploy


AT_TWO = {"default": {"rule": "layer", "layer": 2}}


def leave_at(layer: int) -> dict[str, Any]:
    return {"policies": {"tiny": {"default": {"rule": "layer", "layer": layer}}}}


def layer_now(server: LiveServer) -> int:
    layer: int = server.answer("w1")["results"][0]["exit"]["layer"]
    return layer


def replica_pid() -> int | None:
    """Return the process id of the only replica that runs."""
    replicas = details_of("declared")["deployments"]["Classifiers"]["replicas"]
    running = [replica["pid"] for replica in replicas if replica["state"] == "RUNNING"]
    return running[0] if running else None


def log_lines() -> str:
    """Return what replicas of this cluster have logged."""
    here = ray.get_runtime_context()
    logs = Path(here.get_temp_dir(), here.get_session_name(), "logs", "serve")
    return "".join(path.read_text() for path in logs.glob("offramp_*.log"))


def test_policy_of_the_config_changes_in_place_and_a_wrong_one_changes_nothing(
    server: LiveServer, deploy: Deploy
) -> None:
    def report() -> dict[str, Any]:
        found: dict[str, Any] = server.http.get(POLICY).json()
        return found

    deploy(leave_at(1))
    assert layer_now(server) == 1
    assert (report()["version"], report()["source"]) == (1, "config")
    pid = replica_pid()

    deploy(leave_at(3))
    until(lambda: layer_now(server) == 3)
    assert replica_pid() == pid
    assert "config_problem" not in report()

    for wrong, complaint in (
        (leave_at(9), "policies.tiny: default: layer 9 has no exit"),
        ({"policies": {"tiny": {"default": "nope"}}}, "policies.tiny: no profile 'nope'"),
        (
            {"policies": {"tiny": {"default": {"target": {"max_ms": 1e-6}}}}},
            "policies.tiny: default.target: nothing here has max_ms 1e-06; the nearest is",
        ),
        ({"policies": {}, "colour": "red"}, "colour: unknown field"),
        ({"policies": []}, "policies: must be a JSON object"),
        ({"policies": {"tiny": {}}}, "policies.tiny: default is missing"),
        ({"policies": {"tinny": AT_TWO}}, "policies.tinny: no such model; served are tiny"),
        ({"policies": {"tiny": AT_TWO, "b": AT_TWO}}, "policies.b: no such model; served are tiny"),
    ):
        deploy(wrong)
        until(lambda complaint=complaint: complaint in log_lines())  # type: ignore[misc]
        until(lambda complaint=complaint: complaint in report().get("config_problem", ""))  # type: ignore[misc]
        assert server.metric("offramp_policy_config_refused") == 1
        assert (layer_now(server), report()["version"]) == (3, 2)
        assert replica_pid() == pid
        assert server.http.get("/health/ready").status_code == 200

    # Ray starts every further replica with the config that is refused.
    psutil.Process(pid).kill()
    until(lambda: replica_pid() not in (None, pid), every_s=0.2)
    until(lambda: "config_problem" in report())
    assert (layer_now(server), report()["version"]) == (3, 2)
    pid = replica_pid()

    deploy(leave_at(2))
    until(lambda: layer_now(server) == 2)
    assert replica_pid() == pid
    assert "config_problem" not in report()
    assert server.metric("offramp_policy_config_refused") == 0


def test_models_of_the_config_change_in_place_and_wrong_ones_change_nothing(
    server: LiveServer, deploy: Deploy, bundle_folder: Path, tmp_path: Path
) -> None:
    other = write_task_bundle(tmp_path, Kind("single_label"), "other")
    both = {"bundles": [str(bundle_folder), str(other)], "aliases": {"default": "other"}}

    def served() -> tuple[set[str], str]:
        listed = server.http.get("/v1/models").json()
        return {card["id"] for card in listed["data"]}, listed["aliases"].get("default", "")

    deploy({})
    assert served() == ({"tiny"}, "")
    pid = replica_pid()
    with asking(server) as outcomes:
        deploy(both)
        until(lambda: served() == ({"tiny", "other"}, "other"))
        loaded = server.http.post("/v1/models/more/load", json={"bundle": "tiny"})
        assert loaded.status_code == 200, loaded.text
        deploy({**both, "policies": {"other": AT_TWO}})  # of models it says what it said
        until(lambda: layer_now(server) == 2)
        assert served() == ({"tiny", "other", "more"}, "other")
        deploy({**both, "bundles": [str(tmp_path / "none")]})
        until(lambda: "none: no such folder" in log_lines())
        assert served() == ({"tiny", "other", "more"}, "other")
        deploy({})
        until(lambda: served() == ({"tiny"}, ""))
    assert replica_pid() == pid
    assert outcomes.keys() == {"200 application/json"}


def test_refused_config_of_a_first_deployment_is_the_deploy_s_own_message(
    server: LiveServer, bundle_folder: Path
) -> None:
    deployment = {
        "user_config": {"policies": {"tinny": AT_TWO}},
        "max_constructor_retry_count": 1,
        "ray_actor_options": {"num_cpus": 0.1},
    }
    document = application("refused", "/refused", bundle_folder, deployment)
    running = [*_get_global_client().get_serve_details()["applications"].values()]
    kept = [each["deployed_app_config"] for each in running if each["deployed_app_config"]]
    submit({"applications": [*kept, document]})
    said = "user_config: policies.tinny: no such model; served are tiny"

    def messages() -> list[str]:
        deployments = ray_serve.status().applications["refused"].deployments
        return [deployment.message for deployment in deployments.values()]

    until(lambda: any(said in message for message in messages()))
    submit({"applications": kept})
    until(lambda: "refused" not in ray_serve.status().applications)


def test_client_of_rays_proxy_does_not_choose_its_address(
    server: LiveServer, deploy: Deploy
) -> None:
    deploy(leave_at(1))
    headers = {"X-Forwarded-For": "203.0.113.5", "X-Request-Id": "forged"}
    body = {"inputs": "w1"}
    assert server.http.post("/v1/classify", json=body, headers=headers).status_code == 200
    lines = until(lambda: [line for line in log_lines().splitlines() if 'id="forged"' in line])
    assert 'client="127.0.0.1"' in lines[0]


@pytest.fixture
def store(server: LiveServer) -> RayStore:
    return RayStore("store-test")


def entry(version: int, layer: int = 1) -> VersionedPolicy:
    policy = Policy.model_validate({"default": {"rule": "layer", "layer": layer}})
    return VersionedPolicy(version=version, policy=policy, source="api", baseline="")


def test_store_takes_each_version_once_and_gives_the_later_ones(store: RayStore) -> None:
    assert store.policies("m") == (0, [])
    assert all(store.append("m", entry(version)) for version in range(1, 13))
    assert not store.append("m", entry(12, layer=2))
    assert store.policies("m", after=10) == (12, [entry(11), entry(12)])
    assert store.policies("m", after=12) == (12, [])
    for other in (RayStore("other-app"), store):
        assert (other.policies("m2"), other.counts("m2")) == ((0, []), {})
    assert RayStore("other-app").policies("m") == (0, [])


def test_store_drops_old_versions_and_keeps_the_newest_baseline(store: RayStore) -> None:
    for version in range(1, KEPT_VERSIONS + 5):
        baseline = {"action": "baseline"} if version in (1, 3) else {}
        store.append("old", entry(version).model_copy(update=baseline))
    kept = [each.version for each in store.policies("old").entries]
    assert kept == [3, *range(5, KEPT_VERSIONS + 5)]


def test_store_has_the_counts_of_each_replica_and_drops_the_oldest(store: RayStore) -> None:
    for number in range(KEPT_COUNTS):
        store.put_counts("m", f"r{number}", b"%d" % number)
    store.put_counts("m", "r0", b"{}")
    store.put_counts("m", "new", b"{}")
    counts = store.counts("m")
    assert len(counts) == KEPT_COUNTS
    assert (counts["r0"], counts["r2"], counts["new"]) == (b"{}", b"2", b"{}")
    assert "r1" not in counts


def test_store_takes_nothing_later_that_it_did_not_take_in_time(store: RayStore) -> None:
    assert store.append("late", entry(1))
    [head] = [p for p in psutil.Process().children() if "gcs_server" in p.name()]
    head.suspend()
    try:
        until(lambda: head.status() == psutil.STATUS_STOPPED)
        calls = (
            lambda: store.append("late", entry(2)),
            lambda: store.policies("late"),
            lambda: store._ask("put", b"policy/store-test/late/9", b"{}", False, b"offramp"),
        )
        for call in calls:
            with pytest.raises(Unavailable, match="the policy stays as it is"):
                call()
    finally:
        head.resume()
    until(lambda: store.append("after", entry(1)))
    assert store.policies("late").newest == 1


def test_entry_of_another_release_is_ignored(store: RayStore, bundle: Bundle) -> None:
    key = f"{store._prefix('tiny')}{7:010d}".encode()
    internal_kv._internal_kv_put(key, b'{"from": "the future"}', namespace=NAMESPACE)
    assert store.policies("tiny") == (7, [])
    live = LivePolicy("tiny", served(), store)
    live.set_baseline(bundle.manifest.policy, "bundle")
    assert live.current.version == 8
    assert live.change(Policy(), based_on=8).new.version == 9


def test_refusals_have_our_shape(server: LiveServer, deploy: Deploy) -> None:
    deploy({})
    wrong = {"policy": {"default": "nope"}, "version": None}
    for answer, status, code in (
        (server.classify(""), 422, "invalid_request"),
        (server.post("{"), 400, "malformed_body"),
        (server.post("{}", "text/plain"), 415, "unsupported_media_type"),
        (server.post(b" " * (2**21 + 1)), 413, "body_too_large"),
        (server.http.get("/nowhere"), 404, "not_found"),
        (server.http.get("/v1/models/nope"), 404, "unknown_model"),
        (server.http.get("/v1/classify"), 405, "method_not_allowed"),
        (server.http.put(POLICY, json=wrong), 422, "invalid_request"),
    ):
        assert Problem.of(answer)[:2] == (status, code)
    for path in ("/docs", "/openapi.json", "/health/live", "/health/ready", "/v1/models"):
        assert server.http.get(path).status_code == 200
        head = server.http.head(path)
        assert (head.status_code, head.content) == (200, b"")


def test_answers_through_a_proxy_have_one_request_id_and_name_their_replica(
    server: LiveServer, deploy: Deploy, bundle_folder: Path
) -> None:
    deploy({})
    [replica] = details_of("declared")["deployments"]["Classifiers"]["replicas"]
    for answer in (
        server.classify("w1"),
        server.http.get("/v1/models/tiny", headers={"X-Request-Id": "mine"}),
        server.http.get("/nowhere", headers={"X-Request-Id": "mine"}),
        server.http.post("/v1/classify", content="{", headers={"X-Request-Id": "mine"}),
    ):
        [request_id] = answer.headers.get_list("x-request-id")
        assert request_id == answer.request.headers.get("x-request-id", request_id)
        assert answer.headers.get_list("x-offramp-replica") == [replica["replica_id"]]
    bundle = sha256_of(bundle_folder / MANIFEST)[:12]
    assert server.classify("w1").headers["x-offramp-bundle"] == bundle
    node = replica["node_ip"]
    assert node
    assert server.metric("offramp_model_info", node=node, bundle=bundle) == 1


def test_damaged_bundle_is_refused_before_a_replica_is_touched(
    server: LiveServer, deploy: Deploy, bundle_copy: Callable[..., Path]
) -> None:
    deploy({})
    replica, folder = server.classify("w1").headers["x-offramp-replica"], bundle_copy("damaged")
    (folder / "tokenizer.json").write_text("{}")
    for args, said in (
        ({"bundles": [str(folder)]}, f"{folder}: tokenizer.json is damaged"),
        ({"bundles": [f"{folder}-not-there"]}, "not-there: no such folder"),
        ({"precision": "fp16"}, "bundle tiny has no fp16 variant"),
        ({"active_exits": {"tiny": [1]}}, "the last layer"),
        ({"dialects": ["esperanto"]}, "dialects: there is no 'esperanto'"),
        ({"keys": "/not/there"}, "/not/there"),
        ({"bundle_sha256": {"tiny": "0" * 64}}, "holds another bundle"),
    ):
        with pytest.raises(DeployFailed, match=r"nothing is deployed: on node [\d.]+: ") as failed:
            deploy({}, **args)
        assert said in str(failed.value)
        assert "Traceback" not in str(failed.value)
        answer = server.classify("w1")
        assert answer.status_code == 200
        assert answer.headers["x-offramp-replica"] == replica
    deploy({})


def test_rows_of_a_client_that_leaves_are_dropped(server: LiveServer, deploy: Deploy) -> None:
    deploy({})
    before = server.metric("offramp_client_disconnects_total")
    answered = server.metric("offramp_requests_total", route="/v1/classify", code="200")
    request = request_of(b'{"inputs": [' + b",".join([b'"' + b"w1 " * 60 + b'"'] * 256) + b"]}")

    def all_answered(count: int) -> bool:
        now = server.metric("offramp_requests_total", route="/v1/classify", code="200")
        return now >= answered + count

    def noticed() -> bool:
        # Several at once, so that some are still in the queue when all leave.
        with contextlib.ExitStack() as clients:
            for _ in range(6):
                clients.enter_context(server.half_sent(request))
            until(lambda: server.metric("offramp_queue_depth") or all_answered(6))
        return server.metric("offramp_client_disconnects_total") > before

    until(noticed)
    until(lambda: server.metric("offramp_queue_depth") == 0)
    server.answer("w1")


def test_replica_that_listens_itself_answers_what_it_accepted_before_it_ends(
    server: LiveServer, bundle_folder: Path
) -> None:
    request = request_of(b'{"inputs": "w1"}')
    config = ServerConfig(bundles=[str(bundle_folder)], precision="fp32")
    options = {"graceful_shutdown_timeout_s": 60, "ray_actor_options": {"num_cpus": 0.1}}
    with take_shared_port("127.0.0.1", 0) as address:
        live = LiveServer(address.getsockname()[1])
        app = bind(config, address.getsockname(), **options)
        ray_serve.run(app, name="listening", route_prefix="/listening")
        with (
            live.http,
            live.half_sent(b"") as idle,
            live.half_sent(request[:-5]) as unfinished,
        ):
            assert live.answer("w1")["model"] == "tiny"
            ray_serve.delete("listening", _blocking=False)
            assert idle.recv(1) == b""
            unfinished.sendall(request[-5:])
            assert unfinished.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"
        until(lambda: "listening" not in ray_serve.status().applications)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({}, "`no_auth: true`"),
        ({"no_auth": True, "grpc_port": 8001}, "grpc_port"),
        ({"no_auth": True, "tls_cert": Path("cert.pem")}, "tls_cert"),
        ({"no_auth": True, "state": Path("state")}, "state"),
    ],
)
def test_what_proxies_do_not_have_is_refused(
    bundle_folder: Path, args: dict[str, Any], named: str
) -> None:
    with pytest.raises(RayServeException) as refused:
        build(ServerConfig(bundles=[str(bundle_folder)], **args))
    assert named in str(refused.value)


@pytest.fixture
def rendered(bundle_folder: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Render the chart's `serveConfigV2` over the tiny bundle, with keys on this machine."""
    try:
        keys = render().keys
    except NoHelm as reason:
        pytest.skip(str(reason))
    for name, content in keys.items():
        (tmp_path / name).write_text(content)

    def config(*sets: str) -> dict[str, Any]:
        values: dict[str, Any] = {
            "replicas": 1,
            "bundles": {"names": ["tiny"], "path": str(bundle_folder.parent)},
            "server": {"precision": "fp32", "numThreads": 1, "maxInputs": 3},
            "ray": {"gracefulShutdownSeconds": 35, "logLevel": "WARNING", "logEncoding": "TEXT"},
            "policies": {"tiny": {"default": {"rule": "entropy", "threshold": 0}}},
        }
        document = render(values, sets).serve_config
        document["applications"][0]["args"]["keys"] = str(tmp_path / "keys.json")
        return {"applications": document["applications"]}

    return config


def test_what_the_chart_renders_is_served_and_a_threshold_changes_in_place(
    server: LiveServer, rendered: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    def replica() -> tuple[int, str]:
        [found] = details_of("offramp")["deployments"]["Classifiers"]["replicas"]
        return found["pid"], found["actor_id"]

    deploy_document(rendered(), "offramp")
    for path, status in (("/health/ready", 200), ("/metrics", 200), ("/v1/models", 401)):
        assert server.http.get(path).status_code == status
    assert server.refusal("w1").status == 401
    keyed = LiveServer(server.port)
    keyed.http.headers["Authorization"] = f"Bearer {(tmp_path / 'admin-key').read_text()}"
    with keyed.http:
        assert layer_now(keyed) == 4  # threshold 0 never leaves early
        assert keyed.http.get(POLICY).json()["source"] == "config"
        before = replica()
        deploy_document(rendered("policies.tiny.default.threshold=1.05"), "offramp")
        until(lambda: layer_now(keyed) == 1)  # close to ln 3: leaves at once
        assert replica() == before
        assert keyed.refusal(["w1"] * 4).code == "too_many_inputs"
        assert keyed.http.get("/v1/models/tiny").json()["precision"] == "fp32"
        assert keyed.metric("offramp_replicas_scraped") == 1
    options = details_of("offramp")["deployments"]["Classifiers"]["deployment_config"]
    assert options["graceful_shutdown_timeout_s"] == 35
    assert options["max_replicas_per_node"] == 1
