"""Milliseconds by exit of a bundle on this machine, from the engine's own warm-up."""

import numpy as np
from numpy.typing import NDArray

from models.evaluation.costs import Cost
from serve.engine.cost_model import CostModel
from serve.engine.warm_up import measure
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner


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
    return cost_of(
        measure(runner, max_tokens), measure(runner.presenting((last,)), max_tokens), num_tokens
    )


def cost_of(asked: CostModel, unasked: CostModel, num_tokens: NDArray[np.intp]) -> Cost:
    """Return the time of each row at each exit, in milliseconds.

    Args:
        asked: of the segments from exit to exit.
        unasked: of one segment over all layers.
        num_tokens: (rows,).
    """
    lengths, place = np.unique(num_tokens, return_inverse=True)
    segments = np.array(
        [[asked.segment_s(i, 1, int(n)) for n in lengths] for i in range(len(asked))]
    )
    whole = np.array([unasked.segment_s(0, 1, int(n)) for n in lengths])
    total = segments.sum(axis=0)
    # The last exit is asked either way.
    visit = np.maximum(total - whole, 0) / max(len(asked) - 1, 1)
    run = segments.cumsum(axis=0) / total * whole
    milliseconds = 1e3 * run[:, place]
    visits = np.broadcast_to(1e3 * visit[place], milliseconds.shape)
    return Cost(np.maximum(milliseconds - visits, 0), visits.copy())
