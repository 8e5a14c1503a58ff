"""What values become: the table in expected.yaml, and what a table cannot say."""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import Object, Rendered, render
from tests.helm.matrix import GPU, RAYSERVICE

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("expected.yaml").read_text())


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
def test_values_become_what_the_table_says(case: dict[str, Any]) -> None:
    release = render(case["values"])
    for place, wanted in case["expect"].items():
        found = at(release, place)
        assert covers(wanted, found), f"{place}: {found}"


def at(release: Rendered, place: str) -> Any:
    """Return what stands at a place; None if nothing."""
    root, *parts = place.split(".")
    if root == "pods":
        found: Any = release.pods()
    elif root == "environment":
        found = {name: environment(pod) for name, pod in release.pods().items()}
    elif root in ("options", "flags"):
        words = release.pods()["server"]["spec"]["containers"][0]["args"]
        pairs = zip(words, [*words[1:], ""], strict=True)
        found = dict(pairs) if root == "options" else dict.fromkeys(words, True)
    else:
        views = {"cluster": lambda: release.cluster, "serve": lambda: release.serve_config}
        found = views.get(root, lambda: release.the(root))()
    for part in parts:
        if isinstance(found, list):
            found = found[int(part)] if int(part) < len(found) else None
        else:
            found = (found or {}).get(part)
    return found


def covers(wanted: Any, found: Any) -> bool:
    """Tell whether something is as wanted, with more fields or without."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(covers(v, found.get(k)) for k, v in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(covers, wanted, found))
    return bool(wanted == found)


def environment(pod: Object) -> dict[str, str]:
    variables = pod["spec"]["containers"][0].get("env", ())
    return {variable["name"]: variable.get("value", "") for variable in variables}


def test_kuberays_command_and_probes_are_left_alone() -> None:
    # A readiness probe of the chart would replace the one that asks the proxy.
    injected = {"startupProbe", "readinessProbe", "livenessProbe", "command", "args"}
    for name in ("ray-head", "ray-worker"):
        assert not injected & set(render().pods()[name]["spec"]["containers"][0])


def test_ray_knows_every_start_parameter_and_flag() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own imports
        from ray.scripts.scripts import start
    known = {option for parameter in start.params for option in parameter.opts}
    for values in ({}, GPU, RAYSERVICE["head settings"]):
        cluster = render(values).cluster
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            assert {f"--{name}" for name in group["rayStartParams"]} <= known
            assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    [folder] = find_spec("ray").submodule_search_locations  # type: ignore[union-attr]
    sources = "".join(path.read_text() for path in Path(folder, "serve").rglob("constants.py"))
    flags = [name for name in environment(render().pods()["ray-head"]) if "RAY_SERVE_" in name]
    assert flags
    assert not [flag for flag in flags if f'"{flag}"' not in sources]


def test_worker_leaves_the_cluster_before_it_ends() -> None:
    spec = render().pods()["ray-worker"]["spec"]
    *_, script = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert script.index("ray drain-node") < script.index("sleep 50") < script.index("ray stop")
    assert spec["terminationGracePeriodSeconds"] > 50


def test_names_leave_room_for_what_kuberay_appends() -> None:
    release = render({"fullnameOverride": "a" * 80})
    assert len(release.the("RayService")["metadata"]["name"]) <= 47


def test_budget_is_left_out_for_a_single_server() -> None:
    for values in ({"replicas": 1}, {"replicas": 1, "mode": "deployment"}):
        assert not render(values).every("PodDisruptionBudget")


def test_bounds_of_the_autoscaler_do_not_touch_the_cluster_that_runs() -> None:
    # KubeRay would not take other bounds of the workers over into it.
    few, many = (
        render({"ray": {"autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": most}}})
        for most in (9, 20)
    )
    assert few.cluster == many.cluster


def test_every_pod_is_scraped_without_ray() -> None:
    release = render({"mode": "deployment", "metrics": {"enabled": True}})
    [monitor] = [o["spec"] for o in release.every("ServiceMonitor")]
    service = release.the("Service")
    labels = service["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["ports"][0]["name"] == monitor["endpoints"][0]["port"]
    assert not release.every("PodMonitor")


def test_named_hosts_do_not_lock_out_the_charts_own_requests() -> None:
    values = {"server": {"allowedHosts": ["a.example"]}}
    names = {"a.example", "prod-offramp", "prod-offramp.models.svc", "127.0.0.1", "$(POD_IP)"}
    server = render({"mode": "deployment", **values}).pods()["server"]
    words = server["spec"]["containers"][0]["args"]
    assert names <= {words[i + 1] for i, word in enumerate(words) if word == "--allowed-host"}
    assert "POD_IP" in environment(server)
    [application] = render(values).serve_config["applications"]
    allowed = set(application["args"]["allowed_hosts"])
    assert {"a.example", "prod-offramp-serve-svc.models.svc"} <= allowed
