"""The interface to the other replicas, and its implementation for a single process."""

from typing import NamedTuple, Protocol

from serve.classifier.catalog import Catalog
from serve.metrics.collectors import Metrics


class Ack(NamedTuple):
    """A replica and the policy version that it applies."""

    replica: str
    version: int


class Refreshed(NamedTuple):
    """The replicas that confirmed, and how many did not in time; those follow by polling."""

    acks: list[Ack]
    unconfirmed: int


class Replicas(Protocol):
    """All replicas that serve the same models, this one included."""

    async def refresh_policy(self, model: str) -> Refreshed:
        """Make every replica apply the newest stored policy of a model."""
        ...

    async def metrics_text(self) -> bytes:
        """Return the metrics of every replica as Prometheus text."""
        ...


class OnlyReplica:
    """The replicas of a server that is a single process."""

    def __init__(self, catalog: Catalog, metrics: Metrics) -> None:
        self._catalog = catalog
        self._metrics = metrics

    async def refresh_policy(self, model: str) -> Refreshed:
        version = self._catalog.find(model).policy.refresh().version
        return Refreshed([Ack("local", version)], unconfirmed=0)

    async def metrics_text(self) -> bytes:
        return self._metrics.page()
