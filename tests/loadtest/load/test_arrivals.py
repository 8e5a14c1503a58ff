import random
from itertools import islice, pairwise

import pytest

from loadtest.load.arrivals import Timetable, gaps


def due_times(table: Timetable, num: int) -> list[float]:
    return [table.next() for _ in range(num)]


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert list(islice(gaps("constant", 50.0, random.Random(0)), 3)) == [0.02, 0.02, 0.02]


def test_poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() -> None:
    found = list(islice(gaps("poisson", 50.0, random.Random(1)), 20_000))
    mean = sum(found) / len(found)
    variance = sum((gap - mean) ** 2 for gap in found) / len(found)
    assert mean == pytest.approx(0.02, rel=0.03)
    assert variance**0.5 == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize("pattern", ["constant", "poisson"])
def test_due_times_ascend_from_now(pattern: str) -> None:
    found = due_times(Timetable(pattern, 100.0, 5.0, random.Random(2)), 100)  # type: ignore[arg-type]
    assert found[0] >= 5.0
    assert all(early <= late for early, late in pairwise(found))


def test_constant_streams_do_not_begin_together() -> None:
    draw = random.Random(3)
    firsts = {Timetable("constant", 1.0, 0.0, draw).next() for _ in range(8)}
    assert len(firsts) == 8
    assert all(0 <= first < 1 for first in firsts)
