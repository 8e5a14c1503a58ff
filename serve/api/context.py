"""What the routes work with."""

from dataclasses import dataclass, field
from typing import Final

from serve.access.held_bytes import HeldBytes
from serve.access.proxies import TrustedProxies
from serve.api.access import Access
from serve.api.model_loading import ModelChanges
from serve.api.replicas import Replicas
from serve.classifier.catalog import Catalog
from serve.config import WebLimits
from serve.http.settings import ConnectionState
from serve.metrics.metrics import Metrics
from serve.policy.threads import DryRunThread, PolicyThreads
from serve.tracing import Tracing

_MOST_HELD: Final = WebLimits().max_buffered_bytes


@dataclass(frozen=True, slots=True)
class AppContext:
    """The models and what goes with them.

    Attributes:
        catalog: the models.
        metrics: this process's metrics.
        replicas: all that serve the same models.
        limits: on one request.
        access: who may do what.
        proxies: proxies whose word on the client's address is trusted.
        cors_origins: web pages that may ask the server.
        access_log: whether every request has a log line.
        tracing: makes spans of classifications; None where no endpoint for them is configured.
        connections: state of this process's HTTP server.
        policy_threads: where calls wait that may wait for the store of policies.
        dry_runs: where dry runs of policies are computed.
        behind_proxy: whether Ray Serve's proxy hands requests on, and their ids with the answers.
        bodies: the bodies that this process holds until their requests are answered.
        answers: over HTTP, that clients have not taken yet.
        event_streams: the clients, by identity, that this process sends events to.
        changes: changes the models; None where they stay as they are.
    """

    catalog: Catalog
    metrics: Metrics
    replicas: Replicas
    limits: WebLimits = WebLimits()
    access: Access = field(default_factory=Access)
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    cors_origins: tuple[str, ...] = ()
    access_log: bool = False
    tracing: Tracing | None = None
    connections: ConnectionState = field(default_factory=ConnectionState)
    policy_threads: PolicyThreads = field(default_factory=PolicyThreads)
    dry_runs: DryRunThread = field(default_factory=DryRunThread)
    behind_proxy: bool = False
    bodies: HeldBytes = field(default_factory=lambda: HeldBytes(_MOST_HELD, "bodies"))
    answers: HeldBytes = field(default_factory=lambda: HeldBytes(_MOST_HELD, "answers"))
    event_streams: list[str] = field(default_factory=list)
    changes: ModelChanges | None = None
