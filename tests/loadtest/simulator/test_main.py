import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from loadtest.http.console import run_typed
from loadtest.simulator.__main__ import simulate

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(simulate)

SMALL = ["--layers", "4", "--requests", "300", "--exits", "uniform:1-4"]


def test_every_kind_of_traffic_has_a_line_and_json(tmp_path: Path) -> None:
    path = tmp_path / "simulator.json"
    asked = [*SMALL, "--exits", "never", "--json", str(path)]
    result = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert result.exit_code == 0
    assert result.output.count("p99 within") == 2
    parts = json.loads(path.read_text())["parts"]
    assert [part["mix"] for part in parts] == ["uniform:1-4", "never"]


@pytest.mark.parametrize("asked", [["--exits", "uniform:1-9"], ["--json", "/no/x"]])
def test_wrong_options_are_refused_in_a_sentence(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator", *SMALL, *asked])
    assert run_typed("simulation", simulate) == 1
    assert capsys.readouterr().err.startswith("the simulation failed: ")
