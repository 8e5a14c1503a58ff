"""An engine core over fake segments, with a clock that only the test moves."""

from collections.abc import Callable

from serve.engine.core import EngineCore
from serve.engine.cost_model import GUESS, CostModel, SegmentCost
from serve.engine.row import BatchStats, Outcome, Row
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from tests.serve.support.fake_runner import FakeRunner, Heads
from tests.support.traits import two_labels


class CoreBench:
    """A core, and what it has written down.

    Attributes:
        now_s: on its clock.
        seen: its figures of batches.
        between: told the number of runs before each look at whether a row waits; says whether.
        runner: its segments.
    """

    def __init__(
        self,
        heads: Heads,
        num_exits: int,
        limits: BatchLimits | None = None,
        tick_s: float = 0.0,
        between: Callable[[int], bool] = lambda runs: True,
        cost: SegmentCost = GUESS,
    ) -> None:
        """Take what heads say, how far the clock goes on before each step, and segments' cost."""
        self.now_s, self.between = 0.0, between
        self.seen: list[BatchStats] = []
        self.runner = FakeRunner(num_exits, heads)
        self._tick_s = tick_s
        self.core = EngineCore(
            self.runner,
            ModelShape(
                two_labels(tuple(range(1, num_exits + 1))),
                (1.0,) * num_exits,
                costs=CostModel([cost] * num_exits),
            ),
            limits or BatchLimits(),
            lambda: self.now_s,
            self.seen.append,
            lambda: self.between(len(self.runner.runs)),
        )

    def add(self, *rows: Row) -> None:
        for row in rows:
            row.admitted_s = self.now_s
        self.core.add(list(rows))

    def step(self, *rows: Row) -> list[Outcome]:
        """Add rows and let the core take a step."""
        self.add(*rows)
        self.now_s += self._tick_s
        return self.core.step()

    def finish(self) -> list[Outcome]:
        """Let the core go on until all rows have their outcomes."""
        outcomes = []
        while self.core:
            outcomes += self.step()
        self.core.flush_costs()
        return outcomes
