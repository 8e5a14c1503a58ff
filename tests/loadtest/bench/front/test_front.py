import json
from pathlib import Path

import pytest

from loadtest.bench.front.__main__ import main
from loadtest.bench.front.servers import AGAINST, FLOOR, THIS
from serve.bundle.loader import Bundle

REPOSITORY = Path(__file__).parents[4]
OTHER = AGAINST.format(REPOSITORY)


def test_every_server_is_measured_in_every_turn(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "front.json"
    arguments = (
        *(str(bundle.folder), "--precision", "fp32", "--against", str(REPOSITORY)),
        *("--texts", "2", "--turns", "2", "--requests", "512", "--samples-of", "4096"),
        *("--json", str(file)),
    )
    assert main(arguments) == 0, capsys.readouterr().out
    lines = json.loads(file.read_text())["lines"]
    assert [(line["server"], line["exit"]) for line in lines] == [
        *((server, exit) for server in (THIS, OTHER, FLOOR) for exit in ("never", "balanced")),
        ("ONNX Runtime + FastAPI", "whole model"),
    ]
    for line in lines:
        assert [min(turn["loop_ms"], turn["engine_ms"]) > 0 for turn in line["turns"]] == [True] * 2
        assert (line["loop_to_floor"] == 1) == (line["server"] == FLOOR)
        assert (line["loop_to_other"] is not None) == (line["server"] == THIS)
        sampled = line["server"] in (THIS, OTHER) and line["exit"] == "balanced"
        assert sum((line["shares"] or {}).values()) == pytest.approx(float(sampled))
        if sampled:
            assert line["shares"]["read"] > line["shares"]["loop"]
    printed = capsys.readouterr().out
    assert f"| {FLOOR} | balanced | 2 |" in printed
    assert f"| stage, ms (share) | {THIS}, balanced, 2 texts |" in printed


def test_name_that_no_server_has_is_refused(
    bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(bundle.folder), "--only", "Triton"]) == 1
    assert "no server has that in its name" in capsys.readouterr().out
