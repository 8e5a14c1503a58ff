import json
import os
from pathlib import Path

import pytest

from loadtest.compare import __main__ as command
from serve.bundle.loader import Bundle


@pytest.fixture
def arguments(bundle: Bundle, tmp_path: Path) -> list[str]:
    """Return a comparison of one contender on five texts."""
    data = tmp_path / "dev.tsv"
    data.write_text("label\ttext\n" + "".join(f"{n % 3}\tw{n} w7 w{n + 1}\n" for n in range(5)))
    return [
        *(str(bundle.folder), "--data", str(data), "--out", str(tmp_path / "out")),
        *("--only", "ONNX Runtime + FastAPI, fp32", "--seconds", "0.5", "--no-ray"),
        # So few requests that none is given up, though the machine stops for a second.
        *("--rate", "100"),
    ]


def test_contender_is_started_measured_and_stopped(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cores = os.sched_getaffinity(0)
    assert command.main(arguments) == 0, capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    (line,) = found["lines"]
    assert line["agreement"] == 1.0
    assert line["accuracy"] in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    assert line["per_second"] > 0
    assert line["cpu_s_per_1000"] > 0
    assert line["memory_mb"] > 20
    assert line["failed"] == 0
    assert 0 < line["p50_ms"] <= line["p99_ms"]
    assert "| ONNX Runtime + FastAPI, fp32, dynamic batches |" in capsys.readouterr().out
    assert os.sched_getaffinity(0) == cores
