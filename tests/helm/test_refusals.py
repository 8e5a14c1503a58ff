"""Wrong values are refused, each with a sentence that says what would be right."""

from typing import Any

import pytest

from tests.helm.chart import Refused
from tests.helm.conftest import Render
from tests.helm.matrix import GPU

KEDA = {"type": "keda", "keda": {"serverAddress": "http://prometheus:9090"}}
DEPLOYMENT = {"mode": "deployment"}
INGRESS = {"enabled": True, "hosts": ["a.example"]}
ROUTE = {"enabled": True, "parentRefs": [{"name": "public"}]}
ARCHIVE = {"name": "other", "url": "https://a.example/x.tar", "sha256": "0" * 64}

CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"autoscaling": {"type": "hpa"}}, "autoscaling.type hpa is for mode deployment"),
    ({"autoscaling": KEDA}, "set ray.autoscaling.enabled instead"),
    ({"service": {"type": "LoadBalancer"}}, "in mode rayservice KubeRay makes the Service"),
    (
        {**DEPLOYMENT, "ray": {"autoscaling": {"enabled": True}}},
        "ray.autoscaling is for mode rayservice",
    ),
    (
        {**DEPLOYMENT, "metrics": {"enabled": True, "via": "scrapeConfig"}},
        "metrics.via scrapeConfig reads one page for all",
    ),
    ({**DEPLOYMENT, "server": {"maxInputs": 8}}, "server.maxInputs is for mode rayservice"),
    ({**DEPLOYMENT, "server": {"numThreads": 2}}, "server.numThreads is for mode rayservice"),
    (
        {
            **DEPLOYMENT,
            "bundles": {"names": ["a", "b"]},
            "server": {"activeExits": {"a": [1, 2]}},
        },
        "server.activeExits must be the same for every model in mode deployment",
    ),
    ({"gpu": {"enabled": True}}, "gpu.enabled needs an image that holds CUDA: set image.cuda"),
    ({**GPU, "server": {"precision": "int8"}}, "server.precision int8 is made for CPUs"),
    ({"server": {"precision": "fp16"}}, "server.precision fp16 is made for GPUs"),
    ({"gpu": {"memoryGb": 8}}, "gpu.memoryGb is set, but gpu.enabled is not"),
    (
        {**DEPLOYMENT, "gpu": {"enabled": True, "perReplica": 0.5}, "image": {"cuda": True}},
        "gpu.perReplica is for mode rayservice",
    ),
    ({**GPU, "ray": {"replicasPerWorker": 2}}, "do not fit into gpu.perPod 1"),
    ({"ingress": INGRESS, "httpRoute": ROUTE}, "choose one, or set httpRoute.besideIngress"),
    ({"ingress": {"enabled": True}}, "ingress.enabled needs ingress.hosts"),
    ({"httpRoute": {"enabled": True}}, "httpRoute.enabled needs httpRoute.parentRefs"),
    (
        {"replicas": 1, "podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": None}},
        "podDisruptionBudget.minAvailable 1 of 1 replicas would block every drain of a node",
    ),
    (
        {"podDisruptionBudget": {"minAvailable": 1}},
        "podDisruptionBudget has minAvailable and maxUnavailable",
    ),
    ({"bundles": {"source": "pvc"}}, "bundles.source pvc needs bundles.pvc.claimName"),
    ({"bundles": {"pvc": {"claimName": "x"}}}, "but bundles.source is image"),
    (
        {"bundles": {"source": "download"}},
        "bundles.names asks for sst2-minilm, which bundles.download.archives does not have; "
        "it has none",
    ),
    (
        {"bundles": {"source": "download", "download": {"archives": [ARCHIVE]}}},
        "it has other",
    ),
    ({"bundles": {"names": ["a", "a"]}}, "bundles.names holds a name twice: a, a"),
    ({"policies": {"nope": {"default": {"rule": "never"}}}}, "policies.nope: no such model"),
    (
        {
            "policies": {
                "sst2-minilm": {"default": "fast", "profiles": {"exact": {"rule": "never"}}}
            }
        },
        'policies.sst2-minilm.default: no profile "fast"; the policy has exact',
    ),
    ({"server": {"activeExits": {"nope": [1]}}}, "server.activeExits.nope: no such model"),
    (
        {"shutdown": {"terminationGracePeriodSeconds": 30}},
        "shutdown.terminationGracePeriodSeconds 30 is too short",
    ),
    (
        {"ray": {"gcsFaultTolerance": {"backend": "redis"}}},
        "backend redis needs ray.gcsFaultTolerance.redis.address",
    ),
    (
        {"ray": {"gcsFaultTolerance": {"redis": {"address": "redis:6379"}}}},
        "set ray.gcsFaultTolerance.backend to redis",
    ),
    (
        {
            "ray": {
                "gcsFaultTolerance": {
                    "backend": "rocksdb",
                    "rocksdb": {"claimName": "a", "storageClassName": "b"},
                }
            }
        },
        "rocksdb has claimName and storageClassName",
    ),
    (
        {"ray": {"auth": {"enabled": False, "existingSecret": "x"}}},
        "ray.auth.existingSecret is set, but ray.auth.enabled is not",
    ),
    ({"ray": {"replicasPerWorker": 2}}, "ray.replicasPerWorker 2 needs server.numThreads"),
    (
        {"ray": {"head": {"startParams": {"num-cpus": "4"}}}},
        "ray.head.startParams.num-cpus is the chart's to set",
    ),
    (
        {"ray": {"autoscaling": {"enabled": True, "minReplicas": 9}}},
        "ray.autoscaling.minReplicas 9 is more than ray.autoscaling.maxReplicas 8",
    ),
    (
        {"ray": {"autoscaling": {"enabled": True, "maxReplicas": 70}}},
        "ray.autoscaling.maxReplicas 70 needs 70 workers, and ray.autoscaling.maxWorkers is 64",
    ),
    (
        {**DEPLOYMENT, "autoscaling": {"type": "hpa", "minReplicas": 9}},
        "autoscaling.minReplicas 9 is more than autoscaling.maxReplicas 8",
    ),
    (
        {**DEPLOYMENT, "autoscaling": {"type": "keda"}},
        "autoscaling.type keda needs autoscaling.keda.serverAddress",
    ),
    ({"fullnameOverride": "1st"}, 'the name "1st" must begin with a letter'),
]

