"""The engine's admission and scheduler on a simulated device, with a clock of their own."""

from collections.abc import Sequence

from serve.engine.admission import Admission, QueueLimits
from serve.engine.batch import Batch
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.row import Answer, Outcome, Row
from serve.engine.scheduler import BatchLimits, Scheduler
from serve.rules import EntropyRule, NeverRule
from serve.rules.criterion import Reason
from tests.serve.support.fake_runner import fake_row

DEPTH = 6
LIMITS = BatchLimits()
CPU = SegmentCost(fixed_s=1e-4, per_token_s=5e-6, per_token_pair_s=2e-8)
GPU = SegmentCost(fixed_s=2e-4, per_token_s=1e-7)


class SimulatedEngine:
    """An engine that answers rows after as many segments as their tags say.

    Attributes:
        admission: of the rows.
        now_s: on its clock.
        waited_s: from admission to the answer, by row.
    """

    def __init__(self, cost: SegmentCost, slower: float = 1.0) -> None:
        """Start empty.

        Args:
            cost: of each segment, as the engine knows it.
            slower: what a segment takes, as a multiple of its cost.
        """
        costs = CostModel([cost] * DEPTH)
        self.admission = Admission(QueueLimits(10**6, 10**9), costs, LIMITS)
        self._scheduler = Scheduler(LIMITS, costs)
        self._cost, self._slower = cost, slower
        self.now_s = 0.0
        self.waited_s: dict[Row, float] = {}

    def add(self, rows: Sequence[Row]) -> None:
        """Admit rows, each a request of its own."""
        for row in rows:
            row.admitted_s = self.now_s
            self.admission.admit([row], self.now_s)
        self._scheduler.add(rows)

    def run(self, until_rows: int = 0) -> None:
        """Run until no more than so many rows are unanswered."""
        while self.admission.held.rows > until_rows:
            self.step()

    def step(self) -> None:
        """Run one batch through a segment."""
        batches = self._scheduler.schedule(self.now_s)
        rows, depth = [row for batch in batches for row in batch.rows], batches[0].depth
        longest = max(row.num_tokens for row in rows)
        self.now_s += self._slower * self._cost.seconds(len(rows), longest)
        leaving = [row for row in rows if row.tag <= depth + 1]
        self.waited_s |= {row: self.now_s - row.admitted_s for row in leaving}
        self.admission.release([Outcome(row, answer_at(depth)) for row in leaving], self.now_s)
        left = set(leaving)
        self._scheduler.requeue(
            Batch([row for row in rows if row not in left], depth + 1), self.now_s
        )


def answer_at(exit_index: int) -> Answer:
    return Answer([0.0], exit_index, Reason.FINAL, 0.0, 0.0, 0.0, exit_index)  # type: ignore[arg-type]


def rows_of(lengths: Sequence[int], depth: int = DEPTH, **fields: object) -> list[Row]:
    """Return rows of these lengths that leave at a depth."""
    rule = NeverRule() if depth == DEPTH else EntropyRule(threshold=0.1)
    return [fake_row(depth, length, rule, range(1, DEPTH + 1), **fields) for length in lengths]
