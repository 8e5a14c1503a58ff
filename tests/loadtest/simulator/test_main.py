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


def test_a_small_grid_gives_tables_and_json(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    asked = [*SMALL, "--exits", "never", "--loads", "0.9,0.7", "--json", str(path)]
    result = CliRunner().invoke(app, asked, catch_exceptions=False, env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert "run to completion" in result.output
    document = json.loads(path.read_text())
    parts = document["parts"]
    assert [(part["arrivals"], part["mix"]) for part in parts] == [
        ("poisson", "uniform:1-4"),
        ("poisson", "never"),
        ("bursts", "uniform:1-4"),
        ("bursts", "never"),
    ]
    for part in parts:
        assert [point["load"] for point in part["points"]] == [0.7, 0.9]
        ratios = [point["ratio_within_bound"] for point in part["points"]]
        assert part["worst_ratio_within_bound"] == min(ratios)
        ours, theirs = (
            sum(point["figures"][place]["within_bound"] for point in part["points"])
            for place in (0, 1)
        )
        assert part["overall_ratio_within_bound"] == pytest.approx(ours / theirs)
        rates = part["sustainable"]
        assert part["ratio_sustainable"] == rates["engine"] / rates["run to completion"]
        if part["arrivals"] == "poisson":
            offered = part["points"][0]["figures"][0]["offered_per_s"]
            assert offered == pytest.approx(0.7 * part["capacity"]["run to completion"], rel=0.15)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--loads", "0.7,fast"], "positive numbers"),
        (["--loads", "-1"], "positive numbers"),
        (["--arrivals", "steady"], "expected poisson or bursts"),
        (["--exits", "uniform:1-9"], "layers 1 to 4"),
        (["--no-search", "--loads", "", "--json", "/no/x"], "/no/x: No such file or directory"),
    ],
)
def test_wrong_options_are_refused_in_words(
    asked: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator", *SMALL, *asked])
    assert run_typed("simulation", simulate) == 1
    said = capsys.readouterr().err
    assert said.startswith("the simulation failed: ")
    assert message in said
