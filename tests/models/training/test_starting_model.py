"""What a run starts from: a classifier's own head is the last exit's, so that it answers alike."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification
from typer.testing import Result

from models.checkpoints import load
from models.checkpoints.report import as_json, examine
from models.data.notes import DataNote
from models.encoders.families import FAMILIES
from models.multi_exit import HeadConfig, MultiExitModel
from models.training.job import ModelChoice
from models.training.objective import Objective
from models.training.starting_model import read_classifier, starting_model
from serve.rules.traits import Task
from tests.models.checkpoints.test_plain_classifier import IDS, MASK, make, save
from tests.models.conftest import DEPTH, offramp, refusal, tiny_tokenizer
from tests.support.wordpiece import save_tokenizer

Train = Callable[..., Result]
Write = Callable[..., Path]
TAKEN = "the last exit's head is classifier's own"
ANEW = "all heads start from random numbers, the last exit's too: "
TWO = {"id2label": {0: "LABEL_0", 1: "LABEL_1"}}


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """Return the folder of a plain transformers classifier."""
    return save(make("bert", **TWO), tmp_path / "classifier")


@pytest.fixture
def train(train: Train, classifier: Path, tmp_path: Path) -> Train:
    """Return a function that trains a classifier on data whose labels have no names."""
    (tmp_path / "data" / "labels.json").unlink()
    return partial(train, encoder=classifier, lr=1e-2)


def start(
    folder: Path, labels: list[str], task: Task = "single_label", recipe: str = "joint"
) -> MultiExitModel:
    choice = ModelChoice(encoder=folder, recipe=recipe)
    return starting_model(choice, read_classifier(choice), task, labels).eval()


def said_by(model: MultiExitModel) -> list[torch.Tensor]:
    with torch.no_grad():
        return list(model(IDS, MASK, torch.zeros_like(IDS)))


def said_by_original(folder: Path) -> torch.Tensor:
    original = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return original(input_ids=IDS, attention_mask=MASK).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_full_depth_begins_as_the_classifier_with_its_labels_in_the_datas_order(
    family: str, tmp_path: Path
) -> None:
    folder = save(make(family), tmp_path / "classifier")
    with pytest.warns(DataNote, match=TAKEN):
        grown = start(folder, ["Yes", "no", "perhaps"])
    assert grown.labels == ["Yes", "no", "perhaps"]
    assert grown.exits == (1, 2, DEPTH)
    said, expected = said_by(grown), said_by_original(folder)[:, [2, 0, 1]]
    torch.testing.assert_close(said[-1], expected, atol=1e-5, rtol=1e-5)
    grown.save(tmp_path / "stored")
    torch.testing.assert_close(said_by(MultiExitModel.load(tmp_path / "stored")), said)


@pytest.mark.parametrize(
    ("family", "kind", "labels", "task"),
    [
        ("bert", "tokens", {0: "O", 1: "B-X"}, "token"),
        ("roberta", "texts", {0: "similarity"}, "regression"),
    ],
)
def test_taggers_and_regressions_keep_their_head_too(
    family: str, kind: str, labels: dict[int, str], task: Task, tmp_path: Path
) -> None:
    original = make(family, kind, id2label=labels)
    with pytest.warns(DataNote, match=TAKEN):
        grown = start(save(original, tmp_path / "classifier"), [*labels.values()], task)
    with torch.no_grad():
        expected = original(input_ids=IDS, attention_mask=MASK).logits
    torch.testing.assert_close(said_by(grown)[-1], expected, atol=1e-5, rtol=1e-5)


def test_ids_of_the_data_get_the_classifiers_names(tmp_path: Path) -> None:
    folder = save(make("bert"), tmp_path / "classifier")
    with pytest.warns(DataNote, match=TAKEN):
        assert start(folder, ["0", "1", "2"]).labels == ["no", "perhaps", "yes"]


@pytest.mark.parametrize(
    ("labels", "task", "reason"),
    [
        (["no", "yes", "never"], "single_label", "are no, perhaps, yes, not no, yes, never"),
        (["no", "yes"], "single_label", "are no, perhaps, yes, not no, yes"),
        (["no", "perhaps", "yes"], "multi_label", "is single_label, not multi_label"),
    ],
)
def test_a_classifier_that_answers_something_else_gives_its_encoder_only(
    labels: list[str], task: Task, reason: str, tmp_path: Path
) -> None:
    folder = save(make("bert"), tmp_path / "classifier")
    with pytest.warns(DataNote, match=f"{ANEW}the .*{reason}"):
        grown = start(folder, labels, task)
    assert (grown.labels, grown.traits.task) == (labels, task)
    own = AutoModelForSequenceClassification.from_pretrained(folder).classifier.weight
    assert not torch.isin(grown.head(2).classifier.weight, own).any()
    with pytest.raises(Exception, match=reason):
        start(folder, labels, task, "frozen")


def test_bare_encoders_and_models_with_exits_get_new_heads_and_the_run_says_so(
    train: Train,
    make_encoder: Callable[[], Path],
    make_model: Callable[..., MultiExitModel],
    tmp_path: Path,
) -> None:
    result = train(encoder=make_encoder())
    assert f"note: {ANEW}{tmp_path}/encoder holds no classifier" in result.stderr
    folder = tmp_path / "exits"
    make_model().save(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    assert f"note: {ANEW}{folder} has exits at 1, 2, 3 already" in train(encoder=folder).stderr
    message = refusal(train(encoder=folder, recipe="frozen"))
    assert "has exits at 1, 2, 3 already; `offramp export` takes it" in message


def test_recipe_frozen_leaves_full_depth_as_the_classifier_and_trains_the_other_exits(
    train: Train, classifier: Path, tmp_path: Path
) -> None:
    result = train(recipe="frozen", teacher=classifier, labels="negative,positive")
    assert result.exit_code == 0, result.output
    assert "own, so that full depth stays that classifier" in result.stderr
    assert "gives another answer than classifier for 0.00 %" in result.stderr
    grown = MultiExitModel.load(tmp_path / "out")
    assert grown.labels == ["negative", "positive"]
    said, expected = said_by(grown), said_by_original(classifier)
    torch.testing.assert_close(said[-1], expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(said[0], said[-1], atol=1e-3)


def test_inspect_names_the_last_exits_own_head_and_a_cut_model_has_none(tmp_path: Path) -> None:
    folder, stored = save(make("bert"), tmp_path / "classifier"), tmp_path / "stored"
    with pytest.warns(DataNote, match=TAKEN):
        start(folder, ["no", "perhaps", "yes"]).save(stored)
    save_tokenizer(tiny_tokenizer(), stored)
    heads = as_json(examine(stored, load(stored)))
    assert (heads["head"]["pooling"], heads["last_head"]["pooling"]) == ("mean", "first")
    shown = " ".join(offramp("inspect", stored).output.split())
    assert "heads mean of the tokens, dense layer with tanh, linear classifier; the last" in shown
    assert "exit's: first token, dense layer with tanh, linear classifier" in shown
    assert load(stored, layers=2).info.exits.heads == (HeadConfig(), HeadConfig())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "a,b,c"}, "are LABEL_0, LABEL_1, not a, b, c"),
        ({"task": "regression"}, "the classifier's task is single_label"),
    ],
)
def test_what_does_not_fit_a_frozen_classifier_is_refused(
    train: Train, options: dict[str, str], message: str
) -> None:
    assert message in refusal(train(recipe="frozen", **options))


def test_a_classifiers_own_head_stays_itself_beside_the_shared_estimate(
    classifier: Path, tmp_path: Path
) -> None:
    choice = ModelChoice(encoder=classifier, objective=Objective(learn_error=True))
    labels = ["negative", "positive"]
    with pytest.warns(DataNote, match=TAKEN):
        grown = starting_model(choice, read_classifier(choice), "single_label", labels).eval()
    torch.testing.assert_close(
        said_by(grown)[-1], said_by_original(classifier), atol=1e-5, rtol=1e-5
    )
    assert len({id(head.uncertainty) for head in grown.heads}) == 1
    grown.save(tmp_path / "stored")
    assert MultiExitModel.load(tmp_path / "stored").traits.learned


@pytest.mark.parametrize("recipe", ["joint", "frozen"])
def test_a_classifiers_own_attention_head_gives_no_estimate(
    train: Train, tmp_path: Path, recipe: str
) -> None:
    attending = tmp_path / "attending"
    assert train(layers=2, head="attention", out=attending).exit_code == 0
    message = refusal(train("--learn-error", encoder=attending, recipe=recipe))
    assert "the classifier's own head, which stays the last exit's, is an attention head" in message


def test_a_classifier_that_is_cut_gets_a_new_head(train: Train, tmp_path: Path) -> None:
    result = train(layers=2)
    assert result.exit_code == 0, result.output
    assert f"note: {ANEW}--layers cuts the encoder" in result.stderr
    assert MultiExitModel.load(tmp_path / "out").exits == (2,)
    assert train(layers=2, exits="1,2", out=tmp_path / "two").exit_code == 0
    assert MultiExitModel.load(tmp_path / "two").exits == (1, 2)
    assert "--layers: recipe frozen leaves a classifier" in refusal(
        train(layers=2, recipe="frozen")
    )


def test_exits_that_are_not_the_encoders_are_refused_before_the_data_is_read(
    train: Train, write_data: Write
) -> None:
    unreadable = write_data("train.tsv", ["no header, and no table"])
    message = refusal(train(exits="1,2", train=unreadable))
    assert message == "--exits: the last exit must be the last layer, 3, not 2: use 1,2,3"
