"""What the routes work with."""

from dataclasses import dataclass, field

from serve.api.dialect import ALL
from serve.api.guard import Guard
from serve.api.replicas import Replicas
from serve.classifier.catalog import Catalog
from serve.config import WebLimits
from serve.metrics.collectors import Metrics
from serve.metrics.connections import ConnectionState
from serve.tracing import Tracing


@dataclass(frozen=True, slots=True)
class AppContext:
    """The models and what goes with them.

    Attributes:
        catalog: the models.
        metrics: of this process.
        replicas: all that serve the same models.
        limits: on one request.
        guard: who may do what.
        cors_origins: web pages that may ask the server.
        access_log: whether every request has a log line.
        tracing: makes spans of classifications; None where no endpoint for them is configured.
        dialects: names of those that the server speaks, or `all`.
        connections: state of this process's HTTP server.
    """

    catalog: Catalog
    metrics: Metrics
    replicas: Replicas
    limits: WebLimits = WebLimits()
    guard: Guard = field(default_factory=Guard)
    cors_origins: tuple[str, ...] = ()
    access_log: bool = False
    tracing: Tracing | None = None
    dialects: tuple[str, ...] = (ALL,)
    connections: ConnectionState = field(default_factory=ConnectionState)
