import numpy as np
import pytest

from loadtest.bench.engine.exit_mixes import EARLY_12, ExitMix, early, uniform
from loadtest.bench.engine.lengths import SENTENCES, SHORTEST, draw_lengths

MIXES = (uniform(12), EARLY_12, early(4), uniform(4))


@pytest.mark.parametrize("mix", MIXES)
def test_shares_add_up(mix: ExitMix) -> None:
    assert sum(mix.shares) == pytest.approx(1)
    assert min(mix.shares) >= 0


def test_order_of_arrival_does_not_decide_the_layer() -> None:
    ranks = np.arange(2000)
    # As unlucky as can be for layers that go by arrival.
    lengths = 4 + (50 * (ranks * (5**0.5 - 1) / 2 % 1)).astype(int)
    layers = uniform(12).assign(lengths)
    assert (layers * lengths).sum() / lengths.sum() == pytest.approx(7, rel=0.01)


def test_means_are_those_of_the_bars() -> None:
    assert uniform(12).mean_layer == pytest.approx(7)
    assert early(12).mean_layer == pytest.approx(4.8)
    assert early(4).mean_layer / 4 == pytest.approx(4.8 / 12, abs=0.1)


@pytest.mark.parametrize("mix", MIXES)
def test_short_and_long_requests_leave_at_the_same_layers(mix: ExitMix) -> None:
    lengths = draw_lengths(4000, seed=3)
    layers = mix.assign(lengths)
    found = np.bincount(layers, minlength=mix.depth + 1)[1:] / len(layers)
    np.testing.assert_allclose(found, mix.shares, atol=0.005)
    by_tokens = (layers * lengths).sum() / lengths.sum()
    assert by_tokens == pytest.approx(mix.mean_layer, rel=0.01)


def test_lengths_are_those_of_the_data_set() -> None:
    assert sum(SENTENCES) == 872
    lengths = draw_lengths(20_000, seed=0)
    assert (lengths.min(), lengths.max()) == (SHORTEST, 55)
    assert lengths.mean() == pytest.approx(25.16, abs=0.3)
    assert (draw_lengths(9, seed=1) == draw_lengths(9, seed=1)).all()
    assert (draw_lengths(9, seed=1) != draw_lengths(9, seed=2)).any()
