import numpy as np
import pytest

from loadtest.simulator.traffic import (
    ExitMix,
    InvalidSimulation,
    deebert_like,
    read_mix,
    sst2_lengths,
    uniform,
)


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("uniform:2-12", 7),
        ("deebert:5", 5),
        ("deebert:4.8", 4.8),
        ("fixed:3", 3),
        ("never", 12),
    ],
)
def test_exit_mixes_have_the_mean_they_name(text: str, mean: float) -> None:
    mix = read_mix(text, 12)
    drawn = mix.draw(20_000, np.random.default_rng(0))
    assert mix.mean == pytest.approx(mean)
    assert drawn.mean() == pytest.approx(mean, abs=0.1)
    assert drawn.min() >= 1
    assert drawn.max() <= 12


@pytest.mark.parametrize("text", ["gaussian", "uniform:0-3", "fixed:x", "deebert:1.1"])
def test_wrong_exit_mixes_are_refused(text: str) -> None:
    with pytest.raises(InvalidSimulation):
        read_mix(text, 4)


@pytest.mark.parametrize(
    "mix", [uniform(2, 12, 12), deebert_like(4.8, 12), uniform(2, 4, 4), deebert_like(1.6, 4)]
)
def test_short_and_long_requests_leave_at_the_same_layers(mix: ExitMix) -> None:
    lengths = sst2_lengths(4000, seed=3)
    layers = mix.assign(lengths)
    found = np.bincount(layers, minlength=len(mix.shares) + 1)[1:] / len(layers)
    np.testing.assert_allclose(found, mix.shares, atol=0.005)
    by_tokens = (layers * lengths).sum() / lengths.sum()
    assert by_tokens == pytest.approx(mix.mean, rel=0.01)


def test_lengths_are_near_those_of_the_data_set() -> None:
    lengths = sst2_lengths(20_000, seed=0)
    assert lengths.mean() == pytest.approx(25.2, abs=0.5)
    assert (sst2_lengths(9, seed=1) == sst2_lengths(9, seed=1)).all()
    assert (sst2_lengths(9, seed=1) != sst2_lengths(9, seed=2)).any()
