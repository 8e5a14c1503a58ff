"""`offramp serve` on Ray Serve with two replicas: one server for all tests, a real process."""

import json
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import InferenceServerClient, service_pb2_grpc

from serve.bundle.loader import MANIFEST, sha256_of
from serve.http.settings import DRAIN_S
from tests.serve.http.grpc.conftest import asked, grpc_address, texts
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.live_server import FULL_DEPTH, LiveServer, Problem
from tests.serve.support.server_process import (
    START_S,
    ServerProcess,
    asking,
    requests_in_flight,
    run_offramp_alone,
)
from tests.support.patience import until
from tests.support.tiny import DEPTH

pytestmark = pytest.mark.ray

POLICY = "/v1/models/tiny/policy"
INFER = "/inference.GRPCInferenceService/ModelInfer"
ROLLOUT = f"{POLICY}/rollout"
BOUNDED: dict[str, Any] = {
    "policy": {"default": {"rule": "never"}}, "steps": [50], "hold_s": 3600,
    "bounds": {"layers": 2},
}  # fmt: skip
CLIENTS = [f"client {number}" for number in range(16)]


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    # pytest's own would make paths that are too long for sockets.
    with TemporaryDirectory(prefix="ray-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def bundle(bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle that tests may change."""
    return Path(shutil.copytree(bundle_folder, tmp_path_factory.mktemp("changed") / "tiny"))


@pytest.fixture(scope="module")
def process(bundle: Path, temporary: Path) -> Iterator[ServerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(temporary))
        # What a caller's environment may have from the work with other clusters.
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_AUTH_TOKEN", "known to many")
        bounds = ("--limits", '{"connections": {"max_head_bytes": 5000}}')
        ports = ("--port", "0", "--grpc-port", "0")
        with ServerProcess(bundle, "--replicas", "2", *ports, *bounds) as process:
            yield process


@pytest.fixture(scope="module")
def server(process: ServerProcess) -> LiveServer:
    return process.client()


def by_replica(server: LiveServer, name: str, **labels: str) -> dict[str, float]:
    """Return the sum per replica of a metric's samples that bear these labels."""
    sums: Counter[str] = Counter()
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                sums[sample.labels["replica"]] += sample.value  # type: ignore[assignment]
    return dict(sums)


def change_policy(server: LiveServer, layer: int) -> dict[str, Any]:
    response = server.put_policy({"default": {"rule": "layer", "layer": layer}})
    assert response.status_code == 200, response.text
    change: dict[str, Any] = response.json()
    return change


def test_both_replicas_answer_and_their_metrics_add_up(server: LiveServer) -> None:
    before = by_replica(server, "offramp_exits_total")
    num_asked = 0

    def more_by_both() -> bool:
        nonlocal num_asked
        fresh = LiveServer(server.port)  # a kept connection stays with its replica
        with fresh.http, ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(fresh.answer, [["w1", "w2 w3"]] * 16))
        num_asked += sum(len(answer["results"]) for answer in answers)
        after = by_replica(server, "offramp_exits_total")
        return len(after) == 2 and all(n > before.get(r, 0) for r, n in after.items())

    until(more_by_both)
    counted = server.metric("offramp_exits_total") - sum(before.values())
    assert counted == num_asked
    assert server.metric("offramp_exit_layer_count") == server.metric("offramp_exits_total")
    assert server.metric("offramp_replicas_scraped") == 2
    assert server.metric("offramp_replicas_unreachable") == 0
    assert server.metric("offramp_engine_up") == 2


def test_replicas_listen_themselves_with_the_bounds_that_were_given(
    server: LiveServer, process: ServerProcess
) -> None:
    assert len(process.replicas()) == 2
    assert not process.family.titled("Proxy")
    answer = server.http.get("/health/live", headers={"X": "x" * 6000})
    assert Problem.of(answer)[:2] == (431, "head_too_large")


def infer(process: ServerProcess) -> None:
    """Ask by gRPC, on a connection of its own: one stays with its replica."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    with InferenceServerClient(grpc_address(process), channel_args=own) as client:
        client.infer("tiny", [texts(["w1", "w2 w3"])])


def test_both_replicas_answer_grpc_on_one_port(server: LiveServer, process: ServerProcess) -> None:
    def both_have_answered() -> bool:
        infer(process)
        answered = by_replica(server, "offramp_requests_total", route=INFER)
        return sum(number > 0 for number in answered.values()) == 2

    until(both_have_answered)


def status_of(port: int, method: str) -> grpc.StatusCode:
    """Call a method of Ray's with a token of the caller's; return the refusal."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(method)
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", metadata=[("authorization", "Bearer known to many")], timeout=60)
    status: grpc.StatusCode = caught.value.code()
    return status


