"""A row that is alone goes from exit to exit without a batch around it.

When a segment has run, the processor's caches hold its weights and nothing of ours. To make a batch
of one row, to judge it and to take the answer out of it is then 0.1 ms of arrays of one, a quarter
of what the first exit of a small model takes. Here it is done with as few of them as can be. What
comes out is what the batch's way gives: the same judge, the same columns, and a batch again as soon
as somebody else wants to be served.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import NamedTuple, cast

import numpy as np

from serve.criteria.carry import THRESHOLDS
from serve.criteria.gaps import COUNT_NOTHING
from serve.criteria.glance import Glance, gaps_at, glance_at, tells_labels
from serve.criteria.judge import HeadOutput, Reason, judge_alone, unheard_reasons
from serve.criteria.passing import come_by, gaps_from
from serve.criteria.rule_state import RuleState
from serve.criteria.signals import meaningless
from serve.engine.batch import Batch, places
from serve.engine.cost_model import CostModel
from serve.engine.cost_recorder import CostRecorder
from serve.engine.executor import ModelShape
from serve.engine.outputs import failed, non_finite_output
from serve.engine.row import Answer, Outcome, Row
from serve.engine.runner import (
    AnyRunner,
    Gaps,
    Hidden,
    Ids,
    Runner,
    Step,
    mixes_depths,
    passes_exits,
)
from serve.engine.undisturbed import UNDISTURBED_S, in_time
from serve.rules import ExitRule

log = logging.getLogger(__name__)

_NO_PADDING = np.ones((1, 4096), np.int64)
_FIRST = places(1)
# Rules: few at a time. One is soon worked out again.
_MOST_WAYS = 1024


class _RulePlan(NamedTuple):
    """How rows with a rule go.

    Attributes:
        columns: of a fresh row.
        counts: whether the rule writes to them.
        gaps: (exits,) below which a row stays, whatever it has come by; None if they are not known.
        stays: see `serve.criteria.glance`; None if it tells nothing.
        unheard: see `serve.criteria.judge.unheard_reasons`.
    """

    columns: RuleState
    counts: bool
    gaps: Gaps | None
    stays: Glance | None
    unheard: Sequence[Reason | None]


@dataclass(slots=True)
class _RowState:
    """How far a row has come.

    Attributes:
        row: it.
        way: how it goes.
        columns: its rule and the rule's state.
        mask: (1, tokens) ones.
        keep: (1,) where the row lies in `hidden`.
        hidden: what the last segment gave; None before the first.
        depth: segments it has been through.
    """

    row: Row
    way: _RulePlan
    columns: RuleState
    mask: Ids
    keep: Ids
    hidden: Hidden = None
    depth: int = 0


class FastPath:
    """Takes a row through a chain of segments, until it leaves or somebody else comes."""

    def __init__(
        self,
        runner: AnyRunner,
        shape: ModelShape,
        costs: CostModel,
        books: CostRecorder,
        clock: Callable[[], float],
        should_yield: Callable[[], bool],
    ) -> None:
        """Prepare.

        Args:
            runner: the segments; where they are one shared layer, no row goes this way.
            shape: the model's exits.
            costs: what segments cost.
            books: get what runs.
            clock: monotonic seconds, on which rows are late.
            should_yield: whether somebody else wants something.
        """
        self._runner, self._shape = cast(Runner, runner), shape
        self._mixes = mixes_depths(runner)
        self._passes = passes_exits(self._runner)
        self._costs, self._books = costs, books
        self._clock, self._should_yield = clock, should_yield
        # By the rule's identity, which is no other's while it is held: to hash and compare rules
        # takes long, and of equal ones `serve.rules.check_rule` gives the same.
        self._ways: dict[int, tuple[ExitRule, _RulePlan | None]] = {}

    def takes(self, row: Row) -> bool:
        """Tell whether a row can go this way."""
        return row.trail is None and self._way_of(row.rule) is not None

    def _way_of(self, rule: ExitRule) -> _RulePlan | None:
        """Return how a row with this rule goes; None if it does not go this way."""
        known = self._ways.get(id(rule))
        if known is None:
            if len(self._ways) >= _MOST_WAYS:
                self._ways.clear()
            known = self._ways[id(rule)] = rule, self._work_out(rule)
        return known[1]

    def _work_out(self, rule: ExitRule) -> _RulePlan | None:
        traits, temperatures = self._shape.traits, self._shape.temperatures
        if self._mixes or not tells_labels(traits):
            return None
        columns = RuleState.of([rule], traits)
        # Others leave with more than the logits of their exit.
        if not columns.carry.keys() <= {THRESHOLDS}:
            return None
        counts = not COUNT_NOTHING.issuperset(columns.kinds)
        gaps, stays = gaps_at(rule, traits, temperatures), glance_at(rule, traits, temperatures)
        return _RulePlan(columns, counts, gaps, stays, unheard_reasons(columns, len(traits.exits)))

    def start(self, row: Row, now_s: float) -> Outcome | Batch:
        """Take a fresh row as far as it goes.

        Args:
            row: as `takes` wants it.
            now_s: on the clock.

        Returns:
            Its outcome, an error if a segment fails; or the row as a batch, judged at the exit it
            has come by and staying there, once somebody else waits, or it has been cancelled, or
            is late.
        """
        way = self._way_of(row.rule)
        assert way
        row.started_s = now_s
        columns = way.columns.fresh() if way.counts else way.columns
        return self._travel(_RowState(row, way, columns, _no_padding(row.num_tokens), _FIRST))

    def resume(self, batch: Batch) -> Outcome | Batch:
        """Take the one row of a batch in flight as far as it goes, see `start`."""
        (row,) = batch.rows
        way = self._way_of(row.rule)
        assert way
        journey = _RowState(row, way, batch.columns, batch.mask, batch.keep)
        journey.hidden, journey.depth = batch.hidden, batch.depth
        batch.hidden = None  # other rows', which have left, are among them
        return self._travel(journey)

    def _travel(self, journey: _RowState) -> Outcome | Batch:
        row, end = journey.row, None
        try:
            while end is None:
                began, begin = perf_counter(), journey.depth
                step = self._run(journey)
                judging = perf_counter()
                end = self._end(journey, step)
                times_s = judging - began, perf_counter() - judging
                self._books.note_alone(begin, journey.depth, row.num_tokens, *times_s)
        except Exception:
            log.exception("a segment failed at depth %d", journey.depth)
            return Outcome(row, failed())
        return end

    def _end(self, journey: _RowState, step: Step) -> Outcome | Batch | None:
        """Return what becomes of the row at an exit, None if it goes on alone."""
        way, index = journey.way, journey.depth - 1
        values, reason, signal = step.logits.tolist()[0], way.unheard[index], math.nan
        if not reason:
            disturbed = self._interrupted(journey.row)
            if way.stays and not disturbed and way.stays(values, index, journey.columns):
                return None
            if reason is None:
                said, shape = HeadOutput(step.logits, step.uncertainty), self._shape
                exits, temperature = len(shape.exits), shape.temperatures[index]
                reason, signal = judge_alone(journey.columns, said, index, exits, temperature)
            if reason == Reason.STAYS:
                return self._as_batch(journey, step, signal) if disturbed else None
        return self._leave(journey, step, values, reason, signal)

    def _run(self, journey: _RowState) -> Step:
        """Run the next segment, and those after it where the row surely stays."""
        row, mask, depth = journey.row, journey.mask, journey.depth
        gaps = self._gaps(journey) if self._passes else None
        more = () if gaps is None else (gaps,)
        if depth:
            step = self._runner.advance(depth, journey.hidden, journey.keep, mask, *more)
        else:
            step = self._runner.start(row.input_ids[None], mask, row.token_type_ids[None], *more)
        journey.depth, journey.hidden, journey.keep = depth + step.exits, step.hidden, _FIRST
        if step.passed is not None:
            come_by(journey.columns, step.passed, depth, self._shape.temperatures)
        return step

    def _gaps(self, journey: _RowState) -> Gaps | None:
        """Return what lets the row pass exits by itself, see `PassingRunner`."""
        row, depth, gaps = journey.row, journey.depth, journey.way.gaps
        if gaps is None:
            shape = self._shape
            gaps = gaps_from(depth, row.rule, journey.columns, shape.traits, shape.temperatures)
        if gaps is None:
            return None
        size = depth, 1, row.num_tokens
        if row.deadline_s == math.inf and self._costs.remaining_s(*size) <= UNDISTURBED_S:
            return gaps
        return in_time(gaps, self._costs, size, row.deadline_s, self._clock)

    def _interrupted(self, row: Row) -> bool:
        """Tell whether anything asks to be done before the row's next segment."""
        if row.cancelled or self._should_yield():
            return True
        return row.deadline_s < math.inf and row.deadline_s <= self._clock()

    def _leave(
        self, journey: _RowState, step: Step, values: Sequence[float], reason: Reason, signal: float
    ) -> Outcome:
        row, index = journey.row, journey.depth - 1
        # What adds up to a number has a distribution; what does not may have one.
        if not math.isfinite(sum(values)) and meaningless(step.logits)[0]:
            return Outcome(row, non_finite_output(self._shape.exits[index]))
        queue_s, compute_s = row.started_s - row.admitted_s, self._clock() - row.started_s
        logits = step.logits[0]
        return Outcome(row, Answer(logits, index, reason, signal, queue_s, compute_s, index))

    def _as_batch(self, journey: _RowState, step: Step, signal: float) -> Batch:
        batch = Batch([journey.row])
        batch.prepare(self._shape.traits, shared=False)
        # Other batches' rows may be written to beside it.
        batch.columns = journey.columns.fresh()
        batch.land(journey.hidden, journey.depth)
        batch.logits, batch.uncertainty = step.logits, step.uncertainty
        batch.signals = np.array([signal], np.float32)
        return batch


@lru_cache(256)
def _no_padding(tokens: int) -> Ids:
    """Return (1, tokens) ones, not to be written to."""
    short = tokens <= _NO_PADDING.shape[1]
    return _NO_PADDING[:, :tokens] if short else np.ones((1, tokens), np.int64)
