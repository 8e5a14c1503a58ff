"""Parts of a Ray Serve deployment die, hang or change under load, and what must hold then."""

import itertools
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from loadtest.http.client import ApiError, Json
from loadtest.http.metrics_page import MetricsPage
from loadtest.scenarios.host import NUM_REPLICAS, write_config
from loadtest.scenarios.scenario import BEFORE_S, Scenario, wait_for

# Ray Serve finds it within 15 s; another one starts within about 10 s.
MOST_HUNG_S = 30.0
_CHANGE_EVERY_S = 1.0
_STOPPED_S = 10.0
_TIMES = 3


def kill_replica(scenario: Scenario) -> None:
    """Kill one of two replicas; another must take its place, with the live policy."""
    version = _version(scenario)
    with scenario.load():
        took_s = _kill(scenario, "ServeReplica", NUM_REPLICAS)
        scenario.notes.append(f"two replicas again after {took_s:.1f} s")
    _check_same_version(scenario, version)


def stop_replica(scenario: Scenario) -> None:
    """Stop one of two replicas, as if it hung; it must be replaced, with the live policy."""
    version = _version(scenario)
    with scenario.load():
        took_s = _kill(scenario, "ServeReplica", NUM_REPLICAS, signal.SIGSTOP)
        scenario.notes.append(f"replaced after {took_s:.1f} s")
        scenario.expect(took_s < MOST_HUNG_S, f"not replaced within {MOST_HUNG_S:g} s")
    _check_same_version(scenario, version)


def kill_controller(scenario: Scenario) -> None:
    """Kill Ray Serve's controller; no request may fail, and policies must survive."""
    replicas = scenario.processes("ServeReplica")
    version = _version(scenario)
    with scenario.load():
        took_s = _kill(scenario, "ServeController", 1)
        scenario.notes.append(f"a new controller after {took_s:.1f} s")
    _check_same_version(scenario, version)
    _check_same_replicas(scenario, replicas)


def stop_controller(scenario: Scenario) -> None:
    """Stop the controller for a while; no request may fail, and policies may change."""
    replicas, model = scenario.processes("ServeReplica"), scenario.model["name"]
    with scenario.load():
        stopped = _signal(scenario, "ServeController", signal.SIGSTOP)
        live = scenario.client.policy(model)
        changed = scenario.client.replace_policy(model, live, live["policy"])
        wait_for(lambda: _all_answer(scenario), "the metrics of both replicas")
        time.sleep(_STOPPED_S)
        stopped.send_signal(signal.SIGCONT)
        scenario.notes.append(f"{_STOPPED_S:g} s without one: policy changed, metrics complete")
    check_versions(scenario, {live["version"]: None, changed["version"]: None})
    _check_same_replicas(scenario, replicas)


def kill_head(scenario: Scenario) -> None:
    """Kill the cluster's head; answers and metrics go on, and policies stay as they are."""
    model, replicas = scenario.model["name"], scenario.processes("ServeReplica")
    live = scenario.client.policy(model)
    with scenario.load():
        # Nothing has been scraped before: what a first scrape needs of the head must be there.
        _signal(scenario, "gcs_server", signal.SIGKILL)
        page_s = _longest(scenario, lambda: _all_answer(scenario), "metrics of both replicas")
        put_s = _longest(scenario, lambda: _refused(scenario, live), "a refused change")
        scenario.notes.append(
            f"metrics within {page_s:.1f} s, changes refused within {put_s:.1f} s"
        )
    _check_same_version(scenario, live["version"])
    _check_same_replicas(scenario, replicas)


def kill_proxy(scenario: Scenario) -> None:
    """Kill the only proxy; the controller must start another."""
    with scenario.load():
        took_s = _kill(scenario, "ProxyActor", 1)
        scenario.notes.append(f"answering again after {took_s:.1f} s")


def change_thresholds(scenario: Scenario) -> None:
    """Change the policy every second; each answer must follow the version that it names."""
    model, client = scenario.model, scenario.client
    layers = itertools.cycle([model["exits"][0]["layer"], model["exits"][-1]["layer"]])
    live = original = client.policy(model["name"])
    by_version: dict[int, int | None] = {live["version"]: None}
    with scenario.load():
        end = time.monotonic() + scenario.seconds - 2 * BEFORE_S
        while time.monotonic() < end:
            layer = next(layers)
            policy = live["policy"] | {"default": {"rule": "layer", "layer": layer}}
            live = client.replace_policy(model["name"], live, policy)
            by_version[live["version"]] = layer
            time.sleep(_CHANGE_EVERY_S)
    scenario.notes.append(f"{len(by_version) - 1} policies in turn")
    check_versions(scenario, by_version)
    client.replace_policy(model["name"], live, original["policy"])