def test_beyond_loopback_each_replica_has_one_port_and_ray_is_closed_to_others(
    server: LiveServer, process: ServerProcess, temporary: Path
) -> None:
    listening = [
        (owner, ip_address(c.laddr.ip.removeprefix("::ffff:")), c.laddr.port)
        for owner in process.left()
        for c in owner.net_connections("tcp")
        if c.status == "LISTEN"
    ]
    beyond = {owner: port for owner, ip, port in listening if not ip.is_loopback}
    assert beyond.keys() == process.replicas()
    assert sum(not ip.is_loopback for _, ip, _ in listening) == 2
    for port in beyond.values():
        refused = status_of(port, "/ray.serve.ASGIService/HandleRequest")
        assert refused is grpc.StatusCode.UNAUTHENTICATED
    [store] = process.family.titled("gcs_server")
    [store_port] = [port for owner, _, port in listening if owner == store]
    refused = status_of(store_port, "/ray.rpc.InternalKVGcsService/InternalKVKeys")
    assert refused is grpc.StatusCode.UNAUTHENTICATED
    [folder] = temporary.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "token").stat().st_mode & 0o777 == 0o600


def test_new_policy_applies_to_the_next_request_in_every_replica(
    server: LiveServer, process: ServerProcess
) -> None:
    replicas = process.replicas()
    assert len(replicas) == 2
    names = set(by_replica(server, "offramp_policy_version"))
    for layer in (1, 3, 2):
        change = change_policy(server, layer)
        assert {ack["replica"] for ack in change["replicas"]} == names
        assert {ack["version"] for ack in change["replicas"]} == {change["version"]}
        assert change["unconfirmed"] == 0
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(server.answer, ["w1"] * 32))
        assert {a["policy_version"] for a in answers} == {change["version"]}
        assert {a["results"][0]["exit"]["layer"] for a in answers} == {layer}
        versions = by_replica(server, "offramp_policy_version")
        assert versions == dict.fromkeys(names, change["version"])
    assert process.replicas() == replicas


def test_of_two_changes_of_one_version_the_second_is_a_conflict(server: LiveServer) -> None:
    version = server.http.get(POLICY).json()["version"]
    body = {**FULL_DEPTH, "version": version}
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda _: server.http.put(POLICY, json=body).status_code, range(8)))
    assert Counter(codes) == {200: 1, 409: 7}


def still_answers(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(15) == b"HTTP/1.1 200 OK"
    except ConnectionError:
        return False


def test_killed_replica_takes_only_its_connections_and_comes_back_with_the_live_policy(
    server: LiveServer, process: ServerProcess
) -> None:
    change = change_policy(server, 3)
    names = set(by_replica(server, "offramp_policy_version"))
    replicas = process.replicas()
    with ExitStack() as stack:
        connections = [stack.enter_context(server.half_sent(b"")) for _ in range(24)]
        next(iter(replicas)).kill()
        # A request to a replica that is just dying would fail.
        until(lambda: process.replicas() - replicas, every_s=0.2)
        assert 0 < sum(map(still_answers, connections)) < 24
    until(lambda: len(by_replica(server, "offramp_policy_version")) == 2, every_s=0.2)
    versions = by_replica(server, "offramp_policy_version")
    assert versions == dict.fromkeys(versions, change["version"])
    assert len(set(versions) - names) == 1
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(server.answer, ["w1"] * 32))
    assert {a["policy_version"] for a in answers} == {change["version"]}
    assert {a["results"][0]["exit"]["layer"] for a in answers} == {3}
    assert DEPTH != 3


def ask(connection: socket.socket, method: str, path: str, body: Any = None) -> str:
    """Ask over an open connection; return the body of an answer with status 200."""
    http = HTTPConnection("127.0.0.1")
    http.sock = connection
    headers = {"Content-Type": "application/json"}
    http.request(method, path, body and json.dumps(body), headers)
    response = http.getresponse()
    text = response.read().decode()
    assert response.status == 200, text
    return text


