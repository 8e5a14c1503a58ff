"""What runs cost: noted while rows wait for their answers, passed on when the answers are out."""

from collections.abc import Callable
from typing import NamedTuple

from serve.engine.cost_model import CostModel
from serve.engine.row import BatchStats


class SegmentRun(NamedTuple):
    """One call of the runner.

    Attributes:
        first: the first segment that ran, counted from 0.
        until: the last one.
        num_rows: rows in the batch.
        num_tokens: real tokens.
        longest: tokens that each row was padded to.
        run_s: time in all segments.
        judge_s: time in judging the rows and letting them leave.
    """

    first: int
    until: int
    num_rows: int
    num_tokens: int
    longest: int
    run_s: float
    judge_s: float


class CostRecorder:
    """Records runs, for the cost model and the metrics.

    Attributes:
        costs: the model, which learns from the runs.
    """

    def __init__(self, costs: CostModel, observe: Callable[[BatchStats], None]) -> None:
        self.costs, self._observe = costs, observe
        self._runs: list[SegmentRun] = []

    def record(self, run: SegmentRun) -> None:
        """Remember a run; takes next to no time."""
        self._runs.append(run)

    def flush(self) -> None:
        """Pass on what has been recorded; each run's time is divided among its segments."""
        runs, self._runs = self._runs, []
        for first, until, num_rows, num_tokens, longest, run_s, judge_s in runs:
            self.costs.observe(first, until, num_rows, longest, run_s + judge_s)
            shares = self.costs.shares(first, until, num_rows, longest)
            padded_tokens = num_rows * longest
            for index, share in enumerate(shares, first):
                judged_s = judge_s if index == until else 0.0
                times_s = run_s * share, judged_s
                self._observe(BatchStats(index, num_rows, num_tokens, padded_tokens, *times_s))
