"""Carries outcomes from the engine's thread to the request that waits on an event loop."""

import asyncio
import contextlib
from collections.abc import Sequence

from serve.classifier.race import Race
from serve.engine.row import Answer, Outcome
from serve.errors import OfframpError


class Pending:
    """Collects the answers of one request; the first error ends the request."""

    def __init__(
        self, num_rows: int, loop: asyncio.AbstractEventLoop, race: Race | None = None
    ) -> None:
        """Wait for `num_rows` outcomes, to be settled on `loop`.

        Args:
            num_rows: how many outcomes will come.
            loop: where they are settled.
            race: knows the rows that need no outcome, because another row has answered for them.
        """
        self.loop = loop
        self._race = race
        self._answers: list[Answer | None] = [None] * num_rows
        self._num_open = num_rows
        self._future: asyncio.Future[None] = loop.create_future()

    async def answers(self) -> list[Answer | None]:
        """Return the answers in the order of the rows; None for rows that need none.

        Raises:
            OfframpError: the first error of any row.
        """
        await self._future
        return self._answers

    def settle(self, place: int, result: Answer | OfframpError) -> None:
        """Record the outcome of one row. To be called on the loop's thread only."""
        if self._future.done() or (self._race and self._race.over(place)):
            return
        if isinstance(result, OfframpError):
            self._future.set_exception(result)
            return
        self._answers[place] = result
        self._num_open -= 1
        if self._race:
            self._num_open -= self._race.finish(place, result)
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
