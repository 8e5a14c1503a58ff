"""The API server's checks: of Kubernetes' own kinds and of the custom kinds in use."""

import jsonschema
import kubernetes_validate

from tests.helm.chart import Object
from tests.helm.custom_kinds import SCHEMAS

# The oldest version that Chart.yaml admits, and the newest with schemas.
VERSIONS = ("1.27", "1.37")
CUSTOM = {"gateway.networking.k8s.io", "keda.sh", "monitoring.coreos.com", "ray.io"}


def check(thing: Object, version: str) -> None:
    """Raise if an API server of this version would refuse the object, or drop a field of it."""
    if thing["apiVersion"].split("/")[0] in CUSTOM:
        _check_custom(thing, version)
    else:
        kubernetes_validate.validate(thing, version, strict=True)


def _check_custom(thing: Object, version: str) -> None:
    jsonschema.validate(thing, SCHEMAS[thing["kind"]])
    if thing["kind"] == "RayService":
        cluster = thing["spec"]["rayClusterConfig"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
            kubernetes_validate.validate(pod, version, strict=True)
