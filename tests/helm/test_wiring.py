"""References between objects: selectors, ports, names, volumes."""

from collections.abc import Iterator

import pytest

from tests.helm.chart import NAMESPACE, Object, Rendered, render
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


def test_pods_listen_on_the_address_that_is_given() -> None:
    server = {"server": {"host": "::"}}
    arguments = render({"mode": "deployment", **server}).pods()["server"]["spec"]["containers"][0]
    assert arguments["args"][arguments["args"].index("--host") + 1] == "::"
    release = render(server)
    assert release.serve_config["http_options"]["host"] == "::"
    for pod in release.pods().values():
        for variable in pod["spec"]["containers"][0].get("env", ()):
            if variable["name"] == "RAY_SERVE_DEFAULT_HTTP_HOST":
                assert variable["value"] == "::"


def test_grpc_has_its_port_on_pod_and_service_and_clients_may_reach_it() -> None:
    values = {"mode": "deployment", "server": {"grpcPort": 8001}}
    release = render(values)
    pod = release.pods()["server"]
    arguments = pod["spec"]["containers"][0]["args"]
    assert arguments[arguments.index("--grpc-port") + 1] == "8001"
    assert ports(pod) == {"http": 8000, "grpc": 8001}
    service = release.the("Service")["spec"]["ports"]
    assert {p["name"]: p["port"] for p in service} == ports(pod)
    [requests] = [
        rule for rule in release.the("NetworkPolicy")["spec"]["ingress"] if "from" not in rule
    ]
    assert [port["port"] for port in requests["ports"]] == [8000, 8001]


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


def test_one_target_is_scraped_under_ray_and_every_pod_without() -> None:
    release = render({"metrics": {"enabled": True}})
    monitor = release.the("PodMonitor")["spec"]
    assert selected(release, monitor["selector"]) == {"ray-head"}
    [endpoint] = monitor["podMetricsEndpoints"]
    assert endpoint["path"] == "/metrics"
    assert ports(release.pods()["ray-head"])[endpoint["port"]] == 8000

    release = render({"metrics": {"enabled": True, "via": "scrapeConfig"}})
    [targets] = release.the("ScrapeConfig")["spec"]["staticConfigs"]
    assert targets["targets"] == [f"prod-offramp-serve-svc.{NAMESPACE}.svc:8000"]
    assert not release.every("PodMonitor")

    release = render({"mode": "deployment", "metrics": {"enabled": True}})
    [monitor] = [o["spec"] for o in release.every("ServiceMonitor")]
    service = release.the("Service")
    labels = service["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["ports"][0]["name"] == monitor["endpoints"][0]["port"]
    assert not release.every("PodMonitor")


def test_rays_own_metrics_come_from_head_and_workers() -> None:
    release = render(MONITORING)
    [own] = [o for o in release.every("PodMonitor") if o["metadata"]["name"].endswith("-ray")]
    for endpoint in own["spec"]["podMetricsEndpoints"]:
        for name in ("ray-head", "ray-worker"):
            assert endpoint["port"] in ports(release.pods()[name])
    assert selected(release, own["spec"]["selector"]) >= {"ray-head", "ray-worker"}
    assert own["metadata"]["labels"]["release"] == "prometheus"


def test_hpa_scales_the_deployment_by_seconds_of_queued_work() -> None:
    scaling = {"type": "hpa", "targetQueueSeconds": 0.25}
    release = scaled_deployment("HorizontalPodAutoscaler", scaling)
    [metric] = release.the("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == "offramp_queue_seconds"
    assert metric["pods"]["target"]["averageValue"] == "250m"


def test_keda_scales_the_deployment_by_seconds_of_queued_work() -> None:
    scaling = {"type": "keda", "keda": {"serverAddress": "http://prometheus:9090"}}
    release = scaled_deployment("ScaledObject", scaling, "autoscaling.targetQueueSeconds=0.25")
    [trigger] = release.the("ScaledObject")["spec"]["triggers"]
    service = release.the("Service")["metadata"]["name"]
    assert trigger["metadata"] == {
        "serverAddress": "http://prometheus:9090",
        "query": f'sum(offramp_queue_seconds{{namespace="{NAMESPACE}",service="{service}"}})',
        "threshold": "0.25",
    }


def scaled_deployment(kind: str, scaling: Values, *sets: str) -> Rendered:
    """Render with an autoscaler; check its target and that the Deployment names no number."""
    release = render({"mode": "deployment", "autoscaling": scaling}, sets)
    target = release.the(kind)["spec"]["scaleTargetRef"]
    deployment = release.the("Deployment")
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    assert "replicas" not in deployment["spec"]
    return release


def test_budget_is_left_out_for_a_single_server() -> None:
    for values in ({"replicas": 1}, {"replicas": 1, "mode": "deployment"}):
        assert not render(values).every("PodDisruptionBudget")
    assert render().the("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_replicas_fit_into_the_workers() -> None:
    values = {"replicas": 5, "ray": {"replicasPerWorker": 2}, "server": {"numThreads": 1}}
    release = render(values)
    [group] = release.cluster["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (3, 3, 3)
    [deployment] = release.serve_config["applications"][0]["deployments"]
    assert (deployment["num_replicas"], deployment["max_replicas_per_node"]) == (5, 2)


def test_ray_scales_replicas_and_workers_follow() -> None:
    scaling = {"enabled": True, "minReplicas": 3, "maxReplicas": 9}
    release = render({"ray": {"autoscaling": scaling}})
    [group] = release.cluster["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (3, 1, 64)
    assert release.cluster["enableInTreeAutoscaling"] is True
    [deployment] = release.serve_config["applications"][0]["deployments"]
    assert "num_replicas" not in deployment
    scaled = deployment["autoscaling_config"]
    assert (scaled["min_replicas"], scaled["max_replicas"]) == (3, 9)

    # KubeRay would not take other bounds of the workers over into the cluster that runs.
    more = render({"ray": {"autoscaling": {**scaling, "maxReplicas": 20}}})
    assert more.cluster == release.cluster


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
