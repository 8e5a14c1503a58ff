"""Temperatures of rules and of scores."""

import numpy as np
import pytest

from models.quality.losses import losses_of
from models.quality.paths import RulePath, Tried
from models.quality.recorded import Recorded, score_gaps
from models.quality.temperatures import BOUNDS, FEWEST, fit_score_temperatures, fit_temperatures
from serve.classifier.score_map import ScoreMap
from serve.policy.ladder import SCORE_TOLERANCE
from serve.rules import ConfidenceRule, LayerRule, NeverRule
from serve.rules.signals import softmax
from serve.rules.traits import Task, Traits
from tests.support.recordings import said

DRAW = np.random.default_rng(0)
NUM_ROWS, FEW_ROWS = 4000, 300


def recording(exit_logits: np.ndarray, full: np.ndarray, *labels: str, task: Task) -> Recorded:
    logits = np.stack([exit_logits, full]).astype(np.float32)
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


EVERY = RulePath((NeverRule(), LayerRule(layer=1)), (1.0, 1.0))


def fitted(recorded: Recorded, path: RulePath = EVERY) -> tuple[tuple[float, ...], ...]:
    found = fit_score_temperatures(
        recorded, Tried.of(path, recorded, losses_of(recorded, None)).exits
    )
    assert found is not None
    return found


@pytest.mark.parametrize("task", ["single_label", "token"])
def test_an_exit_that_is_half_as_sure_gets_half_a_temperature(task: Task) -> None:
    full = 3 * DRAW.standard_normal((FEW_ROWS, 3) if task == "single_label" else (FEW_ROWS, 4, 3))
    recorded = recording(full / 2, full, *"abc", task=task)
    (first,), last = fitted(recorded)
    assert first == pytest.approx(0.5, rel=0.02)
    assert last == (1.0,)
    assert score_gaps(recorded, ScoreMap(((first,), last))).max() < 0.02
    assert score_gaps(recorded, ScoreMap(None)).max() > SCORE_TOLERANCE


def test_every_label_of_several_gets_its_own() -> None:
    full = 3 * DRAW.standard_normal((FEW_ROWS, 3))
    scales = np.array([0.5, 1.0, 2.0])
    found = fitted(recording(full * scales, full, *"abc", task="multi_label"))
    assert found[0] == pytest.approx(tuple(scales), rel=0.03)
    assert found[1] == (1.0, 1.0, 1.0)


def test_texts_count_where_they_leave() -> None:
    # Half of the texts are sure at the first exit and leave there; only these are half as sure.
    full = np.array([[4.0, -4.0], [0.5, -0.5]]).repeat(FEW_ROWS, axis=0)
    early = full / np.array([[2.0], [0.5]]).repeat(FEW_ROWS, axis=0)
    recorded = recording(early, full, *"ab", task="single_label")
    path = RulePath((NeverRule(), ConfidenceRule(threshold=0.97)), (1.0, 1.0))
    assert fitted(recorded, path)[0][0] == pytest.approx(0.5, rel=0.02)
    few = recorded.of(np.r_[: FEWEST - 1, FEW_ROWS : 2 * FEW_ROWS])
    assert fitted(few, path)[0][0] > 1


def test_scores_are_a_loss_of_their_own_and_full_depth_loses_nothing() -> None:
    full = np.array([[2.0, -2.0]]).repeat(4, axis=0)
    recorded = recording(full * [[1.0], [0.9], [0.2], [-1.0]], full, *"ab", task="single_label")
    losses = losses_of(recorded, None, ScoreMap(((1.0,), (1.0,))))
    assert losses.by_loss["score"].tolist() == [[0, 0, 1, 1], [0, 0, 0, 0]]
    assert "score" in losses.binary
    assert "score" not in losses_of(recorded, None).by_loss
