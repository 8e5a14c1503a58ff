"""Small models that are put in front of large ones, and rules that are certified with them."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from export.errors import ExportFailed
from export.ladders import check_kept
from models.cascade.add import add_small
from models.errors import TrainingFailed
from models.prediction.opening import open_model
from models.prediction.predictor import Predictor
from models.quality.load import under_load
from models.quality.losses import losses_of
from models.quality.paths import Tried, find_path
from serve.bundle.loader import load_bundle
from serve.classifier.small_exits import SmallRow
from serve.engine.core import EngineCore
from serve.rules import ConfidenceRule, NeverRule
from serve.rules.small import SmallRule
from serve.runtime.placement import place
from serve.tokenization.tokenizer import Text
from tests.models.conftest import offramp
from tests.models.quality.conftest import (
    MakeBundle,
    MakeData,
    certified,
    command,
    contents,
    ladder_of,
    recording_of,
    texts_in,
)
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.small_models import MOST_TOKENS, NUM_SMALL_EXITS, write_small
from tests.support.tiny import WORDS

RULE = ConfidenceRule(threshold=0.9, small=SmallRule(threshold=0.7))


@pytest.fixture
def large(make_bundle: MakeBundle) -> Path:
    return make_bundle()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_small(tmp_path)


@pytest.fixture
def twin(large: Path, tmp_path: Path) -> Path:
    """Return a small model that says what the large one does."""
    return Path(shutil.copytree(large, tmp_path / "twin"))


def test_predict_counts_no_operations_where_it_would_leave_out_the_small_model(
    large: Path, small: Path, tmp_path: Path
) -> None:
    add_small(large, small)
    with pytest.raises(TrainingFailed, match="leave --model out"):
        open_model(large, RULE, original=tmp_path)


def test_what_is_recorded_is_what_predict_says(
    large: Path, small: Path, make_data: MakeData
) -> None:
    add_small(large, small)
    texts = [*texts_in(make_data(num_texts=80)), " ".join(WORDS[:20])]
    recording = recording_of(large, texts)
    taken, before = recording.taken(RULE), recording.traits.num_before
    predicted = Predictor(open_model(large, RULE)).predict(list(map(Text, texts)))
    layers = np.array(recording.traits.layers)[taken.exits]
    assert [each.exit_layer for each in predicted] == layers.tolist()
    costs = np.array(recording.traits.layers_taken(RULE))[taken.exits]
    assert [each.layers for each in predicted] == costs.tolist()
    labels = [recording.traits.labels[label] for label in taken.deciding.argmax(axis=1)]
    assert [each.result["label"] for each in predicted] == labels
    assert min(taken.exits) < before <= max(taken.exits)
    # A long text is not seen there, and the exits that were asked are the large model's alone.
    assert np.isnan(recording.logits[:before, -1]).all()
    assert recording.num_tokens[-1] > MOST_TOKENS
    asked = [each.exits_asked for each in predicted]
    assert {ask for ask, place in zip(asked, taken.exits, strict=True) if place < before} == {()}


def test_a_twin_in_front_lets_texts_leave_there_by_a_certified_rule(
    large: Path, twin: Path, make_data: MakeData
) -> None:
    data = make_data(num_texts=900)
    before = certified(large, data)
    add_small(large, twin)
    kept = ladder_of(large)
    assert [rung.rule for rung in kept.rungs] == [rung.rule for rung in before.rungs]
    manifest = load_bundle(large).manifest
    assert manifest.small
    # As measured, a twin's layers cost what the large one's do; half of that makes it pay.
    cheap = manifest.small.model_copy(update={"layer_cost": 0.2})
    rewrite_manifest(large, lambda document: document.update(small=cheap.model_dump()))
    ladder = certified(large, data)
    assert ladder.small == cheap
    early = [r for r in ladder.rungs if r.rule.small is not None and r.certificate("disagreement")]
    assert early
    assert sum(early[-1].exit_shares[:NUM_SMALL_EXITS]) > 0
    alone = [r for r in ladder.rungs if r.rule.small is None and r.certificate("disagreement")]
    assert alone, "requests that may not leave there have no promise"
    assert ladder.mean_layers(early[-1]) <= ladder.mean_layers(alone[-1])


def test_along_a_path_of_pairs_no_text_leaves_later(
    large: Path, twin: Path, make_data: MakeData
) -> None:
    add_small(large, twin)
    rewrite_manifest(large, lambda document: document["small"].update(layer_cost=0.05))
    found = recording_of(large, texts_in(make_data(num_texts=600)))
    path = find_path(found, None, 900, 0.05)
    assert any(rule.small is not None for rule in path.rules)
    exits = Tried.of(path, found, losses_of(found, None)).exits
    assert (np.diff(exits, axis=0) <= 0).all()


def test_another_small_model_ends_what_was_certified_with_the_older_one(
    large: Path, twin: Path, small: Path, make_data: MakeData
) -> None:
    add_small(large, twin)
    certified(large, make_data(num_texts=600))
    add_small(large, small)
    bundle = load_bundle(large)
    assert bundle.small
    assert bundle.small.manifest.max_tokens == MOST_TOKENS
    assert bundle.ladder("fp32") is None
    assert not [name for name in bundle.manifest.files if name.startswith("certifying-")]


@pytest.mark.parametrize("older", [False, True])
def test_a_calibration_that_is_refused_leaves_the_bundle_as_it_was(
    large: Path, small: Path, twin: Path, make_data: MakeData, older: bool
) -> None:
    if older:
        add_small(large, twin)
        certified(large, make_data(num_texts=600))
    before = contents(large)
    few = make_data(num_texts=1, name="few")
    result = command(large, few, "--small", small)
    assert result.exit_code == 1, result.output
    assert contents(large) == before


def test_an_interrupted_one_leaves_it_too_and_a_whole_one_no_older_small_model(
    large: Path,
    small: Path,
    twin: Path,
    make_data: MakeData,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_small(large, twin)
    before, data = contents(large), make_data(num_texts=600)

    with monkeypatch.context() as patch:
        stopped = Mock(side_effect=KeyboardInterrupt)
        patch.setattr("models.quality.calibrate.sample_texts", stopped)
        assert command(large, data, "--small", small).exit_code != 0
    assert contents(large) == before
    result = command(large, data, "--small", small)
    assert result.exit_code == 0, result.output
    bundle = load_bundle(large)
    assert bundle.manifest.small
    assert [each.name for each in large.glob("small-*")] == [bundle.manifest.small.folder]
    assert bundle.manifest.small.name == "little"


def test_one_that_does_not_fit_is_refused_and_nothing_is_written(
    large: Path, small: Path, make_bundle: MakeBundle
) -> None:
    before = contents(large)
    rewrite_manifest(small, lambda manifest: manifest.update(labels=["bad", "fine", "good"]))
    with pytest.raises(TrainingFailed, match="its labels are bad, fine, good"):
        add_small(large, small)
    with pytest.raises(TrainingFailed, match="its task is multi_label"):
        add_small(large, make_bundle("multi_label"))
    assert contents(large) == before


def test_a_model_with_a_single_exit_may_have_one(
    large: Path, twin: Path, make_data: MakeData
) -> None:
    data = make_data(num_texts=600)
    single = command(large, data, "--active-exits", "4")
    assert single.exit_code == 1
    assert "`--small` puts a small model in front of it" in str(single.exception)
    result = command(large, data, "--active-exits", "4", "--small", twin)
    assert result.exit_code == 0, result.output
    ladder = load_bundle(large).presenting([4]).ladder("fp32")
    assert ladder
    assert ladder.exits == (4,)


def test_export_says_that_certified_rules_of_a_cascade_would_be_lost(
    large: Path, twin: Path, make_data: MakeData
) -> None:
    add_small(large, twin)
    certified(large, make_data(num_texts=600))
    with pytest.raises(ExportFailed, match="is calibrated, and the new bundle would not be"):
        check_kept(large, [])


def test_under_load_a_text_that_leaves_in_the_small_model_never_enters_the_large_engine(
    large: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.quality.load.TURN_S", 0.02)
    add_small(large, small)
    bundle = load_bundle(large)
    placement = place(bundle, "cpu", "fp32")
    rules = [NeverRule(), NeverRule(small=SmallRule(threshold=1.0))]
    assert all(each.per_second > 0 for each in under_load(bundle, placement, rules, [Text("w1")]))
    rows_of: list[type] = []

    class Noted(EngineCore):
        def add(self, rows: Any) -> None:
            rows_of.extend(type(row) for row in rows)
            super().add(rows)

    monkeypatch.setattr("models.quality.load.EngineCore", Noted)
    rule = NeverRule(small=SmallRule(threshold=0.0))
    (alone,) = under_load(bundle, placement, [rule], [Text("w1 w2"), Text("w3")])
    assert alone.per_second > 0
    assert {*rows_of} == {SmallRow}


def test_a_report_has_the_small_models_exits_as_layer_0(
    large: Path, small: Path, make_data: MakeData, tmp_path: Path
) -> None:
    add_small(large, small)
    certified(large, make_data(num_texts=600))
    out = tmp_path / "report"
    result = offramp("evaluate", large, data=make_data(name="measured", num_texts=60), out=out)
    assert result.exit_code == 0, result.output
    (model,) = json.loads((out / "report.json").read_text())["models"]
    cost = load_bundle(large).manifest.small
    assert cost
    exits = model["exits"]
    assert [each["layer"] for each in exits] == [0, 0, 0, 1, 2, 4]
    taken = [each["costs"]["layers"] for each in exits]
    own = [layer * cost.layer_cost for layer in cost.exits]
    # Texts that are long for the small model go on.
    assert taken[NUM_SMALL_EXITS:] == [1, 2, 4]
    assert all(each >= least for each, least in zip(taken, own, strict=False))
    assert taken[0] < taken[1] < taken[2]
