import json
from pathlib import Path

import numpy as np
import pytest

from loadtest.simulator.arrivals import Bursts, Poisson, Recorded
from loadtest.simulator.device import PRESETS, gpu_like, read_device
from loadtest.simulator.errors import InvalidSimulation
from loadtest.simulator.exits import read_mix
from loadtest.simulator.lengths import read_lengths
from loadtest.simulator.trace import read_trace
from loadtest.simulator.workload import replayed


@pytest.mark.parametrize("process", [Poisson(), Bursts(burst_s=1.0)])
def test_arrivals_come_in_order_at_the_asked_mean_rate(process: Poisson | Bursts) -> None:
    times = process.draw(50.0, 40_000, np.random.default_rng(0))
    assert (np.diff(times) >= 0).all()
    assert 40_000 / times[-1] == pytest.approx(50, rel=0.05)


def test_bursts_vary_more_than_poisson_arrivals() -> None:
    def dispersion(process: Poisson | Bursts) -> float:
        times = process.draw(50.0, 40_000, np.random.default_rng(0))
        counts = np.bincount(times.astype(int))
        return float(counts.var() / counts.mean())

    assert dispersion(Poisson()) == pytest.approx(1, abs=0.2)
    assert dispersion(Bursts(burst_s=2.0)) > 5


def test_bursts_that_hold_more_than_all_requests_are_refused() -> None:
    with pytest.raises(InvalidSimulation, match="must not exceed 1"):
        Bursts(peak=5, share=0.5)


@pytest.mark.parametrize(
    ("text", "mean"),
    [("uniform:2-12", 7), ("deebert:5", 5), ("deebert:4.8", 4.8), ("fixed:3", 3), ("never", 12)],
)
def test_exit_mixes_have_the_mean_they_name(text: str, mean: float) -> None:
    mix = read_mix(text, 12)
    drawn = mix.draw(20_000, np.random.default_rng(0))
    assert mix.mean == pytest.approx(mean)
    assert drawn.mean() == pytest.approx(mean, abs=0.1)
    assert drawn.min() >= 1
    assert drawn.max() <= 12


def test_explicit_weights_are_kept() -> None:
    assert read_mix("weights:0,3,1,0", 4).shares.tolist() == [0, 0.75, 0.25, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gaussian", "expected uniform"),
        ("uniform:0-3", "layers 1 to 4"),
        ("uniform:2-5", "layers 1 to 4"),
        ("fixed:x", "expected uniform"),
        ("deebert:1.1", "lies between"),
        ("weights:1,2", "2 weights for 4 layers"),
        ("weights:0,0,0,0", "one positive"),
        ("weights:1,nan,0,0", "one positive"),
    ],
)
def test_wrong_exit_mixes_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSimulation, match=message):
        read_mix(text, 4)


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


def test_a_trace_is_read_from_json_lines_and_csv_alike(tmp_path: Path) -> None:
    lines = [(0.5, 12, 3), (0.25, 7, 1), (2.0, 9, 4)]
    jsonl, table = tmp_path / "trace.jsonl", tmp_path / "trace.csv"
    keys = ("arrival_s", "tokens", "exit_layer")
    jsonl.write_text("\n".join(json.dumps(dict(zip(keys, line, strict=True))) for line in lines))
    rows = [",".join(map(str, line)) for line in lines]
    table.write_text("\n".join([",".join(keys), *rows]))
    for path in (jsonl, table):
        trace = read_trace(path, 4)
        assert trace.arrival_s.tolist() == [0.25, 0.5, 2.0]
        assert trace.tokens.tolist() == [7, 12, 9]
        assert trace.exits is not None
        assert trace.exits.tolist() == [1, 3, 4]


def test_a_trace_is_replayed_with_its_own_requests_at_another_rate(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,tokens\n1,5\n2,6\n4,7\n")
    traffic = replayed(read_trace(path, 4), read_mix("never", 4), read_lengths("32"))
    work = traffic.draw(2.0, 6, seed=0)
    assert work.tokens.tolist() == [5, 6, 7, 5, 6, 7]
    assert work.exits.tolist() == [4] * 6
    # The mean gap, here 1.5 s, stands between two laps.
    assert work.arrival_s == pytest.approx(np.array([0, 1, 3, 4.5, 5.5, 7.5]) / 3)


def test_a_trace_of_one_moment_has_no_rate() -> None:
    with pytest.raises(InvalidSimulation, match="one moment"):
        Recorded(np.ones(3)).draw(1.0, 3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: expected a JSON object"),
        ('{"tokens": 3}', "line 1: arrival_s is missing"),
        ('{"arrival_s": 0, "tokens": "many"}', "line 1: tokens must be a number, not 'many'"),
        ('{"arrival_s": NaN, "tokens": 3}', "line 1: arrival_s must be finite"),
        ('{"arrival_s": 0, "tokens": 2.5}', "whole number"),
        ('{"arrival_s": 0, "tokens": 0}', "from 1 to 512"),
        ('{"arrival_s": 0, "tokens": 3, "exit_layer": 5}', "from 1 to 4"),
        ('{"arrival_s": 0, "tokens": 3}', "at least 2"),
        (
            '{"arrival_s": 0, "tokens": 3, "exit_layer": 1}\n{"arrival_s": 1, "tokens": 3}',
            "all lines or in none",
        ),
    ],
)
def test_wrong_traces_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidSimulation, match=message):
        read_trace(path, 4)
    with pytest.raises(InvalidSimulation, match="cannot be read"):
        read_trace(tmp_path / "nothing.jsonl", 4)


def test_costs_are_read_from_what_the_server_answers(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    cost = {"layer": 1, "fixed_ms": 0.1, "per_token_us": 0.2, "per_token_pair_ns": 1.0}
    path.write_text(json.dumps({"costs": [cost, cost]}))
    device = read_device(str(path), 2)
    assert device.segments[1].seconds(2, 10) == pytest.approx(1e-4 + 20 * 2e-7 + 200 * 1e-9)
    with pytest.raises(InvalidSimulation, match="say --layers 2"):
        read_device(str(path), 3)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        '{"costs": [{"fixed_ms": -1, "per_token_us": 1, "per_token_pair_ns": 0}]}',
        "nonsense",
    ],
)
def test_wrong_costs_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(content)
    with pytest.raises(InvalidSimulation, match="cost"):
        read_device(str(path), 1)
    with pytest.raises(InvalidSimulation, match="gpu-like"):
        read_device(str(tmp_path / "nothing"), 1)


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
