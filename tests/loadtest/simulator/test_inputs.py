import json
from pathlib import Path

import numpy as np
import pytest

from loadtest.simulator.arrivals import Bursts, Poisson
from loadtest.simulator.device import PRESETS, gpu_like, read_device
from loadtest.simulator.errors import InvalidSimulation
from loadtest.simulator.lengths import read_lengths


@pytest.mark.parametrize(
    ("process", "least", "most"), [(Poisson(), 0.8, 1.2), (Bursts(burst_s=2.0), 5, np.inf)]
)
def test_arrivals_come_in_order_at_the_mean_rate_and_bursts_vary_more(
    process: Poisson | Bursts, least: float, most: float
) -> None:
    times = process.draw(50.0, 40_000, np.random.default_rng(0))
    assert (np.diff(times) >= 0).all()
    assert 40_000 / times[-1] == pytest.approx(50, rel=0.05)
    counts = np.bincount(times.astype(int))
    assert least < counts.var() / counts.mean() < most, "1 for Poisson arrivals"


def test_bursts_that_hold_more_than_all_requests_are_refused() -> None:
    with pytest.raises(InvalidSimulation, match="must not exceed 1"):
        Bursts(peak=5, share=0.5)


def test_lengths_come_from_numbers_and_texts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("17\n\nthree words here\n")
    drawn = read_lengths(str(path)).draw(100, np.random.default_rng(0))
    assert set(drawn.tolist()) == {17, 5}
    assert read_lengths("32").draw(3, np.random.default_rng(0)).tolist() == [32, 32, 32]


@pytest.mark.parametrize(
    ("content", "message"), [("", "empty"), ("5\n0\n", "line 2"), ("513\n", "line 1")]
)
def test_wrong_lengths_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text(content)
    with pytest.raises(InvalidSimulation, match=message):
        read_lengths(str(path))
    with pytest.raises(InvalidSimulation, match="file that exists"):
        read_lengths(str(tmp_path / "nothing"))


def test_costs_are_read_from_what_the_server_answers(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    cost = {"layer": 1, "fixed_ms": 0.1, "per_token_us": 0.2, "per_token_pair_ns": 1.0}
    path.write_text(json.dumps({"costs": [cost, cost]}))
    device = read_device(str(path), 2)
    assert device.segments[1].seconds(2, 10) == pytest.approx(1e-4 + 20 * 2e-7 + 200 * 1e-9)
    with pytest.raises(InvalidSimulation, match="say --layers 2"):
        read_device(str(path), 3)


@pytest.mark.parametrize("content", ["{}", "[]", '{"costs": [{"fixed_ms": -1}]}', "nonsense", None])
def test_wrong_costs_are_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "model.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidSimulation, match=r"GET /v1/models|gpu-like"):
        read_device(str(path), 1)


def test_a_lone_run_pays_each_launch_and_round_trip() -> None:
    device = gpu_like(12)
    cost = device.segments[0]
    assert device.lone_s(25) == pytest.approx(12 * (device.host_s + cost.seconds(1, 25)))


def test_presets_are_known_by_name() -> None:
    for name in PRESETS:
        assert read_device(name, 3).name == name
    launch = gpu_like(1)
    fixed_s = launch.host_s + launch.segments[0].fixed_s
    assert 1900 < fixed_s / launch.segments[0].per_token_s < 2300
