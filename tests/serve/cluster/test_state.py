"""What outlives `offramp serve --replicas 2 --state DIR`."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.serve.support.server_process import ServerProcess
from tests.serve.support.survival import STATE, said
from tests.support.patience import until

pytestmark = pytest.mark.ray

POLICY = "/v1/models/tiny/policy"


def history(process: ServerProcess) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = process.client().http.get(f"{POLICY}/history").json()["entries"]
    return entries


def patch(process: ServerProcess, layer: int) -> None:
    """Change the policy in both replicas."""
    body = {"patch": {"default": {"rule": "layer", "layer": layer}}, "version": None}

    def everywhere() -> bool:
        change = process.client().http.patch(POLICY, json=body).json()
        return len(change["replicas"]) == 2

    until(everywhere, every_s=0.2)


def test_policy_and_history_survive_what_the_documentation_says(
    bundle_folder: Path, tmp_path: Path, ray_folder: Path
) -> None:
    arguments = (bundle_folder, "--replicas", "2", "--port", "0", "--state", tmp_path)
    with ServerProcess(*arguments) as process:
        patch(process, 2)
        before = history(process)
        replicas = process.replicas()
        next(iter(replicas)).kill()
        until(lambda: process.replicas() - replicas, every_s=0.2)
        assert said("a replica is killed", STATE) == "kept"
        assert until(lambda: history(process)) == before
        [controller] = process.family.titled("ServeController")
        controller.kill()
        until(lambda: process.family.titled("ServeController") - {controller})
        assert said("Ray Serve's controller is killed", STATE) == "kept"
        patch(process, 3)
        before = history(process)
        [head] = process.family.titled("gcs_server")
        head.kill()
        process.exit_status()
        assert said("Ray's head is killed", STATE) == "kept, the command ends"
    with ServerProcess(*arguments) as process:
        assert history(process) == before
        answer = process.client().answer("w1")
        assert answer["policy_version"] == before[0]["version"]
        assert answer["results"][0]["exit"]["layer"] == 3
        process.send(signal.SIGKILL)
        process.exit_status()
        until(lambda: not process.left())
    assert said("the server is killed (`kill -9`)", STATE) == "kept"
