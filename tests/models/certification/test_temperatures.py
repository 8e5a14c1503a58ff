import numpy as np
import pytest

from models.certification.temperatures import BOUNDS, fit_temperatures
from models.evaluation.bundle_recording import BundleRecording
from serve.rules.signals import softmax
from serve.rules.traits import Task, Traits

DRAW = np.random.default_rng(0)
NUM_ROWS = 4000


def recording(exit_logits: np.ndarray, full: np.ndarray, counted: bool = False) -> BundleRecording:
    logits = np.stack([exit_logits, full]).astype(np.float32)
    lengths = np.ones(logits.shape[1], np.intp)
    counts = np.ones(logits.shape[1:3], np.bool_) if counted else None
    return BundleRecording(logits, lengths, counts)


def answers(probabilities: np.ndarray) -> np.ndarray:
    """Return logits of labels that are drawn with these probabilities."""
    total = probabilities.cumsum(axis=-1)
    drawn = (DRAW.random((*total.shape[:-1], 1)) > total).sum(axis=-1)
    return 9 * np.eye(probabilities.shape[-1])[drawn.clip(max=probabilities.shape[-1] - 1)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("task", ["single_label", "token"])
def test_the_temperature_at_which_confidence_was_true_is_found(
    task: Task, temperature: float
) -> None:
    shape = (NUM_ROWS, 3) if task == "single_label" else (NUM_ROWS // 4, 4, 3)
    logits = 3 * DRAW.standard_normal(shape)
    said = recording(logits, answers(softmax(logits / temperature)), task == "token")
    found = fit_temperatures(said, Traits((1, 2), ("a", "b", "c"), task))
    assert found[0] == pytest.approx(temperature, rel=0.1)
    assert found[1] == 1


def test_every_label_of_several_is_a_question_of_its_own() -> None:
    logits = 3 * DRAW.standard_normal((NUM_ROWS, 4))
    yes = DRAW.random(logits.shape) < 1 / (1 + np.exp(-logits / 2))
    said = recording(logits, np.where(yes, 9, -9))
    assert fit_temperatures(said, Traits((1, 2), tuple("abcd"), "multi_label"))[0] == pytest.approx(
        2, rel=0.1
    )


def test_an_exit_that_always_agrees_does_not_become_infinitely_sure() -> None:
    full = DRAW.standard_normal((NUM_ROWS, 2))
    found = fit_temperatures(recording(full, full), Traits((1, 2), ("a", "b")))
    assert found[0] == pytest.approx(BOUNDS[0], rel=0.01)


def test_values_have_no_temperature() -> None:
    values = DRAW.standard_normal((NUM_ROWS, 1))
    assert fit_temperatures(recording(values, values), Traits((1, 2), ("v",), "regression")) == (
        1.0,
        1.0,
    )
