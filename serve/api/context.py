"""What the routes work with."""

from dataclasses import dataclass, field

from serve.api.replicas import Replicas
from serve.classifier.catalog import Catalog
from serve.config import WebLimits
from serve.metrics.collectors import Metrics
from serve.metrics.connections import ConnectionState


@dataclass(frozen=True, slots=True)
class AppContext:
    """The models, the metrics, the other replicas, the limits and the HTTP server's state."""

    catalog: Catalog
    metrics: Metrics
    replicas: Replicas
    limits: WebLimits = WebLimits()
    connections: ConnectionState = field(default_factory=ConnectionState)
