"""Recipe frozen: exits for a trained classifier."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification
from typer.testing import Result

from models.multi_exit import MultiExitModel
from tests.models.conftest import DEPTH, offramp, refusal, tiny_config, tiny_tokenizer
from tests.support.wordpiece import save_tokenizer

Train = Callable[..., Result]
Write = Callable[..., Path]
IDS = torch.tensor([[2, 4, 10, 11, 3]])


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """Return the folder of a plain transformers classifier."""
    torch.manual_seed(3)
    config = tiny_config(["LABEL_0", "LABEL_1"])
    folder = tmp_path / "classifier"
    BertForSequenceClassification(config).save_pretrained(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    return folder


@pytest.fixture
def train(classifier: Path, write_data: Write, sentiment_lines: list[str], tmp_path: Path) -> Train:
    """Return a function that runs `offramp train --recipe frozen` on tiny files."""
    options: dict[str, object] = {
        "encoder": classifier,
        "train": write_data("train.tsv", sentiment_lines),
        "dev": write_data("dev.tsv", sentiment_lines),
        "out": tmp_path / "out",
        "recipe": "frozen",
        "epochs": 1,
        "lr": 1e-2,
        "max_tokens": 32,
    }
    return lambda **changed: offramp("train", **(options | changed))


def test_the_last_exit_answers_like_the_classifier(
    train: Train, classifier: Path, tmp_path: Path
) -> None:
    result = train(distill=1)
    assert result.exit_code == 0, result.output
    grown = MultiExitModel.load(tmp_path / "out")
    original = AutoModelForSequenceClassification.from_pretrained(classifier).eval()
    with torch.no_grad():
        said, expected = grown(IDS, torch.ones_like(IDS)), original(IDS).logits
    torch.testing.assert_close(said[-1], expected)
    assert len(said) == DEPTH
    assert grown.labels == ["LABEL_0", "LABEL_1"]
    weights = original.bert.encoder.layer[0].output.dense.weight
    torch.testing.assert_close(grown.encoder.encoder.layer[0].output.dense.weight, weights)
    assert not torch.allclose(said[0], said[-1], atol=1e-3)


def test_exits_and_names_of_labels_may_be_chosen(train: Train, tmp_path: Path) -> None:
    assert train(exits="1,3", labels="negative,positive").exit_code == 0
    grown = MultiExitModel.load(tmp_path / "out")
    assert grown.exits == (1, 3)
    assert grown.labels == ["negative", "positive"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "a,b,c"}, "--labels names 3 labels; the classifier has 2: LABEL_0, LABEL_1"),
        ({"exits": "1,2"}, "the last exit must be the last layer, 3, not 2"),
        ({"pooling": "mean"}, "the heads are like the classifier's own; no --pooling"),
        ({"task": "regression"}, "the classifier's task is single_label"),
    ],
)
def test_what_does_not_fit_the_classifier_is_refused(
    train: Train, options: dict[str, str], message: str
) -> None:
    assert message in refusal(train(**options))


def test_a_model_that_has_exits_already_is_refused(
    train: Train, make_model: Callable[..., MultiExitModel], tmp_path: Path
) -> None:
    folder = tmp_path / "exits"
    make_model().save(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    assert "has exits at 1, 2, 3 already" in refusal(train(encoder=folder))
