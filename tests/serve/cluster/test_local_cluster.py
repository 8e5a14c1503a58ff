"""What the command's own process does; servers as real processes are in test_replica.py."""

import logging
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from serve.announcer import Announcer
from serve.bundle.loader import Bundle
from serve.cli import app
from serve.cluster import local_cluster, node
from serve.cluster.local_cluster import _stop_listening
from serve.cluster.missing import MissingReplicas
from serve.cluster.ray_calls import RayCalls
from serve.errors import Unavailable
from serve.runtime import cuda_provider

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports raise some
    import ray
    from ray import serve as ray_serve
    from ray.exceptions import RayError
    from ray.serve import RunTarget
    from ray.serve.config import DeploymentID
    from ray.serve.exceptions import DeploymentUnavailableError
    from ray.serve.handle import DeploymentHandle


def test_dead_replica_does_not_end_the_wait_for_the_others_and_a_new_handle_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Handle:
        num_asked = 0

        def broadcast(self, method: str) -> "Handle":
            assert method == "stop_listening"
            self.num_asked += 1
            return self

        def results(self, timeout_s: float, return_exceptions: bool = False) -> list[Any]:
            assert return_exceptions, "the first error would end the wait for the others"
            if self.num_asked < 3:
                raise DeploymentUnavailableError(DeploymentID("Classifiers"))
            return [None, RayError("it has died")]

    handle = Handle()
    with caplog.at_level(logging.WARNING):
        _stop_listening(cast("DeploymentHandle[Any]", handle))
    assert caplog.messages == ["a replica did not stop in order: it has died"]
    assert handle.num_asked == 3


def test_why_replicas_are_missing_is_in_the_log_and_said_where_that_lies_elsewhere(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    running = SimpleNamespace(state="RUNNING")
    message = "Traceback of Ray's\nserve.errors.InvalidBundle: another bundle"
    details = SimpleNamespace(target_num_replicas=2, replicas=[running], message=message)
    for in_log in (False, True):
        caplog.clear()
        announcer = Announcer("text", in_log=in_log)
        details.replicas = [running]
        missing = MissingReplicas(lambda: cast("Any", details), announcer.warn)
        missing.look()
        missing.look()
        details.replicas = [running, running]
        missing.look()
        said = ["1 of 2 replicas run: another bundle", "all 2 replicas run again"]
        assert caplog.messages == said
        assert capsys.readouterr().out.splitlines() == (said if in_log else [])


def test_disk_that_fills_up_while_ray_starts_is_named_instead_of_what_ray_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(**options: object) -> None:
        full = SimpleNamespace(f_bavail=0, f_frsize=4096, f_files=1000, f_favail=10)
        monkeypatch.setattr(os, "statvfs", lambda _: full)
        raise TimeoutError("Timed out waiting for file")

    monkeypatch.setattr(ray, "init", start)
    with pytest.raises(Unavailable, match=f"^Ray does not start: the disk of {tmp_path} is full, "):
        node._start(RayCalls(), {"_temp_dir": str(tmp_path / "ray")}, lambda: False)


def test_a_start_that_ray_gives_up_on_a_busy_machine_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(**options: object) -> None:
        tried.append(options)
        raise Exception(said)  # Ray raises Exception itself

    tried: list[object] = []
    monkeypatch.setattr(ray, "init", start)
    monkeypatch.setenv(node._TOKEN_PATH, str(tmp_path / "token"))
    options = {"_temp_dir": str(tmp_path / "ray")}
    for said, times in (("The current node timed out during startup.", 3), ("No such port", 1)):
        tried.clear()
        with pytest.raises(Unavailable, match=f"^Ray does not start: {said}"):
            node._start(RayCalls(), options, lambda: False)
        assert len(tried) == times


@pytest.mark.parametrize(
    ("options", "number", "share"),
    [(("--replicas", "4"), 4, 1), (("--replicas", "8", "--gpus-per-replica", "0.5"), 8, 0.5)],
)
def test_replicas_on_gpus_ask_ray_for_them(
    half_bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    number: int,
    share: float,
) -> None:
    def run(targets: list[RunTarget], **_: object) -> None:
        asked.update(targets[0].target._bound_deployment.ray_actor_options)
        asked["num_replicas"] = targets[0].target._bound_deployment.num_replicas
        raise Unavailable("this test has seen enough")

    asked: dict[str, Any] = {}
    monkeypatch.setattr(cuda_provider, "fault", lambda: None)
    for module in (cuda_provider, local_cluster):
        monkeypatch.setattr(module, "num_devices", lambda: 4)
    monkeypatch.setattr(ray, "init", lambda **given: asked.update(of_node=given["num_gpus"]))
    monkeypatch.setattr(ray_serve, "start", lambda **_: None)
    monkeypatch.setattr(ray_serve, "run_many", run)
    monkeypatch.setattr(local_cluster, "_Signals", lambda: SimpleNamespace(came=lambda: False))
    command = ["serve", str(half_bundle.folder), "--device", "cuda", "--port", "0", *options]
    with pytest.raises(Unavailable, match="seen enough"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert asked["of_node"] == 4
    assert (asked["num_replicas"], asked["num_gpus"]) == (number, share)
