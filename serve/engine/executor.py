"""Runs a batch from exit to exit, and judges its rows there."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serve.engine.batch import Batch
from serve.engine.cost_model import CostModel
from serve.engine.outputs import record_exit
from serve.engine.runner import ModelRunner
from serve.rules import CompiledRule, Rule, compile_rule
from serve.rules.head_output import HeadOutput
from serve.rules.judge import judge
from serve.rules.traits import Traits

# A run that passes exits lasts no longer than this: new rows of a better priority wait for its end.
MAX_RUN_S = 0.04


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the engine must know of the model.

    Attributes:
        traits: its exits, labels and task; one exit per segment.
        temperatures: one per exit.
        pad_id: fills short rows.
        costs: what segments cost, if that has been measured.
    """

    traits: Traits
    temperatures: tuple[float, ...]
    pad_id: int = 0
    costs: CostModel | None = None

    @property
    def exits(self) -> tuple[int, ...]:
        """Exit layers, ascending."""
        return self.traits.exits

    def compile(self, rule: Rule) -> CompiledRule:
        """Return a rule, worked out for the model.

        Raises:
            InvalidRule: the model cannot follow it.
        """
        return compile_rule(rule, self.traits, self.temperatures)


class Executor:
    """Advances batches through the runner's segments."""

    def __init__(self, runner: ModelRunner, shape: ModelShape) -> None:
        self._runner, self._shape = runner, shape

    def run(self, batch: Batch, until: int) -> None:
        """Run a batch to an exit, and take over its hidden states and what the head gives.

        Args:
            batch: to be run.
            until: index of the exit, the batch's depth or more.
        """
        if batch.depth:
            output = self._runner.advance(batch.depth, batch.hidden, batch.keep, batch.mask, until)
        else:
            ids, types = batch.padded(self._shape.pad_id)
            output = self._runner.start(ids, batch.mask, types, until)
        batch.hidden = output.hidden
        batch.keep = np.arange(len(batch.rows), dtype=np.int64)
        batch.depth = until + 1
        batch.head = HeadOutput(output.logits, output.uncertainty, batch.counted)

    def judge(self, batch: Batch) -> NDArray[np.int8]:
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


def last_exit_in_time(
    until: int,
    costs: CostModel,
    size: tuple[int, int, int],
    deadline_s: float,
    clock: Callable[[], float],
) -> int:
    """Return an exit, `until` or an earlier one, that a run reaches within `MAX_RUN_S`.

    The run also ends before a deadline, but one segment runs in any case. For a deadline the larger
    of two estimates counts, today's and the warm-up's: today's may come from texts of another
    length.

    Args:
        until: index of the exit at which the run would end.
        costs: what segments cost.
        size: the batch's depth, its rows, and the tokens of the longest.
        deadline_s: on the clock; infinite for none.
        clock: monotonic seconds.
    """
    if until == size[0]:
        return until
    if deadline_s == math.inf:
        return min(until, costs.reach(*size, MAX_RUN_S) - 1)
    free_s = min(MAX_RUN_S, deadline_s - clock())
    return min(until, costs.reach(*size, free_s) - 1, costs.at_warm_up.reach(*size, free_s) - 1)