def test_hung_replica_is_named_and_replaced(server: LiveServer, process: ServerProcess) -> None:
    names, replicas = set(by_replica(server, "offramp_policy_version")), process.replicas()
    hung = next(iter(replicas))
    with ExitStack() as stack:
        connections = [stack.enter_context(server.half_sent(b"")) for _ in range(24)]
        for connection in connections:
            ask(connection, "GET", "/health/live")
        elsewhere = {c.raddr.port for c in hung.net_connections("tcp") if c.raddr}
        answered = [c for c in connections if c.getsockname()[1] not in elsewhere]
        assert 0 < len(answered) < 24
        hung.suspend()
        suspended_s = time.monotonic()
        change = json.loads(ask(answered[0], "PUT", POLICY, FULL_DEPTH))
        [ack] = change["replicas"]
        assert ack["version"] == change["version"]
        assert change["unconfirmed"] == 1
        assert set(change["missing"]) == names - {ack["replica"]}
        page = ask(answered[1], "GET", "/metrics")
        assert "offramp_replicas_scraped 1.0" in page
        assert "offramp_replicas_unreachable 1.0" in page
        until(lambda: hung not in process.left(), every_s=0.2)
        # With Ray's defaults it takes 125 s, and with a drain `DRAIN_S` more than it should.
        assert time.monotonic() - suspended_s < DRAIN_S
        until(lambda: process.replicas() - replicas, every_s=0.2)
    until(lambda: len(by_replica(server, "offramp_policy_version")) == 2, every_s=0.2)
    assert replicas - {hung} < process.replicas()


def follow(server: LiveServer, client: str) -> tuple[str, str | None, int]:
    """Return which replica has answered on a new connection, the arm, and the exit layer."""
    headers = {"X-Offramp-Sticky": client, "Connection": "close"}
    answer = server.http.post("/v1/classify", json={"inputs": "w1"}, headers=headers)
    assert answer.status_code == 200, answer.text
    [result] = answer.json()["results"]
    return answer.headers["x-offramp-replica"], answer.json().get("arm"), result["exit"]["layer"]


def arms_of_both(server: LiveServer) -> dict[str, str | None]:
    """Return the arm of each client, the same in every replica, once two have answered each."""
    arms = {}
    for client in CLIENTS:
        seen: dict[str, str | None] = {}

        def both(client: str = client, seen: dict[str, str | None] = seen) -> bool:
            replica, arm, _ = follow(server, client)
            seen[replica] = arm
            return len(seen) == 2

        until(both, START_S)
        assert len({*seen.values()}) == 1
        arms[client] = next(iter(seen.values()))
    return arms


def test_replica_that_joins_midway_follows_a_rollout_and_all_go_back(
    server: LiveServer, process: ServerProcess
) -> None:
    server.put_policy({"default": {"rule": "layer", "layer": 1}}).raise_for_status()
    server.http.post(ROLLOUT, json={**BOUNDED, "bounds": {"errors": 0.5}}).raise_for_status()
    replicas = process.replicas()
    before = arms_of_both(server)
    assert {*before.values()} == {"live", "candidate"}
    next(iter(replicas)).kill()
    until(lambda: len(process.replicas() - replicas) == 1, START_S)
    until(lambda: server.metric("offramp_replicas_scraped") == 2, START_S)
    assert arms_of_both(server) == before

    server.http.post(f"{ROLLOUT}/abort", json={}).raise_for_status()
    server.http.post(ROLLOUT, json=BOUNDED).raise_for_status()

    def failed() -> bool:
        for client in CLIENTS:
            follow(server, client)
        return bool(server.http.get(ROLLOUT).json()["state"] == "failed")

    until(failed, START_S)
    shown = server.http.get(ROLLOUT).json()
    assert [each["action"] for each in shown["history"]] == ["failed", "rollout"]
    assert shown["arms"]["candidate"]["errors"] == 0
    until(lambda: server.metric("offramp_policy_version") == 2 * shown["version"])
    assert {follow(server, client)[2] for client in CLIENTS} == {1}


def test_killed_controller_is_replaced_and_replicas_go_on(
    server: LiveServer, process: ServerProcess
) -> None:
    replicas = process.replicas()
    [controller] = process.family.titled("ServeController")
    controller.kill()
    until(lambda: process.family.titled("ServeController") - {controller})
    names = set(by_replica(server, "offramp_policy_version"))
    until(lambda: {ack["replica"] for ack in change_policy(server, 2)["replicas"]} == names)
    assert process.replicas() == replicas


def test_replica_that_finds_another_bundle_does_not_start_and_the_command_says_why(
    server: LiveServer, process: ServerProcess, bundle: Path
) -> None:
    manifest, replicas = bundle / MANIFEST, process.replicas()
    before, served = manifest.read_bytes(), sha256_of(manifest)
    rewrite_manifest(bundle, lambda manifest: manifest["source"].update(model="another"))
    next(iter(replicas)).kill()
    said = f"cannot be now: {bundle}: holds another bundle now"
    until(lambda: said in process.output, every_s=0.2)
    assert f"1 of 2 replicas run: the model tiny was served before and {said}" in process.output
    assert f"and was {served}" in process.output
    # A connection may be that of the killed replica.
    until(lambda: server.metric("offramp_replicas_running") == 1, every_s=0.2)
    assert server.metric("offramp_replicas_wanted") == 2
    assert server.metric("offramp_model_info", bundle=served[:12], node="127.0.0.1") == 1
    assert server.http.get("/v1/models/tiny").json()["bundle"] == served

    manifest.write_bytes(before)
    until(lambda: "all 2 replicas run again" in process.output, every_s=0.2)
    until(lambda: server.metric("offramp_replicas_running") == 2, every_s=0.2)


