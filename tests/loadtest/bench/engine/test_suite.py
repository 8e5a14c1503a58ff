import json
import math
import tempfile
from pathlib import Path

import pytest

from export.bundle import plan, write
from loadtest.bench import random_model
from loadtest.bench.engine.__main__ import show
from loadtest.bench.engine.bars import Bar, at_least, at_most
from loadtest.bench.engine.memory import bars_of
from loadtest.bench.engine.settings import Budget
from loadtest.bench.engine.suite import Plan, measure
from loadtest.bench.errors import BenchFailed
from loadtest.bench.inputs import Shape
from loadtest.bench.random_model import ModelSettings
from serve.bundle.loader import load_bundle
from tests.conftest import InTurns

TINY = ModelSettings(name="tiny", layers=4, width=32, heads=2, vocabulary=200, max_tokens=64)
HURRIED = Budget(
    shapes=(Shape(1, 4), Shape(2, 8)),
    shape_s=0,
    shape_turns=2,
    leave_turns=1,
    leave_s=0.0,
    rounds=1,
    requests=20,
    in_flight=8,
    bookkeeping_rows=100,
    lone_turns=2,
    memory_requests=30,
    wide_memory_requests=20,
)
BARS = {
    "segments at full depth / one graph": 4,
    "a lone request that leaves at layer k / at the last": 4,
    "throughput under full load / whole-model dynamic batching": 4,
    "answers with segments that cost nothing, 12 segments, 64 in flight": 4,
    "p50 of a lone request through the engine - bare segments": 2,
    "resident memory after requests of 1 to 512 tokens": 2,
    "the same / after a tenth of the requests": 2,
}


@pytest.fixture(scope="module")
def bars(in_turns: InTurns) -> list[Bar]:
    """Return all bars of a tiny model, which this process builds: it has PyTorch loaded."""
    with in_turns("bench") as folder:
        if not (folder / TINY.name).exists():
            with tempfile.TemporaryDirectory() as model:
                random_model.write(TINY, Path(model))
                write(plan(Path(model), ("fp32", "int8")), folder / TINY.name)
    tiny = load_bundle(folder / TINY.name)
    return measure(Plan(("fp32", "int8"), 1, HURRIED), tiny, tiny, lambda step: None)


def test_every_bar_is_there(bars: list[Bar]) -> None:
    counted = {what: 0 for what in BARS}
    for bar in bars:
        counted[bar.what] += 1
        assert bar.value > 0 or bar.unit == "ms"
    assert counted == BARS


def test_the_figures_are_written_and_missed_bars_counted(
    bars: list[Bar], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show([*bars, at_most("what", "case", 2.0, 1.0)], {"cores": 2}, tmp_path / "bench.json")
    assert "| what | case | 2.000 | at most 1 | **missed** |" in capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [bar["met"] for bar in found["bars"]] == [bar.met for bar in bars] + [False]


@pytest.mark.parametrize(
    ("value", "low_enough", "high_enough"),
    [(0.9, True, False), (1.0, True, True), (1.1, False, True), (math.nan, False, False)],
)
def test_value_is_on_the_good_side_of_its_bound(
    value: float, low_enough: bool, high_enough: bool
) -> None:
    assert at_most("what", "case", value, 1.0).met == low_enough
    assert at_least("what", "case", value, 1.0).met == high_enough


def test_memory_is_held_against_weights_and_growth() -> None:
    size, growth = bars_of("m", 160.0, early_mb=500.0, late_mb=520.0)
    assert (size.value, size.bound, size.met) == (520.0, 508.0, False)
    assert (growth.value, growth.bound, growth.met) == (1.04, 1.03, False)


def test_model_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_model, "_BUILD", "raise SystemExit('no room for the weights')")
    with pytest.raises(BenchFailed, match="cannot be made:\nno room for the weights"):
        random_model.build(TINY, ("fp32",), tmp_path / "bundle")
