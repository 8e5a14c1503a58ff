"""A single row that is alone in the engine goes from exit to exit without a batch around it.

When a segment has run, the processor's caches hold its weights and little else. A batch of one row
then costs 0.1 ms, a quarter of what the first exit of a small model takes. Here the row goes on at
once if the gap between its two largest logits is too small for its rule; otherwise the full rule
judges it. The outcome is that of the engine's normal way, and the row becomes a batch again as soon
as the engine has other work. With `EngineCore.uses_fast_path = False` it runs without this file.
"""

import logging
import math
from collections.abc import Callable
from time import perf_counter

import numpy as np

from serve.engine.batch import Batch, arange, no_padding
from serve.engine.cost_model import CostRecorder, SegmentRun, last_exit_in_time
from serve.engine.device_errors import device_lost
from serve.engine.outputs import FinalOutput, outcome_of, record_run, segment_failed
from serve.engine.row import Outcome, Row
from serve.engine.runner import Hidden, Ids, ModelRunner, QueuedOutput
from serve.engine.scheduler import Scheduler
from serve.engine.shape import ModelShape
from serve.rules.criterion import HeadOutput, Reason
from serve.rules.judge import RuleState, judge
from serve.rules.signals import meaningless

log = logging.getLogger(__name__)

_FIRST_ROW = arange(1)
_STAYS = int(Reason.STAYS)


class FastPath:
    """Takes the only row through the model until it leaves or the engine has other work."""

    def __init__(
        self,
        runner: ModelRunner,
        shape: ModelShape,
        scheduler: Scheduler,
        recorder: CostRecorder,
        clock: Callable[[], float],
        should_yield: Callable[[], bool],
    ) -> None:
        """Prepare.

        Args:
            runner: the segments.
            shape: the model's exits.
            scheduler: holds the rows, and takes back one that has not left.
            recorder: gets every run.
            clock: monotonic seconds, on which rows are late.
            should_yield: whether the engine has other work.
        """
        self._runner, self._shape = runner, shape
        self._scheduler, self._recorder = scheduler, recorder
        self._clock, self._should_yield = clock, should_yield

    def take(self) -> Row | Batch | None:
        """Remove and return the only row there is; its batch, if it has started.

        Only if its rule looks at one exit's logits alone, and it is neither cancelled nor late.
        """
        return self._scheduler.pop_single(self._takes)

    def run(self, single: Row | Batch) -> list[Outcome]:
        """Take what `take` has returned as far as it goes; return its outcome, if it has left.

        Otherwise the row has gone back to the scheduler as a batch, judged at the exit that it has
        reached: the engine has other work, or the row is cancelled or late.
        """
        if isinstance(single, Batch):
            (row,) = single.rows
            end = self._go(row, single.depth, single.pop_hidden(), single.keep)
        else:
            single.started_s = self._clock()
            end = self._go(single, 0, None, _FIRST_ROW)
        if isinstance(end, Outcome):
            return [end]
        self._scheduler.hold(end, end.rows[0].started_s)
        self._scheduler.requeue(end, self._clock())
        return []

    def _takes(self, row: Row) -> bool:
        one_exit_tells = row.exit_trace is None and row.rule.stay_gaps is not None
        return one_exit_tells and not self._interrupted(row)

    def _go(self, row: Row, depth: int, hidden: Hidden, keep: Ids) -> Outcome | Batch:
        mask, end = no_padding(row.num_tokens), None
        try:
            while end is None:
                until, began = self._until(row, depth), perf_counter()
                output = self._run(row, depth, until, hidden, keep, mask)
                self._recorder.awaits(depth, until, 1, row.num_tokens)
                values, ran = output.logits.tolist()[0], perf_counter()
                record_run((row,), until, ran - began, self._clock)
                end = self._judge(row, until, output, values)
                times_s = ran - began, perf_counter() - ran
                tokens = row.num_tokens
                self._recorder.record(SegmentRun(depth, until, 1, tokens, tokens, *times_s))
                depth, hidden, keep = until + 1, output.hidden, _FIRST_ROW
        except Exception as error:
            if device_lost(error):
                raise
            log.exception("a segment failed at depth %d", depth)
            return Outcome(row, segment_failed())
        return end

    def _until(self, row: Row, depth: int) -> int:
        """Return the exit at which the next run ends."""
        until = max(depth, row.rule.first_heard)
        size = depth, 1, row.num_tokens
        return last_exit_in_time(until, self._recorder.costs, size, row.deadline_s, self._clock)

    def _run(
        self, row: Row, depth: int, until: int, hidden: Hidden, keep: Ids, mask: Ids
    ) -> QueuedOutput:
        if depth:
            return self._runner.advance(depth, hidden, keep, mask, until)
        return self._runner.start(row.input_ids[None], mask, row.token_type_ids[None], until)

    def _judge(
        self, row: Row, exit_index: int, output: QueuedOutput, values: list[float]
    ) -> Outcome | Batch | None:
        """Return what becomes of the row at an exit; None if it goes on."""
        gaps, interrupted = row.rule.stay_gaps, self._interrupted(row)
        if gaps and not interrupted and _gap(values) < gaps[exit_index]:
            return None
        head = HeadOutput(output.logits, output.uncertainty)
        temperature = self._shape.temperatures[exit_index]
        state, num_exits = RuleState.of([row.rule]), len(self._shape.exits)
        decision = judge(state, head, exit_index, num_exits, temperature)
        reason = decision.reasons.tolist()[0]
        if reason != _STAYS:
            # Logits that add up to a number have a distribution; others may have one.
            broken = not math.isfinite(sum(values)) and bool(meaningless(output.logits)[0])
            final = FinalOutput(output.logits[0], exit_index, exit_index, -1, broken)
            signal, traits = decision.signals.tolist()[0], self._shape.traits
            return outcome_of(row, final, Reason(reason), signal, traits, self._clock())
        return self._as_batch(row, exit_index, output, decision.signals) if interrupted else None

    def _interrupted(self, row: Row) -> bool:
        """Tell whether anything must be done before the row's next run."""
        if row.cancelled or self._should_yield():
            return True
        return row.deadline_s < math.inf and row.deadline_s <= self._clock()

    def _as_batch(
        self, row: Row, exit_index: int, output: QueuedOutput, signals: np.ndarray
    ) -> Batch:
        batch = Batch([row])
        batch.prepare(self._shape.traits)
        batch.hidden, batch.depth = output.hidden, exit_index + 1
        batch.head, batch.signals = HeadOutput(output.logits, output.uncertainty), signals
        return batch


def _gap(logits: list[float]) -> float:
    """Return how far apart the two largest logits lie."""
    if len(logits) == 2:
        return abs(logits[0] - logits[1])
    second, first = sorted(logits)[-2:]
    return first - second
