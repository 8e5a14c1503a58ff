"""What runs cost: noted while rows wait for their answers, passed on when the answers are out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from serve.engine.cost_model import CostModel
from serve.engine.row import BatchStats

_BATCHES_REMEMBERED = 64
# In larger batches most of the time after a run goes into letting rows leave.
_SMALL_BATCH = 8


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
        self._batch_judge_s = 0.0  # mean of small batches of several rows; old ones fade

    def record(self, run: SegmentRun) -> None:
        """Remember a run; takes next to no time."""
        self._runs.append(run)

    def flush(self) -> None:
        """Pass on what has been recorded."""
        if not self._runs:
            return
        runs, self._runs = self._runs, []
        for run in runs:
            self._pass_on(run)

    def _pass_on(self, run: SegmentRun) -> None:
        """Divide a run's time among its segments by what is known of their costs.

        The cost of a segment includes judging after it, so judging is divided like the rest:
        counted for the last segment alone, that one would soon seem to cost everything.
        """
        first, until, num_rows, num_tokens, longest, run_s, judge_s = run
        all_s = run_s + self._judging_cost_s(num_rows, judge_s)
        for index, share in zip(range(first, until + 1), self._shares(run), strict=True):
            self.costs.observe(index, num_rows, longest, all_s * share)
            judged_s = judge_s if index == until else 0.0
            self._observe(
                BatchStats(index, num_rows, num_tokens, num_rows * longest, run_s * share, judged_s)
            )

    def _shares(self, run: SegmentRun) -> Sequence[float]:
        """Return each segment's share of the run's time."""
        if run.first == run.until:
            return (1.0,)
        return self.costs.shares(run.first, run.until + 1, run.num_rows, run.longest)

    def _judging_cost_s(self, num_rows: int, judge_s: float) -> float:
        """Return what judging adds to the cost of a run.

        A single row is judged in less time than any batch. The scheduler would conclude from that
        time that more and smaller batches cost nothing extra. For a single row, therefore, the
        recent mean of small batches is recorded if it is larger.
        """
        if num_rows == 1:
            return max(judge_s, self._batch_judge_s)
        if num_rows <= _SMALL_BATCH:
            self._batch_judge_s += (judge_s - self._batch_judge_s) / _BATCHES_REMEMBERED
        return judge_s
