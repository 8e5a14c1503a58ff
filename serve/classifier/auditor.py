"""From a model's answered requests to its audits."""

import asyncio
from collections.abc import Sequence

from serve.audits.draw import Draw
from serve.audits.lane import AuditLane
from serve.classifier.audited import Comparing
from serve.classifier.audited_request import AuditedRequest
from serve.policy.audit import Audit


class Auditor:
    """Draws texts of answered requests, and offers them to the lane. On one event loop."""

    def __init__(self, lane: AuditLane, comparing: Comparing | None) -> None:
        """Take the model's lane, and how its answers are compared; None where they cannot be."""
        self._lane, self._comparing, self._draw = lane, comparing, Draw()

    @property
    def compares(self) -> bool:
        """Whether answers can be compared."""
        return self._comparing is not None

    def draw(self, num_texts: int, wanted: Audit) -> Sequence[int]:
        """Return the places of the next request's texts that are drawn; asked for every request."""
        return self._draw.places(num_texts, wanted.share) if self._comparing else ()

    def audit_soon(self, done: AuditedRequest, places: Sequence[int]) -> None:
        """Offer texts once the event loop is free again, which is when the answer has been sent."""
        asyncio.get_running_loop().call_soon(self._offer, done, places)

    def _offer(self, done: AuditedRequest, places: Sequence[int]) -> None:
        assert self._comparing is not None
        for place in places:
            served = done.served(place, self._comparing)
            self._lane.offer(served, done.live.audit)
