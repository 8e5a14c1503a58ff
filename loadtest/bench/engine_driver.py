"""Drive a real engine, its thread included: keep its queue full, or send one request at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from time import perf_counter

from loadtest.bench.errors import BenchFailed
from serve.engine.admission import QueueLimits
from serve.engine.core import ModelShape
from serve.engine.engine import Engine
from serve.engine.row import Outcome, Row
from serve.engine.runner import Runner
from serve.errors import OfframpError
from serve.rules import LayerRule

_PATIENCE_S = 600.0
_ROOM = QueueLimits(max_rows=1_000_000, max_tokens=1_000_000_000)


class Driver:
    """An engine and the outcomes it has delivered."""

    def __init__(self, runner: Runner, shape: ModelShape) -> None:
        self._exits = shape.exits
        # Waits with little of Python's, whose lock the engine's thread needs meanwhile.
        self._delivered: SimpleQueue[tuple[Sequence[Outcome], float]] = SimpleQueue()
        self._outcomes: list[Outcome] = []
        self._delivered_s = 0.0
        self.engine = Engine(runner, shape, self._deliver, queue_limits=_ROOM)

    def run(self, rows: Sequence[Row], in_flight: int) -> float:
        """Answer all rows and return the seconds from the first submission to the last outcome.

        Args:
            rows: fresh ones.
            in_flight: how many are unanswered while there are so many left.

        Raises:
            BenchFailed: a row got an error, or left elsewhere than its rule says.
        """
        self._outcomes = []
        sent = min(in_flight, len(rows))
        began = perf_counter()
        self.engine.submit(rows[:sent])
        while sent < len(rows):
            room = self._wait_for(sent - in_flight + 1) + in_flight - sent
            self.engine.submit(rows[sent : sent + room])
            sent += len(rows[sent : sent + room])
        self._wait_for(len(rows))
        took_s = self._delivered_s - began
        self._check()
        return took_s

    def _wait_for(self, num: int) -> int:
        """Wait until so many rows are answered; return how many are."""
        while len(self._outcomes) < num or not self._delivered.empty():
            try:
                outcomes, self._delivered_s = self._delivered.get(timeout=_PATIENCE_S)
            except Empty:
                message = f"the engine has not answered {num} rows in {_PATIENCE_S:g} s"
                raise BenchFailed(message) from None
            self._outcomes += outcomes
        return len(self._outcomes)

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        self._delivered.put((outcomes, perf_counter()))

    def _check(self) -> None:
        for row, result in self._outcomes:
            if isinstance(result, OfframpError):
                raise BenchFailed(f"the engine failed: {result}") from result
            layer = self._exits[result.exit_index]
            wanted = row.rule.layer if isinstance(row.rule, LayerRule) else self._exits[-1]
            if layer != wanted:
                raise BenchFailed(f"a row left at layer {layer} instead of {wanted}")


@contextmanager
def driving(runner: Runner, shape: ModelShape) -> Iterator[Driver]:
    """Run an engine for a block."""
    driver = Driver(runner, shape)
    driver.engine.start()
    try:
        yield driver
    finally:
        driver.engine.stop(0.0)
