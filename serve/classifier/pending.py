"""Carries outcomes from the engine's thread to the request that waits on an event loop."""

import asyncio
import contextlib
from collections.abc import Sequence

from serve.engine.row import Answer, Outcome
from serve.errors import OfframpError


class Pending:
    """Collects the answers of one request; the first error ends the request."""

    def __init__(self, num_rows: int, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for `num_rows` outcomes, to be settled on `loop`."""
        self.loop = loop
        self._answers: list[Answer | None] = [None] * num_rows
        self._num_open = num_rows
        self._future: asyncio.Future[None] = loop.create_future()

    async def answers(self) -> list[Answer]:
        """Return the answers in the order of the rows.

        Raises:
            OfframpError: the first error of any row.
        """
        await self._future
        return [answer for answer in self._answers if answer is not None]

    def settle(self, place: int, result: Answer | OfframpError) -> None:
        """Record the outcome of one row. To be called on the loop's thread only."""
        if self._future.done():
            return
        if isinstance(result, OfframpError):
            self._future.set_exception(result)
            return
        self._answers[place] = result
        self._num_open -= 1
        if not self._num_open:
            self._future.set_result(None)


def settle_on_their_loops(outcomes: Sequence[Outcome]) -> None:
    """Hand outcomes, whose rows are tagged (Pending, place), to their event loops.

    Each loop is woken once, however many outcomes it gets. Closed loops are left out.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.row.tag[0].loop, []).append(outcome)
    for loop, of_loop in by_loop.items():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, of_loop)


def _settle(outcomes: Sequence[Outcome]) -> None:
    for row, result in outcomes:
        pending, place = row.tag
        pending.settle(place, result)
