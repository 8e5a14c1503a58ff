import random
from itertools import islice, pairwise

import pytest

from loadtest.load.arrivals import Arrivals, due_times


def gaps(pattern: Arrivals, num: int) -> list[float]:
    times = list(islice(due_times(pattern, 50.0, 5.0, random.Random(1)), num + 1))
    assert times[0] >= 5.0
    return [late - early for early, late in pairwise(times)]


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert gaps("constant", 3) == pytest.approx([0.02] * 3)


def test_poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() -> None:
    found = gaps("poisson", 20_000)
    mean = sum(found) / len(found)
    variance = sum((gap - mean) ** 2 for gap in found) / len(found)
    assert min(found) >= 0
    assert mean == pytest.approx(0.02, rel=0.03)
    assert variance**0.5 == pytest.approx(mean, rel=0.03)


def test_constant_streams_do_not_begin_together() -> None:
    draw = random.Random(3)
    firsts = {next(due_times("constant", 1.0, 0.0, draw)) for _ in range(8)}
    assert len(firsts) == 8
    assert all(0 <= first < 1 for first in firsts)
