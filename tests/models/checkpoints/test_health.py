"""Each warning appears where its cause was put into a model, and only there."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.checkpoints import Loaded, load
from models.checkpoints.health import best_saving, warnings
from models.checkpoints.trial import Trial, _samples, try_out
from tests.support.originals.highway import DeeBert
from tests.support.originals.pabee import PabeeAlbert


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return load(DeeBert().save(tmp_path))


def trial(*labels: list[int], sureness: float = 4.0) -> Trial:
    """Return exits that give these labels, each a little less sure than the one before."""
    logits = np.zeros((len(labels), len(labels[0]), 3), np.float32)
    for exit_, given in enumerate(labels):
        for place, label in enumerate(given):
            logits[exit_, place, label] = sureness - 0.01 * place
    return Trial(logits, of_texts=True)


LAST = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
GOOD = trial(LAST, LAST, LAST)


def test_a_sound_model_has_no_warnings(loaded: Loaded) -> None:
    assert warnings(loaded, GOOD) == []


def test_one_layer_saved_several_times_is_seen(loaded: Loaded) -> None:
    layers = loaded.model.encoder.encoder.layer
    layers[2].load_state_dict(layers[0].state_dict())
    (warning,) = warnings(loaded, GOOD)
    assert warning.startswith("layers 1, 3 have identical weights")


def test_layers_that_share_weights_by_design_are_no_fault(tmp_path: Path) -> None:
    loaded = load(PabeeAlbert().save(tmp_path))
    assert warnings(loaded, trial(*[LAST] * loaded.found.depth)) == []


def test_heads_as_they_were_initialised_are_seen(loaded: Loaded) -> None:
    head = loaded.model.head(1)
    torch.nn.init.normal_(head.classifier.weight, std=0.02)
    torch.nn.init.zeros_(head.classifier.bias)
    (warning,) = warnings(loaded, GOOD)
    assert warning.startswith("the heads at exits 2 look untrained: their biases are exactly 0")


def test_a_head_without_bias_that_has_learned_is_no_fault(loaded: Loaded) -> None:
    torch.nn.init.zeros_(loaded.model.head(1).classifier.bias)
    assert warnings(loaded, GOOD) == []


def test_an_exit_that_says_the_same_of_everything_is_seen(loaded: Loaded) -> None:
    silent = GOOD.logits.copy()
    silent[0] = 0.3
    found = warnings(loaded, Trial(silent, of_texts=True))
    assert found[0].startswith("exits 1 say nearly the same of every sample")


def test_an_exit_that_agrees_by_chance_is_seen(loaded: Loaded) -> None:
    stranger = [1, 1, 1, 2, 2, 2, 0, 0, 0, 1]
    (warning,) = warnings(loaded, trial(stranger, LAST, LAST))
    assert warning.startswith("exits 1 agree with the last one no more often than by chance")
    assert "on 10 answers to built-in English sentences" in warning


def test_nothing_is_said_of_agreement_where_there_is_one_answer_to_all(loaded: Loaded) -> None:
    same = [1] * 10
    (warning,) = warnings(loaded, trial(same, same, same))
    assert warning.startswith("the last exit gives 100.0% of the samples the same label")


def test_nothing_is_said_of_agreement_where_nearly_all_answers_are_one(loaded: Loaded) -> None:
    outside = [0] * 200
    found_two = [0] * 198 + [1, 2]
    (warning,) = warnings(loaded, trial(outside, outside, found_two))
    assert warning.startswith("the last exit gives 99.0% of the samples the same label")


def test_exits_of_which_no_threshold_saves_anything_are_seen(loaded: Loaded) -> None:
    # The surest of the early answers are the wrong ones.
    wrong_first = [1, 2, 0, 1, *LAST[4:]]
    (warning,) = warnings(loaded, trial(wrong_first, wrong_first, LAST))
    assert warning.startswith("early exits do not pay here: of all entropy thresholds that keep 95")
    assert "the best saves 0.0%" in warning


def test_the_best_saving_is_the_loosest_threshold_that_still_agrees() -> None:
    # Four of ten may leave at layer 1 of 3 before the first wrong answer.
    early = [*LAST[:4], 2, *LAST[5:]]
    assert best_saving((1, 2, 3), trial(early, early, LAST)) == pytest.approx(0.4 * 2 / 3)
    assert best_saving((1, 2, 3), GOOD) == pytest.approx(2 / 3)


def test_every_token_and_every_question_is_a_sample() -> None:
    tokens = torch.arange(12.0).reshape(2, 1, 3, 2)  # (exits, row, tokens, labels)
    assert torch.equal(_samples(tokens, "token"), tokens[:, 0])
    found = _samples(torch.tensor([[[1.0, -2.0, 3.0]]]), "multi_label")
    assert torch.equal(found, torch.tensor([[[0, 1.0], [0, -2.0], [0, 3.0]]]))


def test_sentences_are_tried_unless_the_vocabulary_knows_none(loaded: Loaded) -> None:
    found = try_out(loaded)
    assert found.logits.shape[0] == 3
    assert found.logits.shape[2] == 3
    assert np.isfinite(found.logits).all()
    assert found.agreement[-1] == 1
    assert np.allclose(found.entropy.max(), found.entropy.max().clip(0, np.log(3)))