def change_user_config(scenario: Scenario, config: Path, bundle: Path) -> None:
    """Deploy other policies; they must apply in the same replicas."""
    replicas, model = scenario.processes("ServeReplica"), scenario.model
    default = {"rule": "layer", "layer": model["exits"][0]["layer"]}
    with scenario.load():
        write_config(config, bundle, {model["name"]: {"default": default}})
        _deploy(scenario)
        took_s = wait_for(lambda: _default(scenario, model["name"]) == default, "the new policy")
        scenario.notes.append(f"in force after {took_s:.1f} s, in the same replicas")
    _check_same_replicas(scenario, replicas)


def deploy_new_code(scenario: Scenario, config: Path, bundle: Path) -> None:
    """Deploy another argument of the app; new replicas must replace the old ones one by one."""
    replicas = scenario.processes("ServeReplica")
    with scenario.load():
        write_config(config, bundle, {}, max_inputs=255)
        _deploy(scenario)
        took_s = wait_for(
            lambda: _all_answer(scenario) and not replicas & scenario.processes("ServeReplica"),
            "two new replicas",
        )
        scenario.notes.append(f"two new replicas after {took_s:.1f} s")


def terminate(scenario: Scenario) -> None:
    """End the server under load; every request sent before the signal must be answered."""
    server = scenario.server
    with scenario.load():
        signalled_at = time.time()
        server.send(signal.SIGTERM)
        took_s = wait_for(lambda: server.status(0) is not None, "the end of the server")
        scenario.notes.append(f"ended {took_s:.1f} s after the signal")
    failed_s = scenario.report["first_failure_s"]
    if failed_s is not None:
        after_s = scenario.report["began_at"] + failed_s - signalled_at
        scenario.expect(after_s >= 0, f"a request sent {-after_s:.2f} s before the signal failed")
        scenario.notes.append(f"the first refused request came {after_s:.2f} s after the signal")


def _kill(
    scenario: Scenario, role: str, num: int, number: signal.Signals = signal.SIGKILL
) -> float:
    """Signal one process and return the seconds until `num` others run and the server answers."""
    killed = _signal(scenario, role, number)
    return wait_for(
        lambda: len(scenario.processes(role) - {killed}) == num and _all_answer(scenario),
        f"another {role}",
    )


def _signal(scenario: Scenario, role: str, number: signal.Signals) -> psutil.Process:
    """Send a signal to one of the processes that Ray names so, and return it."""
    process = min(scenario.processes(role), key=lambda found: found.pid)
    process.send_signal(number)
    return process


def _all_answer(scenario: Scenario) -> bool:
    """Tell whether all replicas are on the metrics page."""
    with suppress(ApiError):
        page = MetricsPage.of(scenario.client.metrics())
        return page.total("offramp_replicas_scraped") == NUM_REPLICAS
    return False


def _longest(scenario: Scenario, does: Callable[[], bool], what: str) -> float:
    """Do something several times, and return the seconds of the slowest."""
    longest_s = 0.0
    for _ in range(_TIMES):
        began = time.monotonic()
        scenario.expect(does(), f"no {what} while the head was away")
        longest_s = max(longest_s, time.monotonic() - began)
    return longest_s


def _refused(scenario: Scenario, live: Json) -> bool:
    """Tell whether a change of the policy is refused with 503, within the client's patience."""
    try:
        scenario.client.replace_policy(scenario.model["name"], live, live["policy"])
    except ApiError as error:
        return "503" in str(error)
    return False


def _version(scenario: Scenario) -> int:
    return int(scenario.client.policy(scenario.model["name"])["version"])


def _check_same_version(scenario: Scenario, version: int) -> None:
    now = _version(scenario)
    scenario.expect(now == version, f"the policy went from version {version} to {now}")
    check_versions(scenario, {version: None})


def _check_same_replicas(scenario: Scenario, replicas: set[psutil.Process]) -> None:
    same = scenario.processes("ServeReplica") == replicas
    scenario.expect(same, "replicas were restarted")


def check_versions(scenario: Scenario, layers: dict[int, int | None]) -> None:
    """Check every answer against the policy version that it names.

    Args:
        scenario: has the report.
        layers: version -> the exit layer that it demands, or None for any.
    """
    for version, exits in scenario.report["exits"]["by_policy_version"].items():
        known = layers.get(int(version), 0)
        if known == 0:
            scenario.problems.append(f"answers name version {version}, which there never was")
        elif known is not None and set(map(int, exits)) != {known}:
            scenario.problems.append(
                f"version {version} says layer {known}, answers left at {exits}"
            )


def _deploy(scenario: Scenario) -> None:
    scenario.server.send(signal.SIGHUP)


def _default(scenario: Scenario, model: str) -> Json | None:
    with suppress(ApiError):
        found = scenario.client.policy(model)["policy"]["default"]
        return {key: found[key] for key in ("rule", "layer") if key in found}
    return None
