"""Runs every segment before the first request, and measures what batches cost."""

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from serve.engine.cost_model import CostModel
from serve.engine.runner import Ids, ModelRunner, StepOutput

# (rows, tokens), the most telling first: what a launch costs, what tokens, what long texts.
SHAPES = ((1, 8), (4, 64), (1, 32), (8, 32), (1, 128), (32, 32), (4, 128), (16, 64), (1, 512))
ALWAYS = 3  # so many shapes are run however long they take
REPEATS = 3


def measure(runner: ModelRunner, max_tokens: int, budget_s: float = 1.0) -> CostModel:
    """Return what the runner's segments cost, from medians of real runs.

    Args:
        runner: used by this call alone.
        max_tokens: longest text of the model.
        budget_s: no further shape is begun if it would probably take longer in all.
    """
    costs = CostModel(len(runner))
    for num_rows, num_tokens in SHAPES[:2]:
        _times(runner, num_rows, min(num_tokens, max_tokens))
    began, pace_s = perf_counter(), 0.0
    shapes = dict.fromkeys((rows, min(tokens, max_tokens)) for rows, tokens in SHAPES)
    for place, (num_rows, num_tokens) in enumerate(shapes):
        expected_s = pace_s * num_rows * num_tokens
        if place >= ALWAYS and perf_counter() - began + expected_s > budget_s:
            continue
        runs = []
        shape_began = perf_counter()
        for _ in range(REPEATS):
            runs.append(_times(runner, num_rows, num_tokens))
            if perf_counter() - shape_began > budget_s / 4:
                break
        for index, seconds in enumerate(np.median(runs, axis=0).tolist()):
            costs.observe(index, num_rows, num_tokens, seconds)
        pace_s = (perf_counter() - shape_began) / (num_rows * num_tokens)
    costs.anchor()
    _measure_joining(runner, min(32, max_tokens), costs)
    return costs


def _times(runner: ModelRunner, num_rows: int, num_tokens: int) -> list[float]:
    """Return the seconds in each segment."""
    marks = [perf_counter()]
    for _ in steps(runner, *_inputs(num_rows, num_tokens)):
        marks.append(perf_counter())
    return np.diff(marks).tolist()


def steps(runner: ModelRunner, ids: Ids, mask: Ids, types: Ids) -> Iterator[StepOutput]:
    """Run from one exit to the next, to the last; yield what each exit gives."""
    keep = np.arange(len(mask))
    output = runner.start(ids, mask, types)
    yield output
    for index in range(1, len(runner)):
        output = runner.advance(index, output.hidden, keep, mask)
        yield output


def _inputs(num_rows: int, num_tokens: int) -> tuple[Ids, Ids, Ids]:
    ones = np.ones((num_rows, num_tokens), np.int64)
    return ones, ones, np.zeros_like(ones)


def _measure_joining(runner: ModelRunner, num_tokens: int, costs: CostModel) -> None:
    hidden = next(steps(runner, *_inputs(8, num_tokens))).hidden
    if hidden is None:
        return
    for _ in range(REPEATS):
        began = perf_counter()
        runner.join([(hidden, np.arange(8), num_tokens)] * 2)
        costs.observe_join(16, num_tokens, perf_counter() - began)
