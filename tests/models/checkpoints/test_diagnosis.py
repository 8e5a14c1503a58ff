"""Each warning appears if its cause is put into a model, and only then."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from models.checkpoints import LoadedCheckpoint, load
from models.checkpoints.comparison import served_by
from models.checkpoints.diagnosis import find_warnings, sample_answers
from tests.models.checkpoints.test_plain_classifier import make, save
from tests.support.originals.highway import DeeBert
from tests.support.originals.pabee import PabeeAlbert

LAST = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
CHANCE = [1, 1, 1, 2, 2, 2, 0, 0, 0, 1]


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedCheckpoint:
    return load(DeeBert().save(tmp_path))


def copy_layer_1_to_3(loaded: LoadedCheckpoint) -> None:
    layers = loaded.model.encoder.encoder.layer
    layers[2].load_state_dict(layers[0].state_dict())


def initialise_head_2(loaded: LoadedCheckpoint) -> None:
    head = loaded.model.head(1)
    torch.nn.init.normal_(head.classifier.weight, std=0.02)
    torch.nn.init.zeros_(head.classifier.bias)


def clear_bias_of_head_2(loaded: LoadedCheckpoint) -> None:
    torch.nn.init.zeros_(loaded.model.head(1).classifier.bias)


@pytest.mark.parametrize(
    ("change", "first", "warning"),
    [
        (lambda loaded: None, LAST, None),
        (copy_layer_1_to_3, LAST, "layers 1, 3 have identical weights"),
        (initialise_head_2, LAST, "the heads at exits 2 look untrained"),
        (clear_bias_of_head_2, LAST, None),
        (lambda loaded: None, CHANCE, "exits 1 agree with the last one no more often than by"),
        (lambda loaded: None, [1] * 10, "exits 1 agree with the last one no more often than by"),
    ],
)
def test_weights_and_answers_are_examined(
    loaded: LoadedCheckpoint,
    change: Callable[[LoadedCheckpoint], None],
    first: list[int],
    warning: str | None,
) -> None:
    change(loaded)
    found = find_warnings(loaded, np.array([first, LAST, LAST]))
    assert len(found) == (warning is not None)
    assert all(each.startswith(warning) for each in found)


def test_layers_that_share_weights_by_design_are_no_fault(tmp_path: Path) -> None:
    loaded = load(PabeeAlbert().save(tmp_path))
    assert find_warnings(loaded, np.array([LAST] * loaded.info.depth)) == []


@pytest.mark.parametrize(
    ("config", "kind", "count"),
    [({}, "texts", 32), ({"problem_type": "multi_label_classification"}, "texts", 96),
     ({}, "tokens", None)],
)  # fmt: skip
def test_every_text_token_and_question_is_a_sample(
    config: dict[str, str], kind: str, count: int | None, tmp_path: Path
) -> None:
    loaded = load(save(make("bert", kind, **config), tmp_path))
    exits, samples = sample_answers(loaded, served_by(loaded).tokenizer).shape
    assert (exits, samples if count else samples > 96) == (1, count or True)