OUTSIDE_THE_SCHEMA: list[tuple[dict[str, Any], str]] = [
    ({"mode": "daemonset"}, "mode"),
    ({"replicas": 0}, "replicas"),
    ({"colour": "red"}, "colour"),
    ({"ray": {"colour": "red"}}, "colour"),
    # KubeRay then names its Service after the cluster of the moment.
    ({"ray": {"upgrade": {"type": "NewClusterWithIncrementalUpgrade"}}}, "upgrade.type"),
    ({"bundles": {"names": []}}, "bundles.names"),
    ({"image": {"digest": "latest"}}, "image.digest"),
    ({"ray": {"gracefulShutdownSeconds": 5}}, "gracefulShutdownSeconds"),
    ({"policies": {"sst2-minilm": {"default": {"threshold": 0.1}}}}, "policies.sst2-minilm"),
    (
        {"policies": {"sst2-minilm": {"profiles": {"a": {"rule": "entropy", "threshold": "low"}}}}},
        "threshold",
    ),
    (
        {
            "bundles": {
                "source": "download",
                "download": {"archives": [{**ARCHIVE, "sha256": "unknown"}]},
            }
        },
        "sha256",
    ),
]


@pytest.mark.parametrize(("values", "sentence"), CONTRADICTIONS, ids=[s for _, s in CONTRADICTIONS])
def test_contradiction_is_refused_with_a_sentence(
    rendered: Render, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Refused) as refusal:
        rendered(values)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(("values", "place"), OUTSIDE_THE_SCHEMA, ids=str)
def test_value_outside_the_schema_is_refused_by_name(
    rendered: Render, values: dict[str, Any], place: str
) -> None:
    with pytest.raises(Refused, match="(?s)schema.*" + place):
        rendered(values)


def test_all_contradictions_are_said_at_once(rendered: Render) -> None:
    with pytest.raises(Refused) as refusal:
        rendered({"gpu": {"enabled": True}, "ingress": {"enabled": True}})
    assert "gpu.enabled needs" in str(refusal.value)
    assert "ingress.enabled needs" in str(refusal.value)
