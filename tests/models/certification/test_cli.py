"""`offramp calibrate` from the command line."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from models.certification import cli
from models.errors import UnusableData
from serve.bundle.loader import load_bundle
from serve.errors import InvalidRequest
from tests.models.certification.conftest import MakeBundle, MakeData


def calibrate(bundle: Path, data: Path, *options: object) -> Result:
    app = typer.Typer()
    app.command()(cli.calibrate)
    words = [bundle, "--data", data, *options]
    return CliRunner().invoke(app, [str(word) for word in words])


def test_one_screen_names_texts_bounds_rules_and_what_is_lacking(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data(num_texts=600)
    result = calibrate(folder, data, "--unlabelled", "--delta", "0.1")
    assert result.exit_code == 0, result.output
    ladder = load_bundle(folder).ladder("fp32")
    assert ladder
    assert (
        f"fp32, exits 1, 2, 4: {ladder.num_tuning} texts chose the rules, "
        f"{ladder.num_certifying} others certify (delta 0.1)"
    ) in result.stdout
    rows = [line.split() for line in result.stdout.splitlines() if "%" in line]
    assert [row[:2] for row in rows[:5]] == [[f"{e:g}", "%"] for e in (0.5, 1, 2, 3, 5)]
    # 460 texts without a loss would certify 0.5 % at this delta.
    missing = 460 - ladder.num_certifying
    assert f"at most 0.5 %: too few texts; {missing} more that certify" in result.stdout
    assert "running texts: " in result.stderr


def test_an_interrupt_says_what_is_certified(
    make_bundle: MakeBundle, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("models.certification.variant.recorded", interrupted)
    result = calibrate(make_bundle(), make_data())
    assert result.exit_code != 0
    assert "stopped: the precisions shown above are certified" in result.stderr


def test_options_say_which_exits_and_precisions(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data(num_texts=60)
    result = calibrate(folder, data, "--active-exits", "2,4", "--precision", "fp32")
    assert result.exit_code == 0, result.output
    assert [each.exits for each in load_bundle(folder).calibration.ladders] == [(2, 4)]
    for wrong in ("two", ""):
        result = calibrate(folder, data, "--active-exits", wrong)
        expected = f"--active-exits '{wrong}': must be layers such as 2,4,6"
        with pytest.raises(InvalidRequest, match=expected):
            raise result.exception or AssertionError


def test_columns_may_be_named(make_bundle: MakeBundle, make_data: MakeData, tmp_path: Path) -> None:
    records = [json.loads(line) for line in make_data(num_texts=60).read_text().splitlines()]
    data = tmp_path / "named.jsonl"
    renamed = [{"Q": each["text"], "A": "w1 w2", "C": each["label"]} for each in records]
    data.write_text("".join(f"{json.dumps(record)}\n" for record in renamed))
    with pytest.raises(UnusableData, match="line 1: found Q, A, C; none is known to hold labels"):
        raise calibrate(make_bundle(), data).exception or AssertionError
    columns = ["--text-columns", "Q,A", "--label-column", "C"]
    result = calibrate(make_bundle(), data, *columns)
    assert result.exit_code == 0, result.output
