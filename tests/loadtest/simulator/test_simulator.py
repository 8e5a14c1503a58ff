"""Traffic, devices and contenders of the simulator, and its command."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from loadtest.http.console import run_typed
from loadtest.simulator.__main__ import simulate
from loadtest.simulator.contenders import CONTENDERS, ENGINE, WHOLE, Record, Scenario
from loadtest.simulator.devices import Device, cpu_like, read_device
from loadtest.simulator.traffic import (
    ExitMix,
    InvalidSimulation,
    Traffic,
    deebert_like,
    read_mix,
    sst2_lengths,
    uniform,
)
from serve.engine.cost_model import SegmentCost
from serve.engine.scheduler import BatchLimits


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


def test_the_engine_learns_what_the_device_takes() -> None:
    device = cpu_like(2)
    whole, second = device.learned(device.whole_s), device.learned(partial(device.run_s, 1))
    assert second.seconds(1, 8) == pytest.approx(device.run_s(1, 1, 8), rel=0.01)
    assert whole.seconds(8, 32) == pytest.approx(device.whole_s(8, 32), rel=0.01)


TIMES: list[dict[str, Any]] = [
    {"rows": 5, "tokens": 96, "whole_ms": 0.8, "captured_ms": None, "until_ms": [0.3, 0.4]},
    {"rows": 1, "tokens": 32, "whole_ms": 0.7, "captured_ms": 0.5, "until_ms": [0.1, 0.2]},
]


def test_measured_times_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"times": TIMES}))
    device = read_device(f"measured:{path}", 2)
    assert [device.whole_s(1, 32), device.whole_s(5, 96)] == pytest.approx([0.5e-3, 0.8e-3])
    # At the points, half way, on the line that goes on, and before the first point.
    segments = [device.run_s(0, 1, tokens) for tokens in (32, 480, 256, 704, 1)]
    assert segments == pytest.approx([0.1e-3, 0.2e-3, 0.15e-3, 0.25e-3, 0.1e-3])
    assert device.limits.max_tokens == 16_384


@pytest.mark.parametrize(
    ("document", "num_segments"),
    [
        ({}, 2),
        ([], 2),
        ({"times": []}, 2),
        ({"times": [line | {"whole_ms": None} for line in TIMES]}, 2),
        ({"times": TIMES}, 3),
        (None, 2),
    ],
)
def test_wrong_measured_times_are_refused(
    tmp_path: Path, document: object, num_segments: int
) -> None:
    path = tmp_path / "gpu.json"
    if document is not None:
        path.write_text(json.dumps(document))
    with pytest.raises(InvalidSimulation):
        read_device(f"measured:{path}", num_segments)


def test_unknown_costs_are_refused() -> None:
    with pytest.raises(InvalidSimulation):
        read_device("card", 2)


TICK_S = 1e-5
# A segment of n tokens takes 100 + n ticks.
DEVICE = Device("easy", (SegmentCost(100 * TICK_S, TICK_S),) * 4)

LIMITS = BatchLimits(max_rows=8, max_tokens=400)
contenders = pytest.mark.parametrize("contender", CONTENDERS)


def make_traffic(exits: str = "uniform:1-4", tokens: int | None = None) -> Traffic:
    return Traffic(read_mix(exits, 4), tokens)


def answered(contender: str, traffic: Traffic, rate: float, num: int = 1) -> Record:
    work = traffic.draw(rate / TICK_S, num, seed=1)
    return CONTENDERS[contender](work, DEVICE, LIMITS)


@contenders
def test_a_lone_request_takes_the_sum_of_its_segments(contender: str) -> None:
    traffic = make_traffic(exits="fixed:3", tokens=20)
    arrival_s = traffic.draw(0.001 / TICK_S, 1, seed=1).arrival_s[0]
    record = answered(contender, traffic, rate=0.001)
    segments = 4 if contender == WHOLE else 3
    assert record.answered_s[0] - arrival_s == pytest.approx(segments * 120 * TICK_S)
    assert record.layers == [segments]


@contenders
@pytest.mark.parametrize("rate", [0.005, 0.02, 0.2])
def test_every_request_is_answered_once_where_it_leaves(contender: str, rate: float) -> None:
    traffic = make_traffic()
    record = answered(contender, traffic, rate, num=400)
    work = traffic.draw(rate / TICK_S, 400, seed=1)
    assert record.layers == ([4] * 400 if contender == WHOLE else work.exits.tolist())
    alone_s = (100 + work.tokens) * TICK_S
    layers = np.array(record.layers)
    assert (np.array(record.answered_s) - work.arrival_s >= layers * alone_s * (1 - 1e-9)).all()


def test_the_highest_rate_within_the_bound_keeps_it_and_little_more_breaks_it() -> None:
    scenario = Scenario(DEVICE, LIMITS, num_requests=1000, seed=1, bound_times=5)
    traffic = make_traffic()
    capacity = scenario.capacity(ENGINE, traffic)
    rate = scenario.sustainable(ENGINE, traffic, capacity)
    assert 0.1 * capacity < rate < capacity
    bound_s = scenario.bound_s(traffic)
    for more, kept in ((0.0, True), (0.02 * capacity, False)):
        latency_s = scenario.latencies_s(ENGINE, traffic, rate + more)
        assert ((latency_s <= bound_s).mean() >= 0.99) == kept
    hopeless = Scenario(DEVICE, LIMITS, num_requests=200, seed=1, bound_times=0.5)
    assert hopeless.sustainable(WHOLE, traffic, 0.02 / TICK_S) == 0


TRAFFIC = Traffic(read_mix("deebert:5", 12))


# The ratios of docs/measurements.md.
@pytest.mark.parametrize(
    ("preset", "ratio"), [("h100", 1.16), ("small-gpu-like", 1.85), ("cpu-like", 2.32)]
)
def test_the_saturated_engine_answers_so_many_times_what_the_whole_model_answers(
    preset: str, ratio: float
) -> None:
    device = read_device(preset, 12)
    here = Scenario(device, device.limits, num_requests=20_000, seed=0, bound_times=5)
    found = here.capacity(ENGINE, TRAFFIC) / here.capacity(WHOLE, TRAFFIC)
    assert found == pytest.approx(ratio, rel=0.01)


app = typer.Typer(pretty_exceptions_enable=False)
app.command()(simulate)

SMALL = ["--layers", "4", "--requests", "300", "--exits", "uniform:1-4"]


def test_every_kind_of_traffic_has_a_line_and_json(tmp_path: Path) -> None:
    path = tmp_path / "simulator.json"
    asked = [*SMALL, "--exits", "never", "--json", str(path)]
    result = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert result.exit_code == 0
    assert result.output.count("p99 within") == 2
    parts = json.loads(path.read_text())["parts"]
    assert [part["mix"] for part in parts] == ["uniform:1-4", "never"]


@pytest.mark.parametrize("asked", [["--exits", "uniform:1-9"], ["--json", "/no/x"]])
def test_wrong_options_are_refused_in_a_sentence(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator", *SMALL, *asked])
    assert run_typed("simulation", simulate) == 1
    assert capsys.readouterr().err.startswith("the simulation failed: ")
