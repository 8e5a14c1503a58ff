"""Milliseconds by exit of a bundle on this machine, from the engine's own warm-up."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.evaluation.costs import Cost
from serve.engine.cost_model import CostModel
from serve.engine.warm_up import measure
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner

_ROUNDS = 3


def times_by_exit(
    runner: CpuRunner | CudaRunner, num_tokens: NDArray[np.intp], max_tokens: int
) -> Cost:
    """Measure what a lone text of each length takes to each exit.

    Segments are timed twice: with every exit asked, and in one run that asks the last one only.
    The first shares the time of the second out, and the difference is what asking exits adds.

    Args:
        runner: with all active exits.
        num_tokens: (rows,).
        max_tokens: longest text of the model.
    """
    last = len(runner) - 1
    # In turns, so that a busy moment of the machine meets both alike.
    rounds = [
        (measure(runner, max_tokens), measure(runner.presenting((last,)), max_tokens))
        for _ in range(_ROUNDS)
    ]
    return cost_of([asked for asked, _ in rounds], [whole for _, whole in rounds], num_tokens)


def cost_of(
    asked: Sequence[CostModel], unasked: Sequence[CostModel], num_tokens: NDArray[np.intp]
) -> Cost:
    """Return the time of each row at each exit, in milliseconds: medians of the rounds.

    Args:
        asked: of the segments from exit to exit, once for each round.
        unasked: of one segment over all layers.
        num_tokens: (rows,).
    """
    lengths, place = np.unique(num_tokens, return_inverse=True)
    segments = _lone_text_s(asked, lengths)
    whole = _lone_text_s(unasked, lengths)[0]
    total = segments.sum(axis=0)
    # The last exit is asked either way.
    visit = np.maximum(total - whole, 0) / max(len(segments) - 1, 1)
    run = segments.cumsum(axis=0) / total * whole
    milliseconds = 1e3 * run[:, place]
    visits = np.broadcast_to(1e3 * visit[place], milliseconds.shape)
    return Cost(np.maximum(milliseconds - visits, 0), visits.copy())


def _lone_text_s(rounds: Sequence[CostModel], lengths: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return (segments, lengths) seconds, the median of the rounds."""
    times = [
        [[costs.segment_s(i, 1, int(n)) for n in lengths] for i in range(len(costs))]
        for costs in rounds
    ]
    median: NDArray[np.float64] = np.median(times, axis=0)
    return median
