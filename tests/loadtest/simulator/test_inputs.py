import json
from pathlib import Path

import numpy as np
import pytest

from loadtest.simulator.arrivals import Bursts, Poisson
from loadtest.simulator.errors import InvalidSimulation
from loadtest.simulator.lengths import read_lengths
from loadtest.simulator.presets import PRESETS, cpu_like, h100, read_device


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


def test_lengths_of_a_data_file_are_those_of_its_texts(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("index\tquestion\tsentence\tlabel\n0\twho is it\tit is me\tyes\n")
    assert read_lengths(str(path)).draw(1, np.random.default_rng(0)).tolist() == [8]
    path.write_text("label\tpraise\n1\tgood\n")
    with pytest.raises(InvalidSimulation, match="line 1: found label, praise"):
        read_lengths(str(path))


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
    with pytest.raises(InvalidSimulation, match=r"GET /v1/models|h100"):
        read_device(str(path), 1)


def test_a_lone_run_pays_each_launch_and_round_trip_and_the_whole_model_its_own() -> None:
    device = h100(12)
    host_s = device.host_s + device.host_per_row_s
    assert device.lone_s(25) == pytest.approx(12 * (host_s + 135e-6))
    assert device.whole_s(1, 32) == pytest.approx(host_s + 0.70e-3, rel=0.01)
    assert device.whole_s(32, 128) == pytest.approx(device.host_s + 32e-6 + 2.7e-3, rel=0.01)


def test_presets_are_known_by_name() -> None:
    for name in PRESETS:
        assert read_device(name, 3).name == name


def test_the_engine_learns_what_the_device_takes() -> None:
    device = cpu_like(2)
    assert device.costs()[1].seconds(1, 8) == pytest.approx(device.run_s(1, 1, 8), rel=0.01)
    assert device.whole_cost().seconds(8, 32) == pytest.approx(device.whole_s(8, 32), rel=0.01)


SHAPES = [
    {"rows": 1, "tokens": 32, "whole_ms": 0.5, "segment_ms": 0.1, "head_ms": 0.02, "host_us": 60},
    {"rows": 5, "tokens": 96, "whole_ms": 0.5, "segment_ms": 0.2, "head_ms": 0.02, "host_us": 100},
]
TIMES = {"device": "card", "layers": 2, "shapes": SHAPES}


@pytest.mark.parametrize("document", [TIMES, {"facts": {}, "device_times": TIMES}])
def test_measured_times_are_taken_as_they_are(tmp_path: Path, document: object) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(document))
    device = read_device(f"measured:{path}", 2)
    for shape in SHAPES:
        rows, tokens = int(shape["rows"]), int(shape["tokens"])
        host_s, segment_ms = shape["host_us"] / 1e6, shape["segment_ms"] + shape["head_ms"]
        assert device.run_s(1, rows, tokens) == pytest.approx(host_s + segment_ms / 1e3)
        assert device.whole_s(rows, tokens) == pytest.approx(host_s + shape["whole_ms"] / 1e3)
    # Half way, on the line that goes on, and before the first point.
    segments = [device.segments[0].seconds(1, tokens) for tokens in (256, 704, 1)]
    assert segments == pytest.approx([0.17e-3, 0.27e-3, 0.12e-3])
    assert device.limits.max_tokens == 16_384


@pytest.mark.parametrize("document", [{}, [], TIMES | {"shapes": SHAPES[:1]}, {"costs": []}])
def test_wrong_measured_times_are_refused(tmp_path: Path, document: object) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidSimulation, match=r"device_times\.py describes"):
        read_device(f"measured:{path}", 2)
