"""For how long rows may pass exits by themselves, out of everybody's sight."""

import math
from collections.abc import Callable

import numpy as np

from serve.engine.batch import places
from serve.engine.cost_model import CostModel
from serve.engine.runner import Gaps

# Whoever comes meanwhile.
UNDISTURBED_S = 0.02


def in_time(
    gaps: Gaps,
    costs: CostModel,
    size: tuple[int, int, int],
    deadline_s: float,
    clock: Callable[[], float],
) -> Gaps:
    """Return gaps that end the run within `UNDISTURBED_S`, and before a deadline.

    After one segment at the earliest. For a deadline segments count as at warm-up if they seem to
    cost less now: that may be so of other lengths only.

    Args:
        gaps: (exits,) that let it pass exits, see `serve.engine.runner.PassingRunner`.
        costs: what segments cost.
        size: segments that the rows have been through, how many rows, tokens of the longest.
        deadline_s: on the clock; infinite for none.
        clock: monotonic seconds.
    """
    if deadline_s < math.inf:
        free_s = min(UNDISTURBED_S, deadline_s - clock())
        end = min(costs.reach(*size, free_s), costs.at_warm_up.reach(*size, free_s))
    else:
        end = costs.reach(*size, UNDISTURBED_S)
    return gaps if end == len(gaps) else np.where(places(len(gaps)) < end - 1, gaps, 0)
