"""A rollout under Ray: two replicas, of which one is replaced midway."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.serve.support.live_server import LiveServer
from tests.serve.support.server_process import START_S, ServerProcess
from tests.support.patience import until

pytestmark = pytest.mark.ray

PATH = "/v1/models/tiny/policy/rollout"
START: dict[str, Any] = {
    "policy": {"default": {"rule": "never"}}, "steps": [50], "hold_s": 3600,
    "bounds": {"layers": 2},
}  # fmt: skip
CLIENTS = [f"client {number}" for number in range(16)]


@pytest.fixture
def process(bundle_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    with TemporaryDirectory(prefix="ray-") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        with ServerProcess(bundle_folder, "--replicas", "2", "--port", "0") as process:
            yield process


def ask(server: LiveServer, client: str) -> tuple[str, str | None, int]:
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
            replica, arm, _ = ask(server, client)
            seen[replica] = arm
            return len(seen) == 2

        until(both, START_S)
        assert len({*seen.values()}) == 1
        arms[client] = next(iter(seen.values()))
    return arms


def test_replica_that_joins_midway_follows_and_all_go_back(process: ServerProcess) -> None:
    server = process.client()
    server.put_policy({"default": {"rule": "layer", "layer": 1}}).raise_for_status()
    server.http.post(PATH, json={**START, "bounds": {"errors": 0.5}}).raise_for_status()
    replicas = process.replicas()
    before = arms_of_both(server)
    assert {*before.values()} == {"live", "candidate"}
    next(iter(replicas)).kill()
    until(lambda: len(process.replicas() - replicas) == 1, START_S)
    until(lambda: server.metric("offramp_replicas_scraped") == 2, START_S)
    assert arms_of_both(server) == before

    server.http.post(f"{PATH}/abort", json={}).raise_for_status()
    server.http.post(PATH, json=START).raise_for_status()

    def failed() -> bool:
        for client in CLIENTS:
            ask(server, client)
        return bool(server.http.get(PATH).json()["state"] == "failed")

    until(failed, START_S)
    shown = server.http.get(PATH).json()
    assert [each["action"] for each in shown["history"]] == ["failed", "rollout"]
    assert shown["arms"]["candidate"]["errors"] == 0
    until(lambda: server.metric("offramp_policy_version") == 2 * shown["version"])
    assert {ask(server, client)[2] for client in CLIENTS} == {1}
