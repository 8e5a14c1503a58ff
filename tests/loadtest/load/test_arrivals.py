import random
from itertools import islice, pairwise

import numpy as np
import pytest

from loadtest.load.arrivals import Arrivals, due_times


@pytest.mark.parametrize(("pattern", "spread"), [("constant", 0.0), ("poisson", 0.02)])
def test_gaps_have_the_mean_and_the_spread_of_their_pattern(
    pattern: Arrivals, spread: float
) -> None:
    times = list(islice(due_times(pattern, 50.0, 5.0, random.Random(1)), 20_001))
    gaps = np.array([late - early for early, late in pairwise(times)])
    assert times[0] >= 5.0
    assert gaps.min() >= 0
    assert (gaps.mean(), gaps.std()) == (pytest.approx(0.02, 0.03), pytest.approx(spread, 0.03))


def test_constant_streams_do_not_begin_together() -> None:
    draw = random.Random(3)
    firsts = {next(due_times("constant", 1.0, 0.0, draw)) for _ in range(8)}
    assert len(firsts) == 8
    assert all(0 <= first < 1 for first in firsts)