def test_at_the_end_requests_are_answered_or_refused_and_nothing_is_left(
    server: LiveServer, process: ServerProcess, temporary: Path
) -> None:
    # The last test of the shared server, which it ends.
    assert len(process.left()) > 5
    with (
        requests_in_flight(server) as statuses,
        asking(server) as outcomes,
        grpc.insecure_channel(grpc_address(process)) as channel,
        ThreadPoolExecutor(1) as pool,
    ):
        until(lambda: outcomes["200 application/json"])
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        changed = pool.submit(lambda: next(watch).status)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        calls = [stub.ModelInfer.future(asked(["w1 " * 60] * 50)) for _ in range(2)]
        until(lambda: server.metric("offramp_queue_depth") or calls[-1].done())
        process.send(signal.SIGTERM)
        assert changed.result() == health_pb2.HealthCheckResponse.NOT_SERVING
        assert [call.code() for call in calls] == [grpc.StatusCode.OK] * 2
        # Ray's own signal handler would abort the process 3 s after a signal.
        time.sleep(4)
        assert statuses() == [200] * 8
        process.send_to_group(signal.SIGINT)
        process.send_to_group(signal.SIGINT)
        assert process.exit_status() == 0, process.output
    assert set(outcomes) <= {"200 application/json", "503 application/json", "refused"}
    assert outcomes["refused"]
    assert process.output.splitlines()[-1] == "stopped"
    assert "Traceback" not in process.output
    assert "SIGTERM received" not in process.output
    assert not process.left()
    assert not list(temporary.iterdir())


def test_replicas_go_on_while_the_head_is_away_and_policies_stay_as_they_are(
    bundle_folder: Path,
) -> None:
    with ServerProcess(bundle_folder, "--replicas", "2", "--port", "0") as process:
        server = process.client()
        until(lambda: names_of_replicas(server) == 2)  # each is dealt connections
        [head] = process.family.titled("gcs_server")
        # Nothing has been scraped yet: what a first scrape needs of the head must be there.
        head.kill()
        for _ in range(8):
            fresh = LiveServer(server.port)
            with fresh.http:
                page = fresh.http.get("/metrics")
                assert page.status_code == 200
                assert "offramp_replicas_scraped 2.0" in page.text
        problem = Problem.of(server.http.put(POLICY, json=FULL_DEPTH))
        assert problem[:2] == (503, "unavailable")
        assert names_of_replicas(server) == 2
        assert server.answer("w1")["policy_version"] == 1


def names_of_replicas(server: LiveServer) -> int:
    """Return how many replicas have answered to some connections."""
    names = set()
    for _ in range(24):
        with LiveServer(server.port).http as http:
            names.add(http.get("/health/live").headers["x-offramp-replica"])
    return len(names)


def test_signal_during_the_start_leaves_nothing(bundle_folder: Path) -> None:
    with ServerProcess(bundle_folder, "--port", "0") as process:
        until(lambda: len(process.left()) > 1)
        process.send(signal.SIGTERM)
        assert process.exit_status() == 0
        assert process.output.splitlines()[-1] == "stopped"
        assert not process.left()


def test_folder_that_sockets_do_not_fit_into_is_an_error_in_one_line(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("too-long-for-a-socket" * 5)
    folder.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    status, _, error = run_offramp_alone(
        "serve", bundle_folder, "--port", "0", "--precision", "fp32"
    )
    assert status == 2, error
    assert error.count("\n") == 1
    assert "path too long; set RAY_TMPDIR to another folder" in error


def test_replica_that_cannot_start_is_an_error_in_one_line(
    bundle_copy: Callable[..., Path],
) -> None:
    folder = bundle_copy()
    segment = "segments/fp32/joined.onnx"
    (folder / segment).write_bytes(b"\x08\x08")  # a model of ONNX, without a graph
    digest = sha256_of(folder / segment)
    rewrite_manifest(folder, lambda manifest: manifest["files"].update({segment: digest}))
    status, _, error = run_offramp_alone("serve", folder, "--port", "0", "--precision", "fp32")
    assert status == 2, error
    assert error.count("\n") == 1
    assert error.startswith("offramp: the replicas do not start: ")
    assert f"ONNX Runtime cannot load {folder}/{segment}" in error
