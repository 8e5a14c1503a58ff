import json
from pathlib import Path

import pytest

from loadtest.simulator.exit_mixes import InvalidSimulation
from loadtest.simulator.presets import cpu_like, read_device


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
    with pytest.raises(InvalidSimulation, match=r"not what loadtest\.bench\.gpu writes"):
        read_device(f"measured:{path}", 2)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ("card", "expected h100, .* or measured:FILE"),
        ("measured:/no/x", "a readable file: .*/no/x"),
    ],
)
def test_unknown_costs_are_refused(cost: str, message: str) -> None:
    with pytest.raises(InvalidSimulation, match=message):
        read_device(cost, 2)


def test_costs_of_another_depth_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(TIMES))
    with pytest.raises(InvalidSimulation, match="say --layers 2"):
        read_device(f"measured:{path}", 3)
