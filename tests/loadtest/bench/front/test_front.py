import json
from pathlib import Path

import pytest

from loadtest.bench.front.__main__ import main
from loadtest.bench.front.costs import THIS
from serve.bundle.loader import Bundle


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
    assert f"| {THIS} | balanced | 2 |" in capsys.readouterr().out


def test_other_checkout_runs_its_own_code(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "serve").mkdir()
    (tmp_path / "serve" / "__init__.py").touch()
    (tmp_path / "serve" / "cli.py").write_text("def main(): raise SystemExit('the other one')\n")
    assert main([str(bundle.folder), "--against", str(tmp_path)]) == 1
    assert "before it was ready:\nthe other one" in capsys.readouterr().out
