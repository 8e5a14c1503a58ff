"""Run a chain of segments: one call a segment, or one call for several segments."""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TypeAlias

import numpy as np

from loadtest.bench.inputs import Inputs
from serve.engine.runner import ModelRunner, StepOutput
from serve.runtime.cpu_runner import CpuRunner

Clock: TypeAlias = Callable[[], float]  # in seconds


def each_segment(chain: ModelRunner, inputs: Inputs) -> Iterator[StepOutput]:
    """Yield what each segment gives, run with one call a segment; no row leaves."""
    every_row = np.arange(len(inputs.input_ids))
    step = chain.start(*inputs)
    yield step
    for index in range(1, len(chain)):
        step = chain.advance(index, step.hidden, every_row, inputs.attention_mask)
        yield step


def until_exits_s(chain: ModelRunner, inputs: Inputs, clock: Clock = perf_counter) -> list[float]:
    """Return the seconds from the start until each exit's logits, with one call a segment."""
    start = clock()
    return [clock() - start for _ in each_segment(chain, inputs)]


def run_to_exit(chain: CpuRunner, inputs: Inputs, last: int) -> StepOutput:
    """Run up to the exit with index `last` in one call; the exits before are not evaluated."""
    return chain.start(*inputs, last)


def run_to_exit_s(
    chain: CpuRunner, inputs: Inputs, last: int, clock: Clock = perf_counter
) -> float:
    """Return the seconds that `run_to_exit` takes."""
    start = clock()
    run_to_exit(chain, inputs, last)
    return clock() - start
