import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer

from loadtest.bench.engine import __main__ as command
from loadtest.bench.engine import suite
from loadtest.bench.engine.bars import at_least, at_most
from loadtest.bench.engine.memory import bars_of
from loadtest.bench.engine.suite import Plan
from tests.loadtest.bench.engine.conftest import HURRIED, TINY

BARS = {
    "segments at full depth / one graph": 4,
    "a lone request that leaves at layer k / at the last": 4,
    "throughput under full load / whole-model dynamic batching": 4,
    "answers with segments that cost nothing, 12 segments, 64 in flight": 4,
    "p50 of a lone request through the engine - bare segments": 2,
    "resident memory after requests of 1 to 512 tokens": 2,
    "the same / after a tenth of the requests": 2,
}


def plan(cache: Path) -> Plan:
    return Plan(("fp32", "int8"), 1, HURRIED, cache, TINY, TINY, date="2026-01-31")


@pytest.fixture(scope="module")
def document(cache: Path) -> dict[str, Any]:
    steps: list[str] = []
    found = suite.measure(plan(cache), steps.append)
    assert len(steps) > 10
    assert all(steps)
    json.dumps(found, allow_nan=False)
    return found


def test_every_bar_is_there_with_its_verdict(document: dict[str, Any]) -> None:
    counted = {what: 0 for what in BARS}
    for bar in document["bars"]:
        counted[bar["what"]] += 1
        assert bar["value"] > 0 or bar["unit"] == "ms"
        above = bar["value"] >= bar["bound"]
        assert bar["met"] == (above if bar["sense"] == "at least" else bar["value"] <= bar["bound"])
    assert counted == BARS


def test_document_says_what_was_measured_on_what(document: dict[str, Any]) -> None:
    assert document["date"] == "2026-01-31"
    machine = document["machine"]
    assert {"cpu", "cores", "vnni", "onnxruntime", "load_average_at_start"} <= machine.keys()
    assert machine["threads"] == 1
    assert document["model"]["layers"] == 4
    assert "pooler" not in document["model"]["head"]
    figures = document["figures"]["int8"]
    assert [shape["rows"] for shape in figures["price_of_cutting"]] == [1, 2]
    assert [shape["turns"] for shape in figures["price_of_cutting"]] == [HURRIED.shape_turns] * 2
    assert [(left["texts"], len(left["exit_shares"])) for left in figures["leaving_early"]] == [
        ("1 x SST-2", 4),
        ("1 x 4", 4),
    ]
    assert [len(mix["engine_s"]) for mix in figures["throughput"]["mixes"]] == [1, 1]


@pytest.mark.parametrize(
    ("value", "low_enough", "high_enough"),
    [(0.9, True, False), (1.0, True, True), (1.1, False, True), (math.nan, False, False)],
)
def test_value_is_on_the_good_side_of_its_bound(
    value: float, low_enough: bool, high_enough: bool
) -> None:
    assert at_most("what", "case", value, 1.0).as_json()["met"] == low_enough
    assert at_least("what", "case", value, 1.0).as_json()["met"] == high_enough


def test_memory_is_held_against_weights_and_growth() -> None:
    resident = [(0, 300.0), (10, 500.0), (50, 505.0), (100, 520.0)]
    size, growth = bars_of("m", {"weights_mb": 160.0, "resident_mb": resident})
    assert (size.value, size.bound, size.met) == (520.0, 508.0, False)
    assert (growth.value, growth.bound, growth.met) == (1.04, 1.03, False)


@pytest.mark.parametrize(("met", "strict"), [(True, True), (False, False), (False, True)])
def test_missed_bar_is_printed_and_fails_a_strict_run_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    document: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    met: bool,
    strict: bool,
) -> None:
    bars = [bar | {"met": met} for bar in document["bars"]]
    monkeypatch.setattr(command, "measure", lambda *_: document | {"bars": bars})
    with pytest.raises(typer.Exit, match="1") if strict and not met else nullcontext():
        command.run(plan(tmp_path), tmp_path / "bench.json", strict)
    printed = capsys.readouterr().out
    assert ("22 bars met, 0 missed" if met else "0 bars met, 22 missed") in printed
    assert "segments at full depth" in printed
    assert json.loads((tmp_path / "bench.json").read_text())["date"] == "2026-01-31"
