import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loadtest.simulator.devices import cpu_like, read_device
from loadtest.simulator.traffic import InvalidSimulation


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
