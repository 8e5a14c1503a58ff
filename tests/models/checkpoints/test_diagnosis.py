"""Each warning appears if its cause is put into a model, and only then."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from models.checkpoints import LoadedCheckpoint, load
from models.checkpoints.diagnosis import best_saving, find_warnings
from models.checkpoints.sample_run import SampleRun, _samples, run_samples
from tests.support.originals.highway import DeeBert
from tests.support.originals.pabee import PabeeAlbert


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedCheckpoint:
    return load(DeeBert().save(tmp_path))


def sample_run(*labels: list[int]) -> SampleRun:
    """Return exits with these labels, each sample a little less certain than the one before."""
    logits = np.zeros((len(labels), len(labels[0]), 3), np.float32)
    for exit_, given in enumerate(labels):
        for sample, label in enumerate(given):
            logits[exit_, sample, label] = 4 - 0.01 * sample
    return SampleRun(logits, of_texts=True)


LAST = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
GOOD = sample_run(LAST, LAST, LAST)


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
    ("change", "warning"),
    [
        (lambda loaded: None, None),
        (copy_layer_1_to_3, "layers 1, 3 have identical weights"),
        (initialise_head_2, "the heads at exits 2 look untrained: their biases are exactly 0"),
        (clear_bias_of_head_2, None),
    ],
)
def test_weights_are_examined(
    loaded: LoadedCheckpoint, change: Callable[[LoadedCheckpoint], None], warning: str | None
) -> None:
    change(loaded)
    found = find_warnings(loaded, GOOD)
    assert len(found) == (warning is not None)
    assert all(each.startswith(warning) for each in found)


def test_layers_that_share_weights_by_design_are_no_fault(tmp_path: Path) -> None:
    loaded = load(PabeeAlbert().save(tmp_path))
    assert find_warnings(loaded, sample_run(*[LAST] * loaded.info.depth)) == []


CHANCE = [1, 1, 1, 2, 2, 2, 0, 0, 0, 1]
# The most certain early answers are wrong.
WRONG_FIRST = [1, 2, 0, 1, *LAST[4:]]


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        (
            (CHANCE, LAST, LAST),
            (
                "exits 1 agree with the last one no more often than by chance",
                "on 10 answers to built-in English sentences",
            ),
        ),
        (([1] * 10,) * 3, ("the last exit gives 100.0% of the samples the same label",)),
        (
            ([0] * 200, [0] * 200, [0] * 198 + [1, 2]),
            ("the last exit gives 99.0% of the samples the same label",),
        ),
        (
            (WRONG_FIRST, WRONG_FIRST, LAST),
            (
                "early exits do not pay here: of all entropy thresholds that keep 95",
                "the best saves 0.0%",
            ),
        ),
    ],
)
def test_answers_are_examined(
    loaded: LoadedCheckpoint, labels: tuple[list[int], ...], parts: tuple[str, ...]
) -> None:
    (warning,) = find_warnings(loaded, sample_run(*labels))
    assert warning.startswith(parts[0])
    assert all(part in warning for part in parts)


def test_an_exit_with_constant_logits_is_reported(loaded: LoadedCheckpoint) -> None:
    constant = GOOD.logits.copy()
    constant[0] = 0.3
    found = find_warnings(loaded, SampleRun(constant, of_texts=True))
    assert found[0].startswith("exits 1 say nearly the same of every sample")


def test_the_best_saving_is_of_the_loosest_threshold_that_still_agrees() -> None:
    # Four of ten samples may leave at layer 1 of 3 before the first wrong answer.
    early = [*LAST[:4], 2, *LAST[5:]]
    assert best_saving((1, 2, 3), sample_run(early, early, LAST)) == pytest.approx(0.4 * 2 / 3)
    assert best_saving((1, 2, 3), GOOD) == pytest.approx(2 / 3)


def test_every_token_and_every_question_is_a_sample() -> None:
    tokens = torch.arange(12.0).reshape(2, 1, 3, 2)  # (exits, row, tokens, labels)
    assert torch.equal(_samples(tokens, "token"), tokens[:, 0])
    found = _samples(torch.tensor([[[1.0, -2.0, 3.0]]]), "multi_label")
    assert torch.equal(found, torch.tensor([[[0, 1.0], [0, -2.0], [0, 3.0]]]))


def test_all_exits_are_run_on_samples(loaded: LoadedCheckpoint) -> None:
    found = run_samples(loaded)
    assert (found.logits.shape[0], found.logits.shape[2]) == (3, 3)
    assert np.isfinite(found.logits).all()
    assert found.agreement[-1] == 1
    assert found.entropy.max() <= np.log(3) + 1e-6
