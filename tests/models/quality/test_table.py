"""Tables that a bundle's own answers teach, and rules that are certified with them."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from models.errors import TrainingFailed, UnusableData
from models.quality.load import under_load
from models.quality.losses import losses_of
from models.quality.paths import Tried, find_path
from models.table.add import add_table
from serve.bundle.loader import load_bundle
from serve.rules import NeverRule
from serve.rules.traits import Task
from serve.runtime.placement import place
from serve.tokenization.tokenizer import Text
from tests.models.conftest import offramp
from tests.models.quality.conftest import (
    MakeBundle,
    MakeData,
    certified,
    ladder_of,
    recording_of,
    texts_in,
)

QUIET = Console(quiet=True)


@pytest.fixture
def make_texts(make_data: MakeData) -> MakeData:
    """Return a factory of files of texts of three words and more, of which hardly two are equal."""

    def make(name: str, num_texts: int = 900, task: Task = "single_label") -> Path:
        path = make_data(task, num_texts, name)
        lines = [line for line in path.read_text().splitlines() if line.count(" w") > 1]
        path.write_text("\n".join(lines))
        return path

    return make


@pytest.fixture
def with_table(make_bundle: MakeBundle, make_texts: MakeData) -> MakeBundle:
    """Return a factory of bundles that have taught themselves a table."""

    def make(task: Task = "single_label") -> Path:
        folder = make_bundle(task)
        add_table(folder, [make_texts("teaching", 2000, task)], QUIET)
        return folder

    return make


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_a_taught_table_lets_texts_leave_before_the_first_layer_by_a_certified_rule(
    with_table: MakeBundle, make_texts: MakeData, task: Task
) -> None:
    folder, data = with_table(task), make_texts("traffic", task=task)
    ladder = certified(folder, data)
    bundle = load_bundle(folder)
    assert bundle.ladder("fp32") == ladder
    assert ladder.table == bundle.manifest.files["table.npy"]
    early = [r for r in ladder.rungs if r.exit_shares[0] > 0 and r.certificate("disagreement")]
    assert early, "no text leaves at layer 0"
    # A request that may not leave there gets a promise too, but no better one.
    alone = [r for r in ladder.rungs if r.rule.table is None and r.certificate("disagreement")]
    assert alone
    assert ladder.mean_layers(early[-1]) <= ladder.mean_layers(alone[-1])
    recording = bundle.certifying("fp32")
    assert recording is not None
    exits = recording.taken(early[-1].rule).exits
    np.testing.assert_allclose((exits == 0).mean(), early[-1].exit_shares[0])


def test_along_a_path_with_a_table_no_text_leaves_later(
    with_table: MakeBundle, make_texts: MakeData
) -> None:
    found = recording_of(with_table(), texts_in(make_texts("tuning", 300)))
    path = find_path(found, None, 600, 0.05)
    assert any(rule.table is not None for rule in path.rules)
    assert (np.diff(Tried.of(path, found, losses_of(found, None)).exits, axis=0) <= 0).all()


def test_texts_that_taught_a_table_certify_nothing(
    with_table: MakeBundle, make_texts: MakeData
) -> None:
    folder = with_table()
    with pytest.raises(UnusableData, match="were seen in the training"):
        certified(folder, make_texts("teaching", 2000))


def test_a_new_table_ends_what_was_certified_with_the_older_one_alone(
    make_bundle: MakeBundle, with_table: MakeBundle, make_texts: MakeData
) -> None:
    folder, data = make_bundle(), make_texts("traffic")
    before = certified(folder, data)
    add_table(folder, [make_texts("teaching", 500)], QUIET)
    kept = ladder_of(folder)
    assert [rung.rule for rung in kept.rungs] == [rung.rule for rung in before.rungs]
    certified(folder, data)
    add_table(folder, [make_texts("other teaching", 600)], QUIET)
    bundle = load_bundle(folder)
    assert bundle.ladder("fp32") is None
    assert not [name for name in bundle.manifest.files if name.startswith("certifying-")]


def test_no_text_leaves_at_a_table_by_a_rule_about_decisions(
    with_table: MakeBundle, make_texts: MakeData
) -> None:
    folder, data = with_table(), make_texts("traffic")
    (decided,) = certified(folder, data, flag={"negative": 0.6}).decisions
    assert {rung.exit_shares[0] for rung in decided.rungs} == {0.0}
    assert {len(rung.exit_shares) for rung in decided.rungs} == {4}
    assert decided.rungs[-1].exit_shares[-1] < 1


def test_under_load_a_text_that_leaves_at_the_table_never_enters_the_engine(
    with_table: MakeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.quality.load.TURN_S", 0.02)
    bundle = load_bundle(with_table())
    placement = place(bundle, "cpu", "fp32")
    rules = [NeverRule(), NeverRule(table=0.0)]
    whole, early = under_load(bundle, placement, rules, [Text("w1 w2"), Text("w3")])
    assert whole.per_second > 0
    monkeypatch.setattr("models.quality.load.EngineCore.add", None)
    (alone,) = under_load(bundle, placement, rules[1:], [Text("w1 w2"), Text("w3")])
    assert min(early.per_second, alone.per_second) > 0


def test_models_of_other_tasks_are_taught_none(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    with pytest.raises(TrainingFailed, match="a model of task token has no table"):
        add_table(make_bundle("token"), [make_data("token")], QUIET)


def test_a_report_has_the_table_as_layer_0(
    with_table: MakeBundle, make_texts: MakeData, make_data: MakeData, tmp_path: Path
) -> None:
    folder = with_table()
    certified(folder, make_texts("traffic"))
    out = tmp_path / "report"
    result = offramp("evaluate", folder, data=make_data(name="measured"), out=out)
    assert result.exit_code == 0, result.output
    (model,) = json.loads((out / "report.json").read_text())["models"]
    table, *exits = model["exits"]
    assert (table["layer"], table["costs"]["layers"]) == (0, 0)
    assert [each["layer"] for each in exits] == [1, 2, 4]
