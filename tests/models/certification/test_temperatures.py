import numpy as np
import pytest

from models.certification.temperatures import BOUNDS, fit_temperatures
from models.quality.recorded import Recorded
from serve.rules.signals import softmax
from serve.rules.traits import Task, Traits
from tests.support.recordings import said

DRAW = np.random.default_rng(0)
NUM_ROWS = 4000


def recording(exit_logits: np.ndarray, full: np.ndarray, *labels: str, task: Task) -> Recorded:
    logits = np.stack([exit_logits, full])
    counted = np.ones(logits.shape[1:3], np.bool_) if task == "token" else None
    return said(logits, Traits((1, 2), labels, task), counted=counted)


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
    full = answers(softmax(logits / temperature))
    found = fit_temperatures(recording(logits, full, *"abc", task=task))
    assert found[0] == pytest.approx(temperature, rel=0.1)
    assert found[1] == 1


def test_every_label_of_several_is_a_question_of_its_own() -> None:
    logits = 3 * DRAW.standard_normal((NUM_ROWS, 4))
    yes = DRAW.random(logits.shape) < 1 / (1 + np.exp(-logits / 2))
    several = recording(logits, np.where(yes, 9, -9), *"abcd", task="multi_label")
    assert fit_temperatures(several)[0] == pytest.approx(2, rel=0.1)


def test_an_exit_that_always_agrees_does_not_become_infinitely_sure() -> None:
    full = DRAW.standard_normal((NUM_ROWS, 2))
    found = fit_temperatures(recording(full, full, *"ab", task="single_label"))
    assert found[0] == pytest.approx(BOUNDS[0], rel=0.01)


def test_values_have_no_temperature() -> None:
    values = DRAW.standard_normal((NUM_ROWS, 1))
    valued = recording(values, values, "v", task="regression")
    assert fit_temperatures(valued) == (1.0, 1.0)
