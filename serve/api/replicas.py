"""What the HTTP app needs of the other replicas; a single process is its own only one."""

from typing import NamedTuple, Protocol

from serve.classifier.catalog import Catalog
from serve.metrics.collectors import Metrics


class Ack(NamedTuple):
    """A replica and the policy version that it applies."""

    replica: str
    version: int


class Refreshed(NamedTuple):
    """Replicas that confirmed, and how many did not in time (they follow by polling)."""

    acks: list[Ack]
    unconfirmed: int


class Replicas(Protocol):
    """All replicas that serve the same models, this one included."""

    async def refresh_policy(self, model: str) -> Refreshed:
        """Make every replica take up the newest stored policy of a model."""
        ...

    async def metrics_text(self) -> bytes:
        """Return the metrics of every replica as Prometheus text."""
        ...


class OnlyReplica:
    """A process that is alone."""

    def __init__(self, catalog: Catalog, metrics: Metrics) -> None:
        self._catalog = catalog
        self._metrics = metrics

    async def refresh_policy(self, model: str) -> Refreshed:
        version = self._catalog.find(model).policy.refresh().version
        return Refreshed([Ack("local", version)], unconfirmed=0)

    async def metrics_text(self) -> bytes:
        return self._metrics.page()
