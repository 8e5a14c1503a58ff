"""What is done to a server under load, and what must hold afterwards."""

import itertools
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import psutil

from loadtest.chaos.configs import NUM_REPLICAS, write_config
from loadtest.chaos.scenario import BEFORE_S, Scene
from loadtest.chaos.server_processes import Part, wait_for
from loadtest.http.client import ApiError, Client, Json, LivePolicy
from loadtest.http.metrics_page import Scrape

_CHANGE_EVERY_S = 1.0


Scenario: TypeAlias = Callable[[Scene], None]


def kill_replica(scene: Scene) -> None:
    """Kill one of two replicas; another must take its place, with the live policy."""
    version = scene.client.policy(_model(scene.client)).version
    with scene.load():
        killed = scene.family.kill_one("ServeReplica")
        took_s = _replaced(scene, "ServeReplica", killed, NUM_REPLICAS)
        scene.notes.append(f"two replicas again after {took_s:.1f} s")
    _same_version(scene, version)


def kill_controller(scene: Scene) -> None:
    """Kill Ray Serve's controller; requests must not notice, and policies must survive."""
    replicas = scene.family.pids("ServeReplica")
    version = scene.client.policy(_model(scene.client)).version
    with scene.load():
        killed = scene.family.kill_one("ServeController")
        took_s = _replaced(scene, "ServeController", killed, 1)
        scene.notes.append(f"a new controller after {took_s:.1f} s")
    _same_version(scene, version)
    scene.expect(scene.family.pids("ServeReplica") == replicas, "replicas were restarted")


def kill_proxy(scene: Scene) -> None:
    """Kill the only proxy; the controller must start another."""
    with scene.load():
        killed = scene.family.kill_one("ProxyActor")
        took_s = _replaced(scene, "ProxyActor", killed, 1)
        scene.notes.append(f"answering again after {took_s:.1f} s")


def change_thresholds(scene: Scene) -> None:
    """Change the policy every second; each answer must be of the version that it names."""
    model = _model(scene.client)
    (info,) = scene.client.models()
    layers = itertools.cycle([info["exits"][0]["layer"], info["exits"][-1]["layer"]])
    live = original = scene.client.policy(model)
    by_version: dict[int, int | None] = {live.version: None}
    with scene.load():
        end = time.monotonic() + scene.pace.seconds - 2 * BEFORE_S
        while time.monotonic() < end:
            layer = next(layers)
            document = live.document | {"default": {"rule": "layer", "layer": layer}}
            live = scene.client.replace_policy(model, LivePolicy(live.version, document))
            by_version[live.version] = layer
            time.sleep(_CHANGE_EVERY_S)
    scene.notes.append(f"{len(by_version) - 1} policies in turn")
    _check_versions(scene, by_version)
    scene.client.replace_policy(model, LivePolicy(live.version, original.document))


def change_user_config(scene: Scene, config: Path, bundle: Path) -> None:
    """Deploy other policies; they must apply in place."""
    replicas, model = scene.family.pids("ServeReplica"), _model(scene.client)
    (info,) = scene.client.models()
    policy = {"default": {"rule": "layer", "layer": info["exits"][0]["layer"]}}
    with scene.load():
        write_config(config, bundle, {model: policy})
        _deploy(scene)
        took_s = wait_for(lambda: _default(scene, model) == policy["default"], "the new policy")
        scene.notes.append(f"in force after {took_s:.1f} s, in the same replicas")
    scene.expect(scene.family.pids("ServeReplica") == replicas, "replicas were restarted")


def deploy_new_code(scene: Scene, config: Path, bundle: Path) -> None:
    """Deploy what only new replicas can run; they must replace the old ones one by one."""
    replicas = scene.family.pids("ServeReplica")
    with scene.load():
        write_config(config, bundle, {}, max_inputs=255)
        _deploy(scene)
        took_s = wait_for(
            lambda: _all_answer(scene) and not replicas & scene.family.pids("ServeReplica"),
            "two new replicas",
        )
        scene.notes.append(f"two new replicas after {took_s:.1f} s")


def terminate(scene: Scene) -> None:
    """End the server under load: what it has taken in must be answered."""
    leader = psutil.Process(scene.family.leader)
    with scene.load():
        scene.family.look()
        signalled_at = time.time()
        leader.send_signal(signal.SIGTERM)
        took_s = wait_for(lambda: not _runs(leader), "the end of the server")
        scene.notes.append(f"ended {took_s:.1f} s after the signal")
    failed_s = scene.report["first_failure_s"]
    if failed_s is not None:
        after_s = scene.report["began_at"] + failed_s - signalled_at
        scene.expect(after_s >= 0, f"a request sent {-after_s:.2f} s before the signal failed")
        scene.notes.append(f"the first refused request came {after_s:.2f} s after the signal")


def _replaced(scene: Scene, part: Part, killed: int, num: int) -> float:
    """Wait until that many others run and the server answers in full; return the seconds."""
    return wait_for(
        lambda: len(scene.family.pids(part) - {killed}) == num and _all_answer(scene),
        f"another {part}",
    )


def _all_answer(scene: Scene) -> bool:
    """Tell whether all replicas are on the metrics page."""
    with suppress(ApiError):
        page = Scrape.of(scene.client.metrics())
        return page.total("offramp_replicas_scraped") == NUM_REPLICAS
    return False


def _same_version(scene: Scene, version: int) -> None:
    now = scene.client.policy(_model(scene.client)).version
    scene.expect(now == version, f"the policy went from version {version} to {now}")
    _check_versions(scene, {version: None})


def _check_versions(scene: Scene, layers: dict[int, int | None]) -> None:
    """Hold every answer against the version that it names.

    Args:
        scene: whose report.
        layers: version -> the exit layer that it demands, or None for any.
    """
    for version, exits in scene.report["exits"]["by_policy_version"].items():
        known = layers.get(int(version), 0)
        if known == 0:
            scene.problems.append(f"answers name version {version}, which there never was")
        elif known is not None and set(map(int, exits)) != {known}:
            scene.problems.append(f"version {version} says layer {known}, answers left at {exits}")


def _deploy(scene: Scene) -> None:
    psutil.Process(scene.family.leader).send_signal(signal.SIGHUP)


def _default(scene: Scene, model: str) -> Json | None:
    with suppress(ApiError):
        found = scene.client.policy(model).document["default"]
        return {key: found[key] for key in ("rule", "layer") if key in found}
    return None


def _model(client: Client) -> str:
    (info,) = client.models()
    return str(info["name"])


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
