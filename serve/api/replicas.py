"""The interface to the other replicas, and its implementation for a single process."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from serve.classifier.catalog import Catalog
from serve.metrics.collectors import Metrics


class Ack(NamedTuple):
    """A replica and the policy version that it applies."""

    replica: str
    version: int


class Refreshed(NamedTuple):
    """The replicas that confirmed, and those that did not in time; they follow by polling.

    Attributes:
        acks: of those that confirmed.
        unconfirmed: how many did not.
        missing: ids of those that did not, as far as known.
    """

    acks: list[Ack]
    unconfirmed: int = 0
    missing: Sequence[str] = ()


class Replicas(Protocol):
    """All replicas that serve the same models, this one included."""

    @property
    def number(self) -> int:
        """How many there should be."""
        ...

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

    @property
    def number(self) -> int:
        return 1

    async def refresh_policy(self, model: str) -> Refreshed:
        version = self._catalog.find(model).policy.refresh().version
        return Refreshed([Ack("local", version)])

    async def metrics_text(self) -> bytes:
        # On a thread, because the page has a thousand lines and more.
        return await asyncio.to_thread(self._metrics.page)
