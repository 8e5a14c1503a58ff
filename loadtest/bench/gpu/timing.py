"""Times of single batches: segments beside one graph, early exits, batch sizes."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from loadtest.bench.chain import until_exits_s
from loadtest.bench.gpu.device_variant import DeviceVariant
from loadtest.bench.inputs import SHAPES, Inputs, Shape, random_inputs
from loadtest.bench.one_graph_session import OneGraph

SCALING_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SCALING_TOKENS = 32
_WARM_UP = 3
_FEWEST = 5


class Timing(NamedTuple):
    """Medians of one shape, in milliseconds."""

    rows: int
    tokens: int  # of each row, without padding
    until_exit_ms: tuple[float, ...]  # per exit, from the start until its logits are on the host
    last_exit_ms: float  # all segments, with the logits of the last exit alone
    one_graph_ms: float | None  # the same model as one graph; None if there is none


class BatchSize(NamedTuple):
    """The time of a batch through all segments, with every exit's logits."""

    rows: int
    tokens: int
    ms: float
    rows_per_s: float


def time_shapes(
    variant: DeviceVariant,
    one_graph: OneGraph | None,
    seconds: float,
    shapes: Sequence[Shape] = (*SHAPES, Shape(32, 128)),
) -> list[Timing]:
    """Return the times of every shape that the model takes; `seconds` for each."""
    fitting = [shape for shape in shapes if shape.tokens <= variant.max_tokens]
    return [_time_shape(variant, one_graph, shape, seconds) for shape in fitting]


def time_batch_sizes(variant: DeviceVariant, seconds: float) -> list[BatchSize]:
    """Return the times of ever larger batches; `seconds` for each."""
    tokens = min(SCALING_TOKENS, variant.max_tokens)
    found = []
    for rows in SCALING_ROWS:
        inputs = random_inputs(Shape(rows, tokens), variant.vocabulary)
        (times,) = _medians_s([partial(until_exits_s, variant.chain, inputs)], seconds)
        found.append(BatchSize(rows, tokens, 1e3 * times[-1], rows / times[-1]))
    return found


def _time_shape(
    variant: DeviceVariant, one_graph: OneGraph | None, shape: Shape, seconds: float
) -> Timing:
    inputs = random_inputs(shape, variant.vocabulary)
    chain = variant.chain
    last_exit = chain.presenting((len(chain) - 1,))
    timers = [partial(until_exits_s, chain, inputs), partial(until_exits_s, last_exit, inputs)]
    if one_graph is not None:
        timers.append(partial(_one_graph_s, one_graph, inputs))
    every_s, last_s, *graph_s = _medians_s(timers, seconds)
    return Timing(
        *shape,
        until_exit_ms=tuple(1e3 * s for s in every_s),
        last_exit_ms=1e3 * last_s[-1],
        one_graph_ms=1e3 * graph_s[0][-1] if graph_s else None,
    )


def _medians_s(timers: Sequence[Callable[[], list[float]]], seconds: float) -> list[list[float]]:
    """Run all in turns until the time is over, and return each one's medians."""
    times: list[list[list[float]]] = [[] for _ in timers]
    for timer in [*timers] * _WARM_UP:
        timer()
    end = time.perf_counter() + seconds
    while len(times[0]) < _FEWEST or time.perf_counter() < end:
        for runs, timer in zip(times, timers, strict=True):
            runs.append(timer())
    return [np.median(runs, axis=0).tolist() for runs in times]


def _one_graph_s(one_graph: OneGraph, inputs: Inputs) -> list[float]:
    start = time.perf_counter()
    one_graph.run(inputs)
    return [time.perf_counter() - start]
