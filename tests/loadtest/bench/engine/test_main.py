from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from loadtest.bench.engine import __main__ as command
from loadtest.bench.engine.settings import BERT_BASE, BERT_BASE_POOLER, QUICK, Budget
from loadtest.bench.engine.suite import Plan


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Plan, Path | None, bool]]:
    """Return what the command would run."""
    found: list[tuple[Plan, Path | None, bool]] = []
    monkeypatch.setattr(command, "run", lambda *arguments: found.append(arguments))
    return found


def invoke(*options: str) -> None:
    app = typer.Typer()
    app.command()(command.bench_engine)
    result = CliRunner().invoke(app, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_options_reach_the_plan(asked: list[tuple[Plan, Path | None, bool]]) -> None:
    invoke()
    options = ["--precision", "int8", "--quick", "--pooler", "--threads", "3"]
    invoke(*options, "--date", "2026-01-31", "--json", "out.json", "--strict", "--cache", "there")
    (usual, *rest), (plan, *other) = asked
    assert (usual.precisions, usual.budget, usual.model) == (("fp32", "int8"), Budget(), BERT_BASE)
    assert usual.num_threads >= 1
    assert rest == [None, False]
    assert (plan.precisions, plan.budget, plan.model) == (("int8",), QUICK, BERT_BASE_POOLER)
    assert (plan.num_threads, plan.date, plan.cache) == (3, "2026-01-31", Path("there"))
    assert other == [Path("out.json"), True]
