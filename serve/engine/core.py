"""One step of the engine: schedule, run, judge, let rows leave, requeue. No threads."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.engine.audit_rows import AuditRows
from serve.engine.batch import Batch, merge
from serve.engine.cost_model import GUESS, CostModel, CostRecorder, SegmentRun, last_exit_in_time
from serve.engine.device_errors import device_lost, out_of_memory
from serve.engine.fast_path import FastPath
from serve.engine.outputs import (
    client_left,
    expired,
    outcomes_of,
    record_exit,
    record_run,
    refusal,
    segment_failed,
)
from serve.engine.row import BatchStats, Outcome, Row
from serve.engine.runner import ModelRunner, QueuedOutput
from serve.engine.scheduler import BatchLimits, Scheduler
from serve.engine.shape import ModelShape
from serve.rules.criterion import HeadOutput, Reason
from serve.rules.judge import judge

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 0.005
_STAYS = int(Reason.STAYS)  # numpy takes a plain number several times faster than an enum's member


class _InFlight(NamedTuple):
    """A run that has been started.

    Attributes:
        batch: as it was before.
        until: index of the exit where the run ends.
        output: what it gives.
        began_s: by `perf_counter`.
    """

    batch: Batch
    until: int
    output: QueuedOutput
    began_s: float


class EngineCore:
    """Rows in flight, advanced one run at a time by a single caller.

    Attributes:
        costs: what segments cost, kept up to date.
        uses_fast_path: whether a row that is alone goes without a batch around it.
        audits: texts that run while there is no row.
        num_retried: batches that ran again in parts, because memory did not suffice.
    """

    def __init__(
        self,
        runner: ModelRunner,
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
            should_yield: whether other rows have come, so that a row that is alone makes a stop.
        """
        self._runner, self._shape = runner, shape
        self._clock, self._should_yield = clock, should_yield
        self.costs = shape.costs or CostModel([GUESS] * len(runner))
        self._recorder = CostRecorder(self.costs, observe)
        self._scheduler = Scheduler(limits, self.costs)
        self._fast_path = FastPath(
            runner, shape, self._scheduler, self._recorder, clock, should_yield
        )
        self.uses_fast_path = True
        self._most_in_flight = limits.in_flight
        self._in_flight: deque[_InFlight] = deque()
        self._collected_s = 0.0  # by `perf_counter`
        self.audits = AuditRows(runner)
        self.num_retried = 0
        self._swept_s = clock()

    def __bool__(self) -> bool:
        return bool(self._scheduler or self._in_flight)

    @property
    def hangs(self) -> bool:
        """Whether the device does not end what it runs. Any thread."""
        return perf_counter() > self._recorder.hung_from_s

    def add(self, rows: Iterable[Row]) -> None:
        """Take in admitted rows."""
        self._scheduler.add(rows)

    def flush_costs(self) -> None:
        """Report the last step's times now; otherwise the next step reports them first."""
        self._recorder.flush()

    def step(self) -> list[Outcome]:
        """Start a batch's run to an exit, or end the oldest; return the rows that have finished.

        Without rows, one segment of an audit runs instead. A segment that fails gives the rows of
        its batch an error each, and harms no other row. The error of a device that is lost is
        raised.
        """
        self._recorder.flush()
        if self.uses_fast_path and not self._in_flight and (row := self._fast_path.take()):
            return self._fast_path.run(row)
        now_s = self._clock()
        outcomes = self._drop_expired(now_s)
        if self._scheduler and len(self._in_flight) < self._most_in_flight:
            outcomes += self._start(now_s)
            if self._scheduler and len(self._in_flight) < self._most_in_flight:
                return outcomes
        if self._in_flight:
            return outcomes + self._collect()
        if not outcomes:
            self.audits.advance()
        return outcomes

    def _start(self, now_s: float) -> list[Outcome]:
        """Start the batch that goes next."""
        outcomes: list[Outcome] = []
        batches = self._scheduler.schedule(now_s)
        for batch in batches:
            outcomes += self._prepare(batch, now_s)
        batches = [batch for batch in batches if batch.rows]
        return outcomes + self._run(batches, may_split=True) if batches else outcomes

    def _drop_expired(self, now_s: float) -> list[Outcome]:
        """Refuse waiting rows that are cancelled, or too late to start; looked at now and then."""
        if now_s < self._swept_s + SWEEP_EVERY_S:
            return []
        self._swept_s = now_s
        return [refusal(row) for row in self._scheduler.drop_expired(now_s)]

    def _prepare(self, batch: Batch, now_s: float) -> list[Outcome]:
        """Drop the rows of a scheduled batch that must not run; lay out fresh ones."""
        return self._drop_late(batch, now_s) if batch.depth else self._begin(batch, now_s)

    def _begin(self, batch: Batch, now_s: float) -> list[Outcome]:
        # Asked once per row: another thread may cancel it at any moment.
        gone = [row for row in batch.rows if expired(row, now_s)]
        if gone:
            batch.set_rows([row for row in batch.rows if row not in gone])
        if batch.rows:
            batch.prepare(self._shape.traits)
        for row in batch.rows:
            row.started_s = now_s
        return [refusal(row) for row in gone]

    def _drop_late(self, batch: Batch, now_s: float) -> list[Outcome]:
        """Drop cancelled rows; let late ones leave with the best answer they have so far."""
        # Read once: another thread may set it at any moment.
        gone = [row.cancelled for row in batch.rows]
        dropped: list[Outcome] = []
        if True in gone:
            left = [row for row, cancelled in zip(batch.rows, gone, strict=True) if cancelled]
            dropped = [Outcome(row, client_left()) for row in left]
            batch.compact(~np.array(gone, np.bool_))
        if batch.deadline_s > now_s:
            return dropped
        late = np.array([row.deadline_s <= now_s for row in batch.rows], np.bool_)
        return dropped + self._finish(batch, np.where(late, Reason.DEADLINE, Reason.STAYS))

    def _run(self, batches: list[Batch], may_split: bool) -> list[Outcome]:
        """Start batches as one; in halves, once, if memory does not suffice."""
        try:
            self._queue(batches)
        except Exception as error:
            if device_lost(error):
                raise
            parts = _smaller(batches) if may_split and out_of_memory(error) else []
            if len(parts) < 2:
                log.exception("a segment failed at depth %d", batches[0].depth)
                return [Outcome(row, segment_failed()) for b in batches for row in b.rows]
        else:
            return []
        # Outside `except`, where the error would keep the memory of the failed run.
        log.warning("out of memory at depth %d: trying again in parts", batches[0].depth)
        self.num_retried += 1
        return [
            outcome
            for part in parts
            for started in (self._run([part], may_split=False), self._collect())
            for outcome in started
        ]

    def _queue(self, batches: list[Batch]) -> None:
        batch = merge(batches, self._runner)
        until, began_s = self._until(batch), perf_counter()
        if batch.depth:
            output = self._runner.advance(batch.depth, batch.hidden, batch.keep, batch.mask, until)
        else:
            ids, types = batch.padded(self._shape.pad_id)
            output = self._runner.start(ids, batch.mask, types, until)
        batch.hidden = output.hidden
        self._in_flight.append(_InFlight(batch, until, output, began_s))

    def _collect(self) -> list[Outcome]:
        """Wait for the oldest run, and let its rows leave that may."""
        if not self._in_flight:
            return []
        batch, until, output, began_s = self._in_flight.popleft()
        self._recorder.awaits(batch.depth, until, len(batch.rows), batch.longest)
        try:
            head = HeadOutput(output.logits, output.uncertainty, batch.counted)
        except Exception as error:
            if device_lost(error):
                raise
            log.exception("a segment failed at depth %d", batch.depth)
            return [Outcome(row, segment_failed()) for row in batch.rows]
        ended_s = perf_counter()
        # While the run before was not collected, it was that one which ran.
        run_s = ended_s - max(began_s, self._collected_s)
        self._collected_s = ended_s
        record_run(batch.rows, until, run_s, self._clock)
        size = len(batch.rows), batch.num_tokens, batch.longest
        run = SegmentRun(batch.depth, until, *size, run_s, 0.0)
        batch.head, batch.depth = head, until + 1
        batch.keep = np.arange(len(batch.rows), dtype=np.int64)
        return self._judge(batch, run)

    def _until(self, batch: Batch) -> int:
        """Return the exit at which the batch's next run ends.

        That is the first exit whose output the rule of any of its rows needs, or an earlier one: a
        run is bounded in time, and ends before other rows are due.
        """
        until = min([row.rule.first_heard for row in batch.rows])
        if batch.traced or until <= batch.depth:
            return batch.depth
        size = batch.depth, len(batch.rows), batch.longest
        due_s = min(batch.deadline_s, self._scheduler.due_s(batch.level, self._clock()))
        return last_exit_in_time(until, self.costs, size, due_s, self._clock)

    def _judge(self, batch: Batch, run: SegmentRun) -> list[Outcome]:
        """Judge the rows after a run, let those leave that may, and requeue the others."""
        began = perf_counter()
        try:
            reasons = self._reasons(batch)
        except Exception:
            # Not tried again: the segment has run, and rules may have counted this exit.
            log.exception("the outputs at depth %d could not be judged", batch.depth)
            return [Outcome(row, segment_failed()) for row in batch.rows]
        outcomes = self._finish(batch, reasons)
        self._scheduler.requeue(batch, self._clock())
        self._recorder.record(run._replace(judge_s=perf_counter() - began))
        return outcomes

    def _reasons(self, batch: Batch) -> NDArray[np.int8]:
        """Return (rows,) each row's `Reason` at the exit that the batch has just reached.

        Sets the batch's signals and predictions, and writes the rows' exit traces.
        """
        index, shape = batch.depth - 1, self._shape
        decision = judge(
            batch.state, batch.head, index, len(shape.exits), shape.temperatures[index]
        )
        batch.signals, batch.prediction = decision.signals, decision.prediction
        if batch.traced:
            record_exit(batch)
        return decision.reasons

    def _finish(self, batch: Batch, reasons: NDArray[np.int8]) -> list[Outcome]:
        """Answer the rows that have a reason to leave, and keep the others."""
        leaving = reasons.nonzero()[0]
        if not len(leaving):
            return []
        outcomes = outcomes_of(batch, leaving, reasons, self._shape.traits, self._clock())
        if len(leaving) == len(batch.rows):
            batch.set_rows([])
        else:
            batch.compact(reasons == _STAYS)
        return outcomes


def _smaller(batches: list[Batch]) -> list[Batch]:
    """Return the rows as batches of at most half the size, not joined."""
    most = (sum(len(batch.rows) for batch in batches) + 1) // 2
    halved = [batch.halves() if len(batch.rows) > most else (batch,) for batch in batches]
    return [part for parts in halved for part in parts]
