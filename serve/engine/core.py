"""One turn of the engine: choose, run, judge, retire, compact. No threads."""

import logging
from collections.abc import Callable, Iterable
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from serve.criteria.judge import Reason
from serve.engine.batch import Batch
from serve.engine.batch_merge import merge
from serve.engine.cost_model import CostModel
from serve.engine.cost_recorder import CostRecorder, SegmentRun
from serve.engine.executor import ModelShape, steps_of
from serve.engine.fast_path import FastPath
from serve.engine.out_of_memory import out_of_memory
from serve.engine.outputs import failed, final_outputs, non_finite_output
from serve.engine.row import Answer, BatchStats, Outcome, Row
from serve.engine.runner import AnyRunner, Gaps, mixes_depths
from serve.engine.scheduler import BatchLimits, Scheduler
from serve.engine.undisturbed import in_time
from serve.errors import Cancelled, DeadlineExceeded, OfframpError

__all__ = ["EngineCore", "ModelShape"]

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 0.005
_REASONS = tuple(Reason)
_STAYS = int(Reason.STAYS)  # numpy is five times as slow at comparing with an enum's member


class EngineCore:
    """Rows in flight, advanced one segment at a time by a single caller.

    Attributes:
        costs: what segments cost; kept fresh here.
        exit_depths: how many segments a row has been through at each exit.
    """

    def __init__(
        self,
        runner: AnyRunner,
        shape: ModelShape,
        limits: BatchLimits,
        clock: Callable[[], float],
        observe: Callable[[BatchStats], None],
        should_yield: Callable[[], bool] = lambda: True,
    ) -> None:
        """Start empty.

        Args:
            runner: the segments.
            shape: the model's exits.
            limits: bounds on batches.
            clock: monotonic seconds, on which rows are admitted and late.
            observe: gets figures of each segment run.
            should_yield: whether the caller would do something between this segment and the next.
        """
        self._runner = runner
        self._shape = shape
        self._clock = clock
        self._should_yield = should_yield
        self.costs = shape.costs or CostModel(len(runner), mixes_depths(runner))
        self._books = CostRecorder(self.costs, observe)
        self._steps = steps_of(runner, shape)
        self._shared = mixes_depths(runner)
        self._alone = FastPath(runner, shape, self.costs, self._books, clock, should_yield)
        self.exit_depths = shape.exits if self._shared else tuple(range(1, len(runner) + 1))
        self._scheduler = Scheduler(len(runner), limits, self.costs, self._shared)
        self._swept_s = clock()

    def __bool__(self) -> bool:
        return bool(self._scheduler)

    def add(self, rows: Iterable[Row]) -> None:
        """Take in admitted rows."""
        self._scheduler.add(rows)

    def write_books(self) -> None:
        """Pass on what the last turn has cost; the next one does so too, but the caller waits."""
        self._books.write()

    def turn(self) -> list[Outcome]:
        """Run one segment on one batch and return the outcomes it brought.

        Rows that surely stay go on into the next while nobody waits; a row that is alone goes as
        far as it gets.

        A segment that fails gives its batch's rows an error each, and harms no other row.
        """
        self._books.write()
        now = self._clock()
        if row := self._scheduler.pop_single(self._may_go_alone):
            if _gone(row, now):
                return [Outcome(row, _refusal(row))]
            return self._gone_alone(self._alone.start(row, now))
        outcomes = self._sweep(now)
        if not self._scheduler:
            return outcomes
        batches = self._scheduler.schedule(now)
        for batch in batches:
            if batch.depth or batch.hidden is not None:
                outcomes += self._drop_late(batch, now)
            else:
                outcomes += self._begin(batch, now)
        batches = [batch for batch in batches if batch.rows]
        if not batches:
            return outcomes
        if self._left_alone(batches):
            return outcomes + self._gone_alone(self._alone.resume(batches[0]))
        return outcomes + self._advance(batches, may_split=True)

    def _left_alone(self, batches: list[Batch]) -> bool:
        """Tell whether only one row is left of those that have started, and can go on alone."""
        if self._scheduler or len(batches) > 1 or len(batches[0].rows) > 1:
            return False
        return batches[0].depth > 0 and self._may_go_alone(batches[0].rows[0])

    def _may_go_alone(self, row: Row) -> bool:
        """Tell whether the only row there is can go without a batch, and nobody else waits."""
        return self._alone.takes(row) and not self._should_yield()

    def _gone_alone(self, end: Outcome | Batch) -> list[Outcome]:
        if isinstance(end, Outcome):
            return [end]
        self._scheduler.hold(end, end.rows[0].started_s)
        self._scheduler.requeue(end, self._clock())
        return []

    def _sweep(self, now: float) -> list[Outcome]:
        """Refuse waiting rows that nobody waits for, or that are too late to start."""
        if now < self._swept_s + SWEEP_EVERY_S:
            return []
        self._swept_s = now
        return [Outcome(row, _refusal(row)) for row in self._scheduler.drop_expired(now)]

    def _begin(self, batch: Batch, now: float) -> list[Outcome]:
        """Start fresh rows, but for those that nobody waits for or that are too late."""
        # Asked once per row: another thread may cancel it at any moment.
        gone = [row for row in batch.rows if _gone(row, now)]
        if gone:
            batch.set_rows([row for row in batch.rows if row not in gone])
        if batch.rows:
            batch.prepare(self._shape.traits, self._shared)
        for row in batch.rows:
            row.started_s = now
        return [Outcome(row, _refusal(row)) for row in gone]

    def _drop_late(self, batch: Batch, now: float) -> list[Outcome]:
        """Drop cancelled rows; let late ones leave with the best answer they have so far."""
        # Read once: another thread may set it at any moment.
        gone = [row.cancelled for row in batch.rows]
        dropped: list[Outcome] = []
        if True in gone:
            dropped = [
                Outcome(row, _client_left())
                for row, left in zip(batch.rows, gone, strict=True)
                if left
            ]
            batch.compact(~np.array(gone, np.bool_))
        if batch.deadline_s > now:
            return dropped
        late = np.array([row.deadline_s <= now for row in batch.rows], np.bool_)
        return dropped + self._retire(batch, np.where(late, Reason.DEADLINE, Reason.STAYS))

    def _advance(self, batches: list[Batch], may_split: bool) -> list[Outcome]:
        try:
            batch, ran = self._run(batches)
        except Exception as error:
            parts = self._smaller(batches) if may_split and out_of_memory(error) else []
            if len(parts) > 1:
                log.warning("out of memory at depth %d: trying again in parts", batches[0].depth)
                return [o for part in parts for o in self._advance([part], may_split=False)]
            log.exception("a segment failed at depth %d", batches[0].depth)
            return [Outcome(row, failed()) for batch in batches for row in batch.rows]
        return self._settle(batch, ran)

    @staticmethod
    def _smaller(batches: list[Batch]) -> list[Batch]:
        """Return the rows as batches of at most half the size, not joined."""
        most = (sum(len(batch.rows) for batch in batches) + 1) // 2
        halved = [batch.halves() if len(batch.rows) > most else (batch,) for batch in batches]
        return [part for parts in halved for part in parts]

    def _run(self, batches: list[Batch]) -> tuple[Batch, SegmentRun]:
        for batch in batches:
            self._steps.enter(batch)
        began = perf_counter()
        batch = merge(batches, self._runner)
        if len(batches) > 1:
            joined_s = perf_counter() - began
            self.costs.observe_join(len(batch.rows), batch.longest, joined_s)
        return batch, self._step(batch)

    def _step(self, batch: Batch) -> SegmentRun:
        """Run the batch's next segment, and those after it that need nobody between them."""
        figures = len(batch.rows), batch.num_tokens, batch.longest
        gaps, depth, began = self._gaps(batch), batch.depth, perf_counter()
        self._steps.advance(batch, gaps)
        return SegmentRun(range(depth, batch.depth), *figures, perf_counter() - began)

    def _gaps(self, batch: Batch) -> Gaps | None:
        """Return what lets rows pass exits by themselves for a short while, if nobody waits."""
        if self._scheduler or self._should_yield():
            return None
        gaps = self._steps.gaps(batch)
        if gaps is None:
            return None
        size = batch.depth, len(batch.rows), batch.longest
        return in_time(gaps, self.costs, size, batch.deadline_s, self._clock)

    def _settle(self, batch: Batch, ran: SegmentRun) -> list[Outcome]:
        """Judge the rows after a segment, and let those leave that may."""
        judging = perf_counter()
        try:
            shares, reasons = self._steps.shares(batch), self._steps.judge(batch)
        except Exception:
            # Not tried again: the segment has run, and rules may have counted this exit.
            log.exception("what heads said at depth %d could not be judged", batch.depth)
            return [Outcome(row, failed()) for row in batch.rows]
        outcomes = self._retire(batch, reasons)
        self._scheduler.requeue(batch, self._clock())
        self._books.note(ran, perf_counter() - judging, shares)
        return outcomes

    def _retire(self, batch: Batch, reasons: NDArray[np.int8]) -> list[Outcome]:
        """Answer the rows that have a reason to leave, and keep the rest."""
        leaving = reasons.nonzero()[0]
        if not len(leaving):
            return []
        outcomes = self._answer(batch, leaving, reasons)
        if len(leaving) == len(batch.rows):
            batch.set_rows([])
        else:
            batch.compact(reasons == _STAYS)
        return outcomes

    def _answer(
        self, batch: Batch, leaving: NDArray[np.intp], reasons: NDArray[np.int8]
    ) -> list[Outcome]:
        now = self._clock()
        figures = zip(
            leaving.tolist(),
            batch.exits_of(leaving),
            reasons[leaving].tolist(),
            batch.signals[leaving].tolist(),
            final_outputs(batch, leaving, self._shape.traits.task),
            strict=True,
        )
        outcomes = []
        for i, index, reason, signal, (logits, head, label, broken) in figures:
            row = batch.rows[i]
            result: Answer | OfframpError
            if index < 0:
                result = DeadlineExceeded()
            elif broken:
                result = non_finite_output(self._shape.exits[head])
            else:
                queue_s, compute_s = row.started_s - row.admitted_s, now - row.started_s
                trail = () if row.trail is None else row.trail
                result = Answer(
                    logits, index, _REASONS[reason], signal, queue_s, compute_s, head, label, trail
                )
            outcomes.append(Outcome(row, result))
        return outcomes


def _gone(row: Row, now_s: float) -> bool:
    return row.cancelled or row.deadline_s <= now_s


def _refusal(row: Row) -> OfframpError:
    if row.cancelled:
        return _client_left()
    return DeadlineExceeded()


def _client_left() -> OfframpError:
    return Cancelled("the client has left")
