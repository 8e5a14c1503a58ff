"""What the routes work with."""

from dataclasses import dataclass

from serve.api.replicas import Replicas
from serve.classifier.catalog import Catalog
from serve.config import WebLimits
from serve.metrics.collectors import Metrics


@dataclass(frozen=True, slots=True)
class AppContext:
    """The models, the metrics, the other replicas and the limits."""

    catalog: Catalog
    metrics: Metrics
    replicas: Replicas
    limits: WebLimits = WebLimits()
