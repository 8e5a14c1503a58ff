"""References between objects: selectors, ports, names, volumes."""

from collections.abc import Iterator

import pytest

from tests.helm.chart import Object, Rendered, render
from tests.helm.matrix import MONITORING, POLICIES, Values, every_case


def selected(release: Rendered, selector: Object) -> set[str]:
    """Return the pods that a selector means, by their first container's name."""
    labels = selector["matchLabels"]
    pods = {name: pod["metadata"]["labels"] for name, pod in release.pods().items()}
    found = {name for name, its in pods.items() if labels.items() <= its.items()}
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        found = {n for n in found if pods[n][expression["key"]] in expression["values"]}
    return found


def ports(pod: Object) -> dict[str, int]:
    """Return a pod's ports by name."""
    return {
        port["name"]: port["containerPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
    }


@every_case
def test_selectors_mean_the_pods_that_serve(values: Values) -> None:
    release = render(values)
    serving = {"server"} if values.get("mode") == "deployment" else {"ray-worker"}
    for deployment in release.every("Deployment"):
        assert selected(release, deployment["spec"]["selector"]) == serving
    for budget in release.every("PodDisruptionBudget"):
        assert selected(release, budget["spec"]["selector"]) == serving
    for service in release.every("Service"):
        assert selected(release, {"matchLabels": service["spec"]["selector"]}) == serving
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports(release.pods()["server"])
    for policy in release.every("NetworkPolicy"):
        heads = set() if values.get("mode") == "deployment" else {"ray-head"}
        assert selected(release, policy["spec"]["podSelector"]) == serving | heads
    for name in serving:
        for spread in release.pods()[name]["spec"].get("topologySpreadConstraints", ()):
            assert selected(release, spread["labelSelector"]) == serving


@every_case
def test_mounts_have_volumes_and_volumes_have_sources(values: Values) -> None:
    release = render(values)
    made = {o["metadata"]["name"] for kind in ("ConfigMap", "Secret") for o in release.every(kind)}
    named = values.get("auth", {}).get("existingSecret")
    for pod in release.pods().values():
        volumes = {v["name"]: v for v in pod["spec"].get("volumes", ())}
        mounted = {m["name"] for c in containers(pod) for m in c.get("volumeMounts", ())}
        extras = {v["name"] for v in values.get("extraVolumes", ())}
        assert mounted <= set(volumes)
        assert set(volumes) - mounted <= extras
        for volume in volumes.values():
            if "configMap" in volume and volume["name"] not in extras:
                assert volume["configMap"]["name"] in made
            if "secret" in volume:
                assert volume["secret"]["secretName"] in made | {named}


@every_case
def test_probes_and_edge_use_ports_that_are_there(values: Values) -> None:
    release = render(values)
    for pod in release.pods().values():
        for container in containers(pod):
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if "httpGet" in container.get(probe, {}):
                    assert container[probe]["httpGet"]["port"] in ports(pod)
    backends = list(edge_backends(release))
    if values.get("mode") == "deployment":
        service = release.the("Service")
        wanted = (service["metadata"]["name"], service["spec"]["ports"][0]["port"])
    else:  # KubeRay makes it, from the RayService's name and the head's port `serve`
        wanted = (f"{release.the('RayService')['metadata']['name']}-serve-svc", 8000)
        assert ports(release.pods()["ray-head"])["serve"] == 8000
    assert set(backends) <= {wanted}
    test = release.pods()["classify"]["spec"]["containers"][0]
    assert f"http://{wanted[0]}:{wanted[1]}" in test["args"]


def edge_backends(release: Rendered) -> Iterator[tuple[str, int]]:
    for ingress in release.every("Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                service = path["backend"]["service"]
                yield service["name"], service["port"]["number"]
    for route in release.every("HTTPRoute"):
        for rule in route["spec"]["rules"]:
            for backend in rule["backendRefs"]:
                yield backend["name"], backend["port"]


def containers(pod: Object) -> list[Object]:
    found: list[Object] = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
    return found


def test_rays_own_metrics_come_from_head_and_workers() -> None:
    release = render(MONITORING)
    [own] = [o for o in release.every("PodMonitor") if o["metadata"]["name"].endswith("-ray")]
    for endpoint in own["spec"]["podMetricsEndpoints"]:
        for name in ("ray-head", "ray-worker"):
            assert endpoint["port"] in ports(release.pods()[name])
    assert selected(release, own["spec"]["selector"]) >= {"ray-head", "ray-worker"}
    assert own["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize("mode", ["rayservice", "deployment"])
def test_pods_stay_as_they_are_when_only_policies_change(mode: str) -> None:
    before = render({"mode": mode, "policies": POLICIES})
    after = render(
        {"mode": mode, "policies": POLICIES},
        ["policies.sst2-minilm.profiles.balanced.threshold=0.3"],
    )
    assert before.pods() == after.pods()
    # Without a cluster to look up, every rendering makes new keys.
    changed = [o for o in after if o not in before.objects and o["kind"] != "Secret"]
    assert [o["kind"] for o in changed] == ["RayService" if mode == "rayservice" else "ConfigMap"]
    if mode == "rayservice":
        assert before.cluster == after.cluster


@every_case
def test_new_version_of_the_chart_alone_replaces_no_pod(values: Values) -> None:
    for name, pod in render(values).pods().items():
        if name != "classify":
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(
                pod["metadata"]["labels"]
            )
