"""Paths of pairs of places."""

from itertools import pairwise, product

import numpy as np
import pytest

from models.quality import pairs as module
from models.quality.pairs import Judge, cheapest, pairs

TEXTS = 40


def judges(seed: int) -> tuple[Judge, Judge]:
    """Return a first judge with four places, and a second with three, of random texts."""
    draw = np.random.default_rng(seed)
    leaves = draw.random(TEXTS) < np.array([0.0, 0.3, 0.6, 1.0])[:, None]
    first = Judge(
        np.tile(draw.random(TEXTS) < 0.3, (4, 1)).astype(float), draw.random((4, TEXTS)), leaves
    )
    losses = draw.random(TEXTS) < np.array([0.0, 0.1, 0.4])[:, None]
    costs = np.array([6.0, 4.0, 1.0])[:, None] + draw.random(TEXTS)
    return first, Judge(losses.astype(float), costs)


def mean(first: Judge, second: Judge, pair: tuple[int, int], what: str) -> float:
    """Return the mean loss, or cost, of texts by a pair, one text after the other."""
    assert first.leaves is not None
    own, other = getattr(first, what)[pair[0]], getattr(second, what)[pair[1]]
    before = own if what == "cost" else 0
    values = np.where(first.leaves[pair[0]], own, before + other)
    return float(values.mean())


@pytest.mark.parametrize("seed", range(8))
def test_no_other_path_of_pairs_that_keeps_the_shares_costs_less(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = (0.05, 0.2, 1.0)
    monkeypatch.setattr(module, "ALLOWED", allowed)
    first, second = judges(seed)
    every = list(product(range(4), range(3)))
    cost = {pair: mean(first, second, pair, "cost") for pair in every}
    loss = {pair: mean(first, second, pair, "loss") for pair in every}
    kept = [[p for p in every if loss[p] <= share + 1e-12] for share in (0.0, *allowed)]
    chains = [
        chain
        for chain in product(*kept)
        if all(a <= c and b <= d for (a, b), (c, d) in pairwise(chain))
    ]
    best = min(chains, key=lambda chain: sum(cost[p] for p in chain))
    found = cheapest(first, second)
    assert tuple(found) == best
    path = pairs(first, second)
    assert path[0] == (0, 0)
    steps = [np.subtract(after, before) for before, after in pairwise(path)]
    assert all(step.min() >= 0 and step.max() == 1 for step in steps)
    assert [pair for pair in path if pair in found] == [*dict.fromkeys(found)]
