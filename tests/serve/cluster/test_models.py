"""Models and aliases that change in both replicas of `offramp serve`, under steady requests."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.live_server import LiveServer, Problem
from tests.serve.support.server_process import ServerProcess, asking
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.patience import until

pytestmark = pytest.mark.ray


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a folder of three bundles, the last one damaged."""
    for name in ("first", "second", "damaged"):
        write_task_bundle(tmp_path, Kind("single_label"), name)
    rewrite_manifest(tmp_path / "second", lambda m: m.update(labels=["a", "b", "c"]))
    (tmp_path / "damaged" / "tokenizer.json").write_text("{}")
    return tmp_path


@pytest.fixture
def process(repository: Path, ray_folder: Path) -> Iterator[ServerProcess]:
    options = ("--replicas", "2", "--port", "0", "--precision", "fp32")
    where = ("--model-repository", repository)
    with ServerProcess(repository / "first", *options, *where) as process:
        yield process


def change(server: LiveServer, method: str, path: str, **body: Any) -> dict[str, Any]:
    """Make a change that both replicas must confirm."""
    response = server.http.request(method, path, **({"json": body} if body else {}))
    assert response.status_code == 200, response.text
    changed: dict[str, Any] = response.json()
    assert (len(changed["replicas"]), changed["unconfirmed"]) == (2, 0), changed
    return changed


def everywhere(server: LiveServer, **fields: Any) -> Counter[str]:
    """Return which models answer requests on many connections, and the replicas' number."""
    seen: Counter[str] = Counter()
    replicas = set()
    for _ in range(200):
        fresh = LiveServer(server.port)
        with fresh.http:
            answer = fresh.classify("w1", **fields)
            replicas.add(answer.headers["x-offramp-replica"])
            seen[answer.json().get("model", str(answer.status_code))] += 1
        if len(replicas) == 2:
            return seen
    raise AssertionError("one replica alone answers")


def test_models_and_aliases_change_in_all_replicas_and_no_request_fails(
    process: ServerProcess, repository: Path
) -> None:
    server = process.client()
    with asking(server) as outcomes:
        change(server, "PUT", "/v1/aliases/default", model="first")
        change(server, "POST", "/v1/models/second/load")
        assert everywhere(server, model="second").keys() == {"second"}
        change(server, "PUT", "/v1/aliases/default", model="second", reason="green", force=True)
        assert everywhere(server).keys() == {"second"}
        change(server, "POST", "/v1/models/first/load", bundle="second", force=True)
        change(server, "PUT", "/v1/aliases/default", model="first")
        change(server, "POST", "/v1/models/second/unload")
        assert everywhere(server, model="second").keys() == {"404"}
        before = server.http.get("/v1/aliases").json()
        for model in ("damaged", "first"):
            path = f"/v1/models/{model}/load"
            problem = Problem.of(server.http.post(path, json={"bundle": "damaged"}))
            assert problem[:2] == (422, "load_failed")
            assert "tokenizer.json is damaged" in problem.message
        assert server.http.get("/v1/aliases").json() == before
    assert outcomes.keys() == {"200 application/json"}

    replicas = process.replicas()
    next(iter(replicas)).kill()
    until(lambda: process.replicas() - replicas, every_s=0.2)
    until(lambda: server.metric("offramp_engine_up") == 2, every_s=0.2)
    assert everywhere(server).keys() == {"first"}
    assert server.metric("offramp_alias_info", alias="default", model="first") == 2
    assert server.metric("offramp_models_unfollowed") == 0
    versions = {each["bundle"] for each in server.http.get("/v1/models").json()["models"]}
    assert len(versions) == 1

    shutil.rmtree(repository / "second")
    said = Problem.of(server.http.post("/v1/models/first/load"))
    assert said[:2] == (422, "load_failed")
