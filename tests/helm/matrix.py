"""Values that people might install with, one set for each thing the chart can do."""

from typing import Any

POLICIES = {
    "sst2-minilm": {
        "default": "balanced",
        "profiles": {
            "balanced": {"rule": "entropy", "threshold": 0.1},
            "fast": {"rule": "patience", "patience": 1, "max_layer": 3},
        },
        "limits": {"overrides": "profiles", "min_layer": 1},
    }
}
GPU = {"gpu": {"enabled": True, "memoryGb": 8}, "image": {"cuda": True}}
DOWNLOAD = {
    "source": "download",
    "download": {
        "archives": [
            {
                "name": "sst2-minilm",
                "url": "https://models.example:8443/sst2-minilm.tar.gz",
                "sha256": "0" * 64,
            }
        ],
        "tokenSecret": {"name": "models"},
    },
}
EDGE = {"hosts": ["offramp.example"], "tls": [{"secretName": "tls", "hosts": ["offramp.example"]}]}
ROUTE = {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["offramp.example"]}
EXTRAS = {
    "imagePullSecrets": [{"name": "pull"}],
    "image": {"digest": "sha256:" + "a" * 64},
    "podLabels": {"team": "nlp"},
    "podAnnotations": {"example.com/note": "1"},
    "commonLabels": {"team": "nlp"},
    "commonAnnotations": {"example.com/owner": "nlp"},
    "priorityClassName": "high",
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    },
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraEnvFrom": [{"configMapRef": {"name": "settings"}}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
    "extraInitContainers": [{"name": "first", "image": "busybox:1"}],
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "{{ .Release.Name }}-more"},
            "data": {"key": "value"},
        }
    ],
    "serviceAccount": {"create": False, "name": "mine"},
    "service": {"annotations": {"example.com/lb": "internal"}},
    "server": {"activeExits": {"sst2-minilm": [2, 4, 6]}},
}
MONITORING = {
    "metrics": {"enabled": True, "ray": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "annotations": {"folder": "Models"}},
}
CLOSED = {
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"clients": "yes"}}}],
        "scrapers": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "operator": {"namespaceSelector": {"matchLabels": {"name": "kuberay"}}},
        "egress": {"extra": [{"ports": [{"port": 3128}]}]},
    }
}

BOTH: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one replica": {"replicas": 1},
    "policies": {"policies": POLICIES},
    "gpu": GPU,
    "download": {"bundles": DOWNLOAD},
    "download and policies": {"bundles": DOWNLOAD, "policies": POLICIES},
    "volume": {"bundles": {"source": "pvc", "pvc": {"claimName": "models", "subPath": "bundles"}}},
    "ingress": {"ingress": {"enabled": True, "className": "nginx", **EDGE}},
    "route": {"httpRoute": ROUTE},
    "ingress and route": {
        "ingress": {"enabled": True, **EDGE},
        "httpRoute": {**ROUTE, "besideIngress": True},
    },
    "monitoring": MONITORING,
    "extras": EXTRAS,
    "closed": CLOSED,
    "nothing but pods": {
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "topologySpread": {"enabled": False},
        "serviceAccount": {"create": False},
    },
    "budget by the least": {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": None}},
}

RAYSERVICE: dict[str, dict[str, Any]] = {
    "autoscaling": {
        "ray": {"autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 9}},
        "bundles": DOWNLOAD,
    },
    "redis": {
        "ray": {
            "gcsFaultTolerance": {
                "backend": "redis",
                "redis": {
                    "address": "redis.db:6380",
                    "username": "ray",
                    "passwordSecret": {"name": "redis"},
                },
            }
        }
    },
    "rocksdb": {
        "ray": {"gcsFaultTolerance": {"backend": "rocksdb", "rocksdb": {"storageClassName": "ssd"}}}
    },
    "rocksdb on a claim": {
        "ray": {"gcsFaultTolerance": {"backend": "rocksdb", "rocksdb": {"claimName": "gcs"}}}
    },
    "token of one's own": {"ray": {"auth": {"existingSecret": "ray-token"}}},
    "no token": {"ray": {"auth": {"enabled": False}}},
    "python proxy": {"ray": {"haproxy": False}, **MONITORING},
    "crowded workers": {
        "replicas": 5,
        "server": {
            "numThreads": 2,
            "maxQueueRows": 4096,
            "maxQueueTokens": 1234567,
            "maxInputs": 16,
            "maxBodyBytes": 12345678,
        },
        "ray": {"replicasPerWorker": 2, "requestTimeoutSeconds": 30},
    },
    "shared gpu": {
        "gpu": {"enabled": True, "perReplica": 0.5, "memoryGb": 20, "resourceName": "x.com/mig-1"},
        "image": {"cuda": True, "tag": "own"},
        "ray": {"replicasPerWorker": 2},
    },
    "scrape by the service": {"metrics": {"enabled": True, "via": "scrapeConfig"}},
    "head settings": {
        "ray": {
            "head": {
                "nodeSelector": {"pool": "steady"},
                "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": {}},
                "startParams": {"include-log-monitor": "false"},
            },
            "workerStartParams": {"include-log-monitor": "false"},
        }
    },
}

DEPLOYMENT: dict[str, dict[str, Any]] = {
    "hpa": {
        "autoscaling": {
            "type": "hpa",
            "targetQueueSeconds": 0.25,
            "hpa": {"targetCPUPercent": 80},
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 600}},
        }
    },
    "keda": {
        "autoscaling": {
            "type": "keda",
            "keda": {"serverAddress": "http://prometheus:9090"},
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 600}},
        }
    },
    "load balancer": {"service": {"type": "LoadBalancer", "port": 80}},
    "update by share": {"deployment": {"maxSurge": "50%", "maxUnavailable": "25%"}},
}

CASES = [(f"rayservice: {name}", {**values}) for name, values in {**BOTH, **RAYSERVICE}.items()] + [
    (f"deployment: {name}", {**values, "mode": "deployment"})
    for name, values in {**BOTH, **DEPLOYMENT}.items()
]
