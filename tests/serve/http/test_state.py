"""What outlives `offramp serve --standalone`, with and without `--state`."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.server_process import ServerProcess, run_offramp
from tests.serve.support.survival import STANDALONE, STATE, said

POLICY = "/v1/models/tiny/policy"
HISTORY = f"{POLICY}/history"
STOPPED, KILLED = "the server is stopped and started", "the server is killed (`kill -9`)"


def history(server: LiveServer) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = server.http.get(HISTORY).json()["entries"]
    return entries


def patch(server: LiveServer, layer: int) -> None:
    body = {"patch": {"default": {"rule": "layer", "layer": layer}}, "version": None, "why": "try"}
    server.http.patch(POLICY, json=body).raise_for_status()


def ended(process: ServerProcess, number: signal.Signals) -> list[dict[str, Any]]:
    """Return the history that a server had before it was ended by a signal."""
    entries = history(process.client())
    process.send(number)
    process.exit_status()
    return entries


def outcome(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str:
    if after == before:
        return "kept"
    assert [entry["version"] for entry in after] == [1]
    return "lost"


def test_policy_of_a_server_without_a_folder_ends_with_it(bundle_folder: Path) -> None:
    with serving_bundles(bundle_folder) as server:
        patch(server, 2)
        before = history(server)
    with serving_bundles(bundle_folder) as server:
        assert outcome(before, history(server)) == said(STOPPED, STANDALONE)
    assert said(KILLED, STANDALONE) == said("a replica is killed", STANDALONE) == "lost"


def test_folder_keeps_what_the_documentation_says_for_one_server_at_a_time(
    bundle_copy: Callable[..., Path], tmp_path: Path
) -> None:
    bundle, state = bundle_copy("tiny"), tmp_path / "state"
    arguments = (bundle, "--standalone", "--port", "0", "--state", state)
    with ServerProcess(*arguments) as process:
        patch(process.client(), 2)
        patch(process.client(), 3)
        status, _, err = run_offramp("serve", *arguments)
        refusal = f"--state {state}: another server, process {process.pid},"
        assert (status, refusal in err) == (2, True)
        before = ended(process, signal.SIGTERM)
    with ServerProcess(*arguments) as process:
        assert outcome(before, history(process.client())) == said(STOPPED, STATE)
        answer = process.client().answer("w1")
        assert (answer["policy_version"], answer["results"][0]["exit"]["layer"]) == (3, 3)
        patch(process.client(), 1)
        before = ended(process, signal.SIGKILL)
        assert before[0]["version"] == 4
    rewrite_manifest(bundle, lambda manifest: manifest["source"].update(model="another"))
    with ServerProcess(*arguments) as process:
        newest, *others = history(process.client())
        assert (newest["version"], newest["source"], others) == (5, "bundle", before)
        assert said("the model gets another bundle", STATE).startswith("replaced by the bundle's")


def test_server_does_not_start_from_a_file_that_it_cannot_read(
    bundle_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "offramp.db").write_text("no database")
    status, _, err = run_offramp("serve", bundle_folder, "--standalone", "--state", tmp_path)
    assert (status, err.count("\n")) == (2, 1)
    assert f"{tmp_path}/offramp.db" in err
