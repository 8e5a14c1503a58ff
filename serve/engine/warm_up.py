"""Runs every segment before the first request, and measures what batches cost."""

import logging
from collections.abc import Iterator, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple, TypeAlias

import numpy as np

from serve.engine.cost_model import CostModel, fitted
from serve.engine.device_errors import out_of_memory
from serve.engine.runner import Ids, ModelRunner, QueuedOutput, StepOutput
from serve.engine.scheduler import BatchLimits

log = logging.getLogger(__name__)

Shape: TypeAlias = tuple[int, int]  # rows, tokens

# The most telling first: what a launch costs, what tokens, what long texts.
SHAPES: Sequence[Shape] = (
    (1, 8), (4, 64), (1, 32), (8, 32), (1, 128), (32, 32), (4, 128), (16, 64), (1, 512),
)  # fmt: skip
ALWAYS = 3  # so many shapes are run however long they take
REPEATS = 3


class WarmUp(NamedTuple):
    """What is run before the first request.

    Attributes:
        shapes: shapes of the batches.
        budget_s: no further shape is begun if it would probably take longer in all.
        first_counts: whether a shape's first run is recorded. On a GPU it loads kernels and
            allocates memory.
    """

    shapes: Sequence[Shape] = SHAPES
    budget_s: float = 1.0
    first_counts: bool = True


ON_CPU = WarmUp()


def on_gpu(limits: BatchLimits) -> WarmUp:
    """Return the warm-up of a GPU, whose costs per token show in large batches alone."""
    rooms = [(limits.max_tokens // tokens, tokens) for tokens in (32, 128, 512)]
    full = [(min(limits.max_rows, room), tokens) for room, tokens in rooms]
    parts = [(rows // share, tokens) for share in (4, 1) for rows, tokens in full]
    return WarmUp([*SHAPES, *(part for part in parts if part[0])], 5.0, first_counts=False)


def measure(runner: ModelRunner, max_tokens: int, warm_up: WarmUp = ON_CPU) -> CostModel:
    """Return what the runner's segments cost, from medians of real runs.

    A shape that memory does not suffice for is left out.

    Args:
        runner: used by this call alone.
        max_tokens: longest text of the model.
        warm_up: what is run.
    """
    measured: list[list[tuple[int, int, float]]] = [[] for _ in range(len(runner))]
    for num_rows, num_tokens in SHAPES[:2]:
        segment_times_s(runner, num_rows, min(num_tokens, max_tokens))
    began, pace_s = perf_counter(), 0.0
    shapes = dict.fromkeys((rows, min(tokens, max_tokens)) for rows, tokens in warm_up.shapes)
    for place, (num_rows, num_tokens) in enumerate(shapes):
        expected_s = pace_s * num_rows * num_tokens
        if place >= ALWAYS and perf_counter() - began + expected_s > warm_up.budget_s:
            continue
        shape_began = perf_counter()
        try:
            runs = _runs(runner, (num_rows, num_tokens), warm_up)
        except Exception as error:
            if not out_of_memory(error):
                raise
            log.warning("no memory for %d rows of %d tokens at once", num_rows, num_tokens)
            continue
        for of_segment, seconds in zip(measured, np.median(runs, axis=0).tolist(), strict=True):
            of_segment.append((num_rows, num_tokens, seconds))
        pace_s = (perf_counter() - shape_began) / (num_rows * num_tokens)
    return CostModel(list(map(fitted, measured)), _joining_s(runner, min(32, max_tokens)))


def _runs(runner: ModelRunner, shape: Shape, warm_up: WarmUp) -> list[list[float]]:
    """Run a shape some times; return the seconds in each segment, of each run that counts."""
    if not warm_up.first_counts:
        segment_times_s(runner, *shape)
    began, runs = perf_counter(), []
    for _ in range(REPEATS):
        runs.append(segment_times_s(runner, *shape))
        if perf_counter() - began > warm_up.budget_s / 4:
            break
    return runs


def segment_times_s(runner: ModelRunner, num_rows: int, num_tokens: int) -> list[float]:
    """Return the seconds in each segment of texts of one length."""
    marks = [perf_counter()]
    for _ in steps(runner, *_inputs(num_rows, num_tokens)):
        marks.append(perf_counter())
    return np.diff(marks).tolist()


def steps(runner: ModelRunner, ids: Ids, mask: Ids, types: Ids) -> Iterator[StepOutput]:
    """Run from one exit to the next, to the last; yield what each exit gives."""
    keep = np.arange(len(mask))
    output = _ended(runner.start(ids, mask, types))
    yield output
    for index in range(1, len(runner)):
        output = _ended(runner.advance(index, output.hidden, keep, mask))
        yield output


def _ended(run: QueuedOutput) -> StepOutput:
    return StepOutput(run.hidden, run.logits, run.uncertainty)


def _inputs(num_rows: int, num_tokens: int) -> tuple[Ids, Ids, Ids]:
    ones = np.ones((num_rows, num_tokens), np.int64)
    return ones, ones, np.zeros_like(ones)


def _joining_s(runner: ModelRunner, num_tokens: int) -> float:
    """Return the seconds that joining hidden states takes for each token; 0 without any."""
    hidden = next(steps(runner, *_inputs(8, num_tokens))).hidden
    if hidden is None:
        return 0.0
    parts, times_s = [(hidden, np.arange(8), num_tokens)] * 2, []
    for _ in range(1 + REPEATS):
        began = perf_counter()
        runner.join(parts)
        times_s.append(perf_counter() - began)
    return median(times_s[1:]) / (16 * num_tokens)
