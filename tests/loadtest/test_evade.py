"""The search for texts that a rule answers otherwise than full depth."""

import json
from pathlib import Path

import numpy as np
import pytest

from loadtest.evade import FOUND, KINDS, UNCHANGED, Change, changes, main
from serve.errors import OfframpError
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import WORDS

ANY = {"rule": "layer", "layer": 1}
COLUMNS = (UNCHANGED, *KINDS, FOUND)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{' '.join(draw.choice(WORDS, 6))}\n" for _ in range(40)))
    return path


def evade(texts: Path, *options: str, kind: Kind | None = None) -> None:
    bundle = write_task_bundle(texts.parent / "bundle", kind or Kind("single_label"))
    main([str(bundle), "--data", str(texts), "--texts", "10", "--tries", "2", *options])


def rows(printed: str) -> dict[str, dict[str, str]]:
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    head, _, *found = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]
    return {row[0]: dict(zip(head, row, strict=True)) for row in found}


def test_every_kind_of_change_does_what_it_says() -> None:
    assert Change("suffix", behind="and more").of("a text") == "a text and more"
    assert Change("spacing", gap=".", place=0.9).of("a text") == "a t.e.x.t"
    assert Change("special tokens", "[PAD] [PAD]").of("a text") == "[PAD] [PAD] a text"
    found = list(changes(["one two three"], ["[SEP]"], 5, np.random.default_rng(3)))
    assert [each.kind for each in found[:5]] == list(KINDS)
    assert found == list(changes(["one two three"], ["[SEP]"], 5, np.random.default_rng(3)))
    without = changes(["one"], [], 2, np.random.default_rng(3))
    assert "special tokens" not in {each.kind for each in without}


def test_a_rule_that_leaves_blindly_is_evaded(
    texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--rule", json.dumps(ANY), "--rule", '{"rule": "entropy", "threshold": 0.0}')
    evade(texts, *asked)
    found = rows(capsys.readouterr().out)
    assert set(COLUMNS) < set(found["layer 1"])
    assert float(found["layer 1"]["layers"]) == 1
    assert float(found["layer 1"]["texts with any of these"]) > 50
    assert {float(found["entropy < 0"][column]) for column in COLUMNS if column != FOUND} == {0.0}


def test_a_rule_that_leaves_early_only_as_flagged_misses_nothing(
    texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_task_bundle(texts.parent / "other", Kind("single_label"))
    label = json.loads((bundle / "manifest.json").read_text())["labels"][0]
    above = {"rule": "decision", "leave_above": {label: 0.36}}
    evade(texts, "--flag", f"{label}=0.34", "--rule", json.dumps(above), "--rule", json.dumps(ANY))
    above_only, blind = rows(capsys.readouterr().out).values()
    assert float(above_only["layers"]) < 4
    assert {above_only[column] for column in COLUMNS} <= {"0.00", "-"}
    assert float(blind["texts with any of these"]) > 0


@pytest.mark.parametrize(
    ("rule", "kind"),
    [("{", None), ('{"rule": "x"}', None), (json.dumps(ANY), Kind("regression"))],
)
def test_what_cannot_be_searched_is_refused(texts: Path, rule: str, kind: Kind | None) -> None:
    with pytest.raises(OfframpError):
        evade(texts, "--rule", rule, kind=kind)
