"""Drive a real engine with its thread: a full queue or one request at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.inputs import Ids
from serve.engine.admission import QueueLimits
from serve.engine.engine import Engine
from serve.engine.row import Answer, Outcome, Row
from serve.engine.runner import Hidden, ModelRunner, StepOutput
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.errors import OfframpError
from serve.rules import ExitRule, LayerRule, NeverRule

_TIMEOUT_S = 600.0
_QUEUE_LIMITS = QueueLimits(max_rows=1_000_000, max_tokens=1_000_000_000)


class BenchFailed(OfframpError):
    """The benchmark's model cannot be made, or the engine gave a wrong answer."""

    code = "bench_failed"


def row_of(shape: ModelShape, text: Ids, rule: ExitRule, tag: int = 0) -> Row:
    """Return a fresh row; a row goes through an engine once."""
    return Row(text, np.zeros_like(text), shape.compile(rule), tag=tag)


def rows_of(shape: ModelShape, texts: Sequence[Ids], layers: Sequence[int]) -> list[Row]:
    """Return fresh rows, each with a rule that leaves at its layer."""
    rules = [LayerRule(layer=int(layer)) for layer in layers]
    return [row_of(shape, text, rule) for text, rule in zip(texts, rules, strict=True)]


class Driver:
    """An engine and the outcomes it has delivered."""

    def __init__(
        self, runner: ModelRunner, shape: ModelShape, limits: BatchLimits = BatchLimits()
    ) -> None:
        self.shape, self.limits = shape, limits
        # This queue waits mostly outside Python's lock, which the engine's thread needs.
        self._delivered: SimpleQueue[tuple[Sequence[Outcome], float]] = SimpleQueue()
        self._outcomes: list[Outcome] = []
        self._delivered_s = 0.0
        self.engine = Engine(
            runner, shape, self._deliver, batch_limits=limits, queue_limits=_QUEUE_LIMITS
        )

    def run(self, rows: Sequence[Row], in_flight: int) -> float:
        """Answer all rows and return the seconds from the first submission to the last outcome.

        Args:
            rows: fresh ones.
            in_flight: how many are unanswered while so many are left.

        Raises:
            BenchFailed: a row got an error, or left at another layer than its rule says.
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
        for row, answer in self.answers():
            self._check_exit(row, answer)
        return took_s

    def answers(self) -> list[tuple[Row, Answer]]:
        """Return the rows of the last run with their answers, in the order of delivery.

        Raises:
            BenchFailed: a row got an error.
        """
        found = []
        for row, result in self._outcomes:
            if not isinstance(result, Answer):
                raise BenchFailed(f"the engine failed: {result}") from result
            found.append((row, result))
        return found

    def _wait_for(self, num: int) -> int:
        """Wait until so many rows are answered; return how many are."""
        while len(self._outcomes) < num or not self._delivered.empty():
            self._receive()
        return len(self._outcomes)

    def _receive(self) -> None:
        try:
            outcomes, self._delivered_s = self._delivered.get(timeout=_TIMEOUT_S)
        except Empty:
            raise BenchFailed(f"the engine has not answered for {_TIMEOUT_S:g} s") from None
        self._outcomes += outcomes

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        self._delivered.put((outcomes, perf_counter()))

    def _check_exit(self, row: Row, answer: Answer) -> None:
        rule = row.rule.rule
        if not isinstance(rule, LayerRule | NeverRule):
            return  # the layer depends on the text
        wanted = rule.layer if isinstance(rule, LayerRule) else self.shape.exits[-1]
        layer = self.shape.exits[answer.exit_index]
        if layer != wanted:
            raise BenchFailed(f"a row left at layer {layer} instead of {wanted}")


@contextmanager
def driving(
    runner: ModelRunner, shape: ModelShape, limits: BatchLimits = BatchLimits()
) -> Iterator[Driver]:
    """Run an engine for a block."""
    driver = Driver(runner, shape, limits)
    driver.engine.start()
    try:
        yield driver
    finally:
        driver.engine.stop(0.0)


class FreeSegments:
    """A `ModelRunner` whose segments cost nothing: they return arrays made beforehand."""

    def __init__(self, num_segments: int, max_rows: int) -> None:
        self._num_segments = num_segments
        logits = np.random.default_rng(0).normal(size=(max_rows, 2)).astype(np.float32)
        hidden = np.zeros((max_rows, 1, 1), np.float32)
        self._steps = [StepOutput(hidden[:rows], logits[:rows]) for rows in range(max_rows + 1)]

    def __len__(self) -> int:
        return self._num_segments

    def start(
        self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids, until: int = 0
    ) -> StepOutput:
        return self._steps[len(input_ids)]

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        until: int | None = None,
    ) -> StepOutput:
        return self._steps[len(keep)]

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return self._steps[sum(len(keep) for _, keep, _ in parts)].hidden
