"""What the routes work with."""

from dataclasses import dataclass

from serve.api.replicas import Replicas
from serve.classifier.catalog import Catalog
from serve.metrics.collectors import Metrics


@dataclass(frozen=True, slots=True)
class WebLimits:
    """Bounds on one request.

    Attributes:
        max_body_bytes: of the request body.
        max_inputs: texts in one request.
    """

    max_body_bytes: int = 2 * 1024 * 1024
    max_inputs: int = 256


@dataclass(frozen=True, slots=True)
class AppContext:
    """The models, the metrics, the other replicas and the limits."""

    catalog: Catalog
    metrics: Metrics
    replicas: Replicas
    limits: WebLimits = WebLimits()
