import json
from pathlib import Path

import pytest

from loadtest.bench.front import OTHER, THIS, Cost, Kind, figures, main, split
from serve.bundle.loader import Bundle


def test_time_goes_to_the_event_loop_the_engine_or_the_others() -> None:
    before = {7: 1.0, 8: 5.0, 9: 2.0}
    after = {7: 1.5, 8: 5.25, 9: 4.0, 10: 0.125}
    assert split(7, before, after) == (0.5, 2.0, 0.375)
    assert split(7, {}, {7: 1.0}) == (1.0, 0.0, 0.0)


def test_event_loops_are_compared_at_equal_requests_in_the_same_turn() -> None:
    def cost(*loops_ms: float) -> list[Cost]:
        return [Cost(ms, 2.0, 0.0, 300.0) for ms in loops_ms]

    costs = {
        Kind(THIS, "never", 1): cost(4.0, 1.0),
        Kind(OTHER, "never", 1): cost(2.0, 0.5),
        Kind(THIS, "balanced", 32): cost(9.0, 1.0),
    }
    found = figures(costs)
    assert [each["event loop / other's"] for each in found] == [2.0, 1.0, None]
    assert [each["sum_ms"] for each in found] == [4.5, 3.25, 7.0]


def test_every_server_is_measured_in_every_turn(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "front.json"
    arguments = (
        *(str(bundle.folder), "--precision", "fp32", "--texts", "2", "--turns", "2"),
        *("--requests", "512", "--json", str(file)),
    )
    assert main(arguments) == 0, capsys.readouterr().out
    lines = json.loads(file.read_text())["lines"]
    assert [(line["server"], line["exit"]) for line in lines] == [
        *((THIS, exit) for exit in ("never", "balanced")),
        ("ONNX Runtime + FastAPI", "whole model"),
    ]
    for line in lines:
        assert [min(turn["loop_ms"], turn["engine_ms"]) > 0 for turn in line["turns"]] == [True] * 2


def test_other_checkout_runs_its_own_code(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "serve").mkdir()
    (tmp_path / "serve" / "__init__.py").touch()
    (tmp_path / "serve" / "cli.py").write_text("def main(): raise SystemExit('the other one')\n")
    assert main([str(bundle.folder), "--against", str(tmp_path)]) == 1
    assert "the other one" in capsys.readouterr().out
