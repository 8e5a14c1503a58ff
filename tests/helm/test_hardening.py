"""Rights of pods, network policy, secrets."""

import json
from typing import Any

import pytest

from tests.helm.chart import Object, Rendered, render
from tests.helm.matrix import CLOSED, DOWNLOAD, RAYSERVICE, Values, every_case
from tests.helm.test_wiring import containers

# GCS, dashboard, HAProxy's page, Ray's own proxy behind it, Ray client, agent.
RAY_STEERS = {6379, 8265, 8404, 8500, 10001, 52365}


@every_case
def test_containers_have_no_more_rights_than_they_need(values: Values) -> None:
    for pod in render(values).pods().values():
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        extras = {c["name"] for c in values.get("extraInitContainers", ())}
        for container in containers(pod):
            if container["name"] in extras:
                continue
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            if container["name"] != "classify":
                assert "/tmp" in [m["mountPath"] for m in container["volumeMounts"]]


@every_case
def test_only_a_head_with_an_autoscaler_may_speak_to_kubernetes(values: Values) -> None:
    scaling = values.get("ray", {}).get("autoscaling", {}).get("enabled", False)
    for name, pod in render(values).pods().items():
        allowed = name == "ray-head" and scaling
        assert pod["spec"]["automountServiceAccountToken"] is allowed


@pytest.mark.parametrize("values", [DOWNLOAD, RAYSERVICE["redis"], RAYSERVICE["own token"]])
def test_secrets_are_named_and_not_written_out(values: Values) -> None:
    release = render({**values, "auth": {"existingSecret": "keys"}})
    assert not release.every("Secret")
    for pod in release.pods().values():
        for container in containers(pod):
            for variable in container.get("env", ()):
                if variable["name"].endswith(("TOKEN", "PASSWORD", "SECRET", "KEY")):
                    assert "secretKeyRef" in variable["valueFrom"]
    password = release.cluster.get("gcsFaultToleranceOptions", {}).get("redisPassword", {})
    assert "value" not in password


def peers_of(release: Rendered, port: int) -> list[Any]:
    """Return who may connect to a port: peers, None for all."""
    found: list[Any] = []
    for rule in release.the("NetworkPolicy")["spec"]["ingress"]:
        if "ports" not in rule or port in [p["port"] for p in rule["ports"]]:
            found += rule.get("from", [None])
    return found


def own(peer: Any) -> bool:
    """Tell whether a peer is the release itself."""
    return bool(
        peer
        and set(peer) == {"podSelector"}
        and peer["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "prod"
    )


def test_requests_and_metrics_come_in_and_nothing_else() -> None:
    for mode in ("rayservice", "deployment"):
        release = render({"mode": mode})
        assert None in peers_of(release, 8000)
        strangers = {
            port["port"]
            for rule in release.the("NetworkPolicy")["spec"]["ingress"]
            if None in rule.get("from", [None])
            for port in rule["ports"]
        }
        assert strangers == {8000}


def test_only_the_operator_and_the_cluster_itself_reach_what_steers_it() -> None:
    release = render(CLOSED)
    operator = {
        "namespaceSelector": {"matchLabels": {"name": "kuberay"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}},
    }
    for port in RAY_STEERS | {30000, 31000, 40000}:
        others = [peer for peer in peers_of(release, port) if not own(peer)]
        assert others == ([operator] if port in (8265, 52365) else [])


def test_clients_and_scrapers_can_be_named() -> None:
    closed = {**CLOSED, "metrics": {"enabled": True, "ray": True}}
    release = render(closed)
    named = CLOSED["networkPolicy"]
    assert None not in peers_of(release, 8000)
    assert all(peer in peers_of(release, 8000) for peer in named["clients"] + named["scrapers"])
    for port in (8080, 9101):
        assert [p for p in peers_of(release, port) if not own(p)] == named["scrapers"]


def test_every_port_that_is_scraped_is_open_to_scrapers() -> None:
    release = render({"metrics": {"enabled": True, "ray": True}})
    scraped = {
        endpoint["port"]
        for monitor in release.every("PodMonitor")
        for endpoint in monitor["spec"]["podMetricsEndpoints"]
    }
    head = release.pods()["ray-head"]["spec"]["containers"][0]
    for port in head["ports"]:
        if port["name"] in scraped:
            assert {"namespaceSelector": {}} in peers_of(release, port["containerPort"])


def egress_ports(release: Rendered) -> set[int]:
    """Return the ports that may be connected to anywhere."""
    rules: list[Object] = release.the("NetworkPolicy")["spec"]["egress"]
    return {p["port"] for rule in rules if "to" not in rule for p in rule["ports"]}


def test_pods_connect_to_what_the_values_name_and_no_further() -> None:
    assert egress_ports(render()) == {53}
    assert egress_ports(render(DOWNLOAD)) == {53, 8443}
    assert egress_ports(render(RAYSERVICE["redis"])) == {53, 6380}
    scaling = {"ray": {"autoscaling": {"enabled": True}}}
    assert egress_ports(render(scaling)) == {53, 443, 6443}
    assert egress_ports(render({**scaling, "mode": "rayservice", **CLOSED})) >= {3128}
    text = json.dumps(render().the("NetworkPolicy")["spec"]["egress"])
    assert '"app.kubernetes.io/instance": "prod"' in text
