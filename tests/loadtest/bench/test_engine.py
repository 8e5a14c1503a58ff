import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from loadtest.bench import engine, random_model
from loadtest.bench.engine import Budget, bench_engine
from loadtest.bench.engine_driver import BenchFailed
from loadtest.bench.random_model import BERT_BASE
from loadtest.http.console import run_typed
from serve.bundle.loader import Bundle

HURRIED = Budget(turns=1, turns_s=0.0, rounds=1, requests=20, free_rows=100)


def test_every_bar_is_there(
    bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "engine.json"
    monkeypatch.setattr(sys, "argv", ["engine", str(bundle.folder), "--json", str(file)])
    monkeypatch.setattr(engine, "BUDGET", HURRIED)
    with pytest.raises(SystemExit):
        run_typed("benchmark", bench_engine)
    bars = json.loads(file.read_text())["bars"]
    assert sorted(Counter(bar["what"] for bar in bars).values()) == [2, 4, 4, 4]
    said = capsys.readouterr().out
    assert said.count("| met |") + said.count("**missed**") == len(bars)


def test_model_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_model, "_BUILD", "raise SystemExit('no room for the weights')")
    with pytest.raises(BenchFailed, match="no room for the weights"):
        random_model.build(BERT_BASE, ("fp32",), tmp_path / "bundle")
