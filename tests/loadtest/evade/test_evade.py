"""The search for texts that a rule answers otherwise than full depth."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from loadtest.bench.errors import BenchFailed
from loadtest.evade.__main__ import COLUMNS, main
from loadtest.evade.changes import KINDS, REPEAT, SPACING, SPECIAL, SUFFIX, Change, changes
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import WORDS

ANY = {"rule": "layer", "layer": 1}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{' '.join(draw.choice(WORDS, 6))}\n" for _ in range(40)))
    return path


def evade(tmp_path: Path, texts: Path, *options: str, kind: Kind | None = None) -> Result:
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    bundle = write_task_bundle(place, kind or Kind("single_label"))
    app = typer.Typer()
    app.command()(main)
    given = [str(bundle), "--data", str(texts), "--texts", "10", "--tries", "2", *options]
    return CliRunner().invoke(app, given)


def rows(result: Result) -> dict[str, dict[str, str]]:
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("|")]
    head, _, *found = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]
    return {row[0]: dict(zip(head, row, strict=True)) for row in found}


def test_every_kind_of_change_does_what_it_says() -> None:
    assert Change(SUFFIX, "and more").of("a text") == "a text and more"
    assert Change(SPACING, ".", 0.9).of("a text") == "a t.e.x.t"
    assert Change(SPECIAL, "[PAD] [PAD]", 1.0).of("a text") == "[PAD] [PAD] a text"
    found = list(changes(["one two three"], ["[SEP]"], 5, np.random.default_rng(3)))
    assert [each.kind for each in found[:5]] == list(KINDS)
    assert found == list(changes(["one two three"], ["[SEP]"], 5, np.random.default_rng(3)))
    repeated = [each for each in found if each.kind == REPEAT]
    assert max(len(each.phrase.split()) for each in repeated) > 3
    without = list(changes(["one"], [], 2, np.random.default_rng(3)))
    assert SPECIAL not in {each.kind for each in without}


def test_a_rule_that_leaves_blindly_is_evaded_and_the_same_seed_finds_the_same(
    tmp_path: Path, texts: Path
) -> None:
    asked = ("--rule", json.dumps(ANY), "--rule", '{"rule": "entropy", "threshold": 0.0}')
    result = evade(tmp_path, texts, *asked, "--examples", "1")
    found = rows(result)
    assert set(COLUMNS) < set(found["layer 1"])
    assert float(found["layer 1"]["layers"]) == 1
    assert float(found["layer 1"]["texts with any of these"]) > 50
    assert {found["entropy < 0"][column] for column in COLUMNS} == {"0.0"}
    assert 'layer 1: "' in result.stdout
    assert evade(tmp_path, texts, *asked, "--examples", "1").stdout == result.stdout
    assert evade(tmp_path, texts, *asked, "--seed", "1").stdout != result.stdout


def test_a_rule_that_leaves_early_only_as_flagged_misses_nothing(
    tmp_path: Path, texts: Path
) -> None:
    bundle = write_task_bundle(tmp_path / "other", Kind("single_label"))
    label = json.loads((bundle / "manifest.json").read_text())["labels"][0]
    above = {"rule": "decision", "leave_above": {label: 0.36}}
    asked = ("--flag", f"{label}=0.34", "--rule", json.dumps(above), "--rule", json.dumps(ANY))
    above_only, blind = rows(evade(tmp_path, texts, *asked)).values()
    assert float(above_only["layers"]) < 4
    assert {above_only[column] for column in COLUMNS} <= {"0.0", "-"}
    assert float(blind["texts with any of these"]) > 0


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (("--rule", "{"), None, "--rule: no JSON"),
        (("--rule", '{"rule": "x"}'), None, "unknown rule 'x'"),
        ((), None, "lets a text leave early; name one by --rule"),
        (("--rule", json.dumps(ANY)), Kind("regression"), "gives values"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    tmp_path: Path, texts: Path, options: tuple[str, ...], kind: Kind | None, message: str
) -> None:
    error = evade(tmp_path, texts, *options, kind=kind).exception
    assert isinstance(error, BenchFailed)
    assert message in str(error)
