"""The engine of the small model in front, and the way from it to the large model's."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, cast

from serve.classifier.small_exits import OpenSmall, SmallRow
from serve.engine.admission import QueueLimits
from serve.engine.engine import Engine
from serve.engine.row import Answer, BatchStats, Deliver, Outcome, Row
from serve.engine.scheduler import BatchLimits
from serve.engine.warm_up import WarmUp, measure
from serve.errors import OfframpError
from serve.rules.criterion import Reason
from serve.runtime.cpu_runner import CpuRunner


class StageObserver(Protocol):
    """Counts what the small model does. Called from its engine's thread."""

    def batch(self, stats: BatchStats) -> None:
        """Count a segment run."""
        ...

    def answer(self, answer: Answer, num_tokens: int) -> None:
        """Count an answer of the small model's own exits."""
        ...


class Cascade:
    """Runs rows through the small model; those that do not leave there go on to the large one.

    Attributes:
        engine: the small model's.
    """

    def __init__(
        self,
        small: OpenSmall,
        large: Engine,
        deliver: Deliver,
        observer: StageObserver,
        limits: tuple[BatchLimits, QueueLimits],
        warm_up: WarmUp,
    ) -> None:
        """Load and warm the small model.

        Args:
            small: the model.
            large: takes the rows that go on.
            deliver: gets the outcomes of rows of the large model, as from its engine.
            observer: counts what the small model does.
            limits: how large a batch may grow, and how much is admitted.
            warm_up: what to run before the first request.
        """
        self._exits, self._large, self._pass_on = small.exits, large, deliver
        self._observer = observer
        costs = measure(small.runner, small.exits.max_tokens, warm_up)
        shape = replace(small.exits.shape, costs=costs)
        self.engine = Engine(small.runner, shape, self._deliver, observer.batch, *limits)
        if isinstance(small.runner, CpuRunner):
            # On the same cores one after the other: at 64 clients a tenth more texts than at once.
            self.engine.turn = large.turn = threading.Lock()

    def submit(self, rows: Sequence[Row]) -> None:
        """Admit rows: those with tokens for the small model there, the others to the large one.

        Errors are those of `Engine.submit`.
        """
        first = [SmallRow(row, self._exits) for row in rows if row.in_front]
        others = [row for row in rows if not row.in_front]
        if others:
            self._large.submit(others)
        try:
            if first:
                self.engine.submit(first)
        except OfframpError:
            for row in others:
                row.cancelled = True
            raise

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        settled = (self._settled(cast("SmallRow", row), result) for row, result in outcomes)
        if left := [outcome for outcome in settled if outcome]:
            self._pass_on(left)

    def _settled(self, row: SmallRow, result: Answer | OfframpError) -> Outcome | None:
        """Return the outcome of the row behind; None if the large model will have one."""
        if isinstance(result, OfframpError):
            return Outcome(row.behind, result)
        answer = self._exits.answer(row, result)
        if answer.reason is not Reason.FINAL:
            self._observer.answer(result, row.num_tokens)
            return Outcome(row.behind, answer)
        row.behind.so_far = answer._replace(reason=Reason.DEADLINE)
        try:
            self._large.submit([row.behind])
        except OfframpError as error:
            return Outcome(row.behind, error)
        return None
