"""Times of the exits belong to the exits, in whatever order they were taken."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from loadtest.bench.inputs import Shape
from loadtest.bench.segments import segment_timing
from loadtest.bench.segments.segment_timing import cutting_ratio, time_segments


class CountingChain:
    """Segments of which each takes a second of a clock of their own."""

    hidden = None

    def __init__(self) -> None:
        self.now = 0.0
        self.left: list[int] = []

    def __len__(self) -> int:
        return 4

    def start(self, _ids: Any, _mask: Any, _types: Any, until: int = 0) -> Any:
        self.left.append(until)
        self.now += 1 + until
        return self

    def advance(self, *_inputs: Any) -> Any:
        self.now += 1
        return self


class CountingGraph:
    """A whole model that takes two seconds of a chain's clock."""

    def __init__(self, chain: CountingChain) -> None:
        self._chain = chain

    def run(self, _inputs: Any) -> Any:
        self._chain.now += 2


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_timing, "_settle", lambda: None)
    monkeypatch.setattr(segment_timing, "_WARM_UP_S", 0)


def loaded(chain: CountingChain, num_graphs: int) -> Any:
    graphs = [CountingGraph(chain) for _ in range(num_graphs)]
    return SimpleNamespace(chain=chain, one_graphs=graphs, clock=lambda: chain.now, vocabulary=9)


def test_exits_are_timed_in_random_order_and_keep_their_places() -> None:
    chain = CountingChain()
    timing = time_segments(loaded(chain, 1), Shape(2, 3), budget_s=0)
    assert timing.exit_shares == (0.25, 0.5, 0.75, 1)
    assert timing.ratio == 2
    assert timing.segments_ms == timing.each_segment_ms == 4000
    assert any(earlier > later for earlier, later in pairwise(chain.left))
    assert set(chain.left) == {0, 1, 2, 3}


def test_contenders_take_turns_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = list[Any]()

    def noting(timer: Any) -> segment_timing.Turn:
        turns.append(timer)
        return np.ones((3, 4))

    monkeypatch.setattr(segment_timing, "_turn", noting)
    assert cutting_ratio(loaded(CountingChain(), 3), Shape(1, 3), 0, fewest=7) == 1
    orders = {tuple(map(id, turns[at : at + 4])) for at in range(0, len(turns), 4)}
    assert len(turns) == 7 * 4, "segments, three settings of the one graph"
    assert len(orders) > 1
    assert all(len(set(order)) == 4 for order in orders), "each once in a round"


def test_a_slow_minute_slows_both() -> None:
    """Medians over all turns, divided, would be 0.2."""

    def turns(*seconds: float) -> list[segment_timing.Turn]:
        return [np.array([[0.5 * second, second]] * 3) for second in seconds]

    slow, quick, leaving = turns(2, 20, 20, 2, 2), turns(1, 10, 10, 10, 1), turns(*[70] * 5)
    graphs = [turns(*[30] * 5), quick]
    timing = segment_timing._summary(
        Shape(1, 8),
        {"segments": [slow], "leaving": [leaving], "each_segment": [slow], "one_graph": graphs},
    )
    assert timing.ratio == 2
    assert (timing.segments_ms, timing.one_graph_ms) == (2000, 10_000)
    assert timing.exit_shares == (0.5, 1)
