"""Schemas of the custom kinds that the chart makes: the fields in use, no others."""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
DURATION: Schema = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
# What Kubernetes' own schemas describe; pod templates are checked as pods.
ANYTHING: Schema = {"type": "object"}
TEXTS_BY_NAME: Schema = {"type": "object", "additionalProperties": {"type": "string"}}


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def fields(needed: Schema | None = None, **optional: Schema) -> Schema:
    """Return the schema of an object with these fields and no others."""
    needed = needed or {}
    required = {"required": list(needed)} if needed else {}
    properties = needed | optional
    return {"type": "object", "additionalProperties": False, **required, "properties": properties}


def some(items: Schema) -> Schema:
    """Return the schema of a list that is not empty."""
    return {"type": "array", "items": items, "minItems": 1}


def kind(api_version: str, name: str, spec: Schema) -> Schema:
    metadata = fields({"name": TEXT, "labels": TEXTS_BY_NAME}, annotations=TEXTS_BY_NAME)
    types = {"apiVersion": {"const": api_version}, "kind": {"const": name}}
    return fields({**types, "metadata": metadata, "spec": spec})


# Gateway API, v1: kubernetes-sigs/gateway-api, apis/v1.
_MATCH = fields({"path": fields({"type": one_of("PathPrefix", "Exact"), "value": TEXT})})
_FILTER = fields(
    {
        "type": {"const": "RequestHeaderModifier"},
        "requestHeaderModifier": fields(remove=some(TEXT)),
    }
)
HTTP_ROUTE = kind(
    "gateway.networking.k8s.io/v1",
    "HTTPRoute",
    fields(
        {
            "parentRefs": some(
                fields({"name": TEXT}, namespace=TEXT, sectionName=TEXT, port=NUMBER)
            ),
            "rules": some(
                fields(
                    {
                        "matches": some(_MATCH),
                        "backendRefs": some(fields({"name": TEXT, "port": NUMBER})),
                    },
                    filters=some(_FILTER),
                )
            ),
        },
        hostnames=some(TEXT),
    ),
)

# Prometheus operator, v0.70 and later: prometheus-operator/prometheus-operator,
# Documentation/api.md.
_OPERATOR = "monitoring.coreos.com"
_SELECTOR = fields({"matchLabels": TEXTS_BY_NAME})
_ENDPOINT = fields(
    {"port": TEXT},
    path=TEXT,
    interval=DURATION,
    scrapeTimeout=DURATION,
    relabelings=some(fields({"sourceLabels": some(TEXT), "targetLabel": TEXT})),
)
_RULE = {
    **fields(
        {"expr": {"type": ["string", "integer"]}},
        alert=TEXT,
        record=TEXT,
        **{"for": DURATION},
        keep_firing_for=DURATION,
        labels=TEXTS_BY_NAME,
        annotations=TEXTS_BY_NAME,
    ),
    "oneOf": [{"required": ["alert"]}, {"required": ["record"]}],
}
POD_MONITOR = kind(
    f"{_OPERATOR}/v1",
    "PodMonitor",
    fields({"selector": _SELECTOR, "podMetricsEndpoints": some(_ENDPOINT)}),
)
SERVICE_MONITOR = kind(
    f"{_OPERATOR}/v1",
    "ServiceMonitor",
    fields({"selector": _SELECTOR, "endpoints": some(_ENDPOINT)}),
)
SCRAPE_CONFIG = kind(
    f"{_OPERATOR}/v1alpha1",
    "ScrapeConfig",
    fields(
        {"staticConfigs": some(fields({"targets": some(TEXT)}, labels=TEXTS_BY_NAME))},
        metricsPath=TEXT,
        scrapeInterval=DURATION,
        scrapeTimeout=DURATION,
    ),
)
PROMETHEUS_RULE = kind(
    f"{_OPERATOR}/v1",
    "PrometheusRule",
    fields({"groups": some(fields({"name": TEXT, "rules": some(_RULE)}, interval=DURATION))}),
)

# KEDA 2: kedacore/keda, apis/keda/v1alpha1, and its Prometheus scaler.
_TRIGGER = fields(
    {
        "type": {"const": "prometheus"},
        "metadata": fields({"serverAddress": TEXT, "query": TEXT, "threshold": TEXT}),
    },
    metricType=one_of("AverageValue", "Value", "Utilization"),
)
SCALED_OBJECT = kind(
    "keda.sh/v1alpha1",
    "ScaledObject",
    fields(
        {
            "scaleTargetRef": fields({"name": TEXT}, apiVersion=TEXT, kind=TEXT),
            "triggers": some(_TRIGGER),
        },
        minReplicaCount=COUNT,
        maxReplicaCount=COUNT,
        pollingInterval=COUNT,
        cooldownPeriod=COUNT,
        advanced=fields(horizontalPodAutoscalerConfig=fields(behavior=ANYTHING)),
    ),
)

# KubeRay 1.7: ray-project/kuberay, ray-operator/apis/ray/v1.
_SECRET = fields(
    value=TEXT, valueFrom=fields({"secretKeyRef": fields({"name": TEXT, "key": TEXT})})
)
_AUTOSCALER = fields(
    version=one_of("v1", "v2"),
    idleTimeoutSeconds=COUNT,
    imagePullPolicy=one_of("Always", "IfNotPresent", "Never"),
    securityContext=ANYTHING,
    resources=ANYTHING,
    env=some(ANYTHING),
    volumeMounts=some(ANYTHING),
)
_FAULT_TOLERANCE = {
    **fields(
        backend=one_of("redis", "rocksdb"),
        redisAddress=TEXT,
        redisUsername=_SECRET,
        redisPassword=_SECRET,
        externalStorageNamespace=TEXT,
        storage=fields(claimName=TEXT, size=TEXT, storageClassName=TEXT),
    ),
    "oneOf": [
        {"required": ["redisAddress"], "not": {"required": ["storage"]}},
        {"required": ["backend", "storage"], "not": {"required": ["redisAddress"]}},
    ],
}
_POD = {"template": ANYTHING, "rayStartParams": TEXTS_BY_NAME}
_WORKERS = fields(
    {"groupName": TEXT, "minReplicas": COUNT, "maxReplicas": COUNT, **_POD}, replicas=COUNT
)
_CLUSTER = fields(
    {"headGroupSpec": fields(_POD), "rayVersion": TEXT},
    authOptions=fields(mode=one_of("disabled", "token"), secretName=TEXT),
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=_AUTOSCALER,
    gcsFaultToleranceOptions=_FAULT_TOLERANCE,
    workerGroupSpecs=some(_WORKERS),
)
RAY_SERVICE = kind(
    "ray.io/v1",
    "RayService",
    fields(
        {"rayClusterConfig": _CLUSTER, "serveConfigV2": TEXT},
        excludeHeadPodFromServeSvc=FLAG,
        rayClusterDeletionDelaySeconds=COUNT,
        upgradeStrategy=fields(type=one_of("NewCluster", "None")),
    ),
)

_KINDS = (
    HTTP_ROUTE,
    POD_MONITOR,
    SERVICE_MONITOR,
    SCRAPE_CONFIG,
    PROMETHEUS_RULE,
    SCALED_OBJECT,
    RAY_SERVICE,
)
SCHEMAS: dict[str, Schema] = {each["properties"]["kind"]["const"]: each for each in _KINDS}
