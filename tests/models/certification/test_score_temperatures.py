import numpy as np
import pytest

from models.certification.losses import text_losses
from models.certification.paths import Path
from models.certification.replay import Replay
from models.certification.score_temperatures import FEWEST, fit_score_temperatures
from models.quality.recorded import Recorded, score_gaps
from serve.classifier.score_map import ScoreMap
from serve.policy.ladder import SCORE_TOLERANCE
from serve.rules import ConfidenceRule, LayerRule, NeverRule
from serve.rules.traits import Task, Traits
from tests.support.recordings import said

DRAW = np.random.default_rng(0)
NUM_ROWS = 300
EVERY = Path((NeverRule(), LayerRule(layer=1)), (1.0, 1.0))


def recording(exit_logits: np.ndarray, full: np.ndarray, *labels: str, task: Task) -> Recorded:
    logits = np.stack([exit_logits, full]).astype(np.float32)
    counted = np.ones(logits.shape[1:3], np.bool_) if task == "token" else None
    return said(logits, Traits((1, 2), labels, task), counted=counted)


def fitted(recorded: Recorded, path: Path = EVERY) -> tuple[tuple[float, ...], ...]:
    found = fit_score_temperatures(recorded, Replay.of(path, recorded, text_losses(recorded, None)))
    assert found is not None
    return found


@pytest.mark.parametrize("task", ["single_label", "token"])
def test_an_exit_that_is_half_as_sure_gets_half_a_temperature(task: Task) -> None:
    full = 3 * DRAW.standard_normal((NUM_ROWS, 3) if task == "single_label" else (NUM_ROWS, 4, 3))
    recorded = recording(full / 2, full, *"abc", task=task)
    (first,), last = fitted(recorded)
    assert first == pytest.approx(0.5, rel=0.02)
    assert last == (1.0,)
    assert score_gaps(recorded, ScoreMap(((first,), last))).max() < 0.02
    assert score_gaps(recorded, ScoreMap(None)).max() > SCORE_TOLERANCE


def test_every_label_of_several_gets_its_own() -> None:
    full = 3 * DRAW.standard_normal((NUM_ROWS, 3))
    scales = np.array([0.5, 1.0, 2.0])
    found = fitted(recording(full * scales, full, *"abc", task="multi_label"))
    assert found[0] == pytest.approx(tuple(scales), rel=0.03)
    assert found[1] == (1.0, 1.0, 1.0)


def test_texts_count_where_they_leave() -> None:
    # Half of the texts are sure at the first exit and leave there; only these are half as sure.
    full = np.array([[4.0, -4.0], [0.5, -0.5]]).repeat(NUM_ROWS, axis=0)
    early = full / np.array([[2.0], [0.5]]).repeat(NUM_ROWS, axis=0)
    recorded = recording(early, full, *"ab", task="single_label")
    path = Path((NeverRule(), ConfidenceRule(threshold=0.97)), (1.0, 1.0))
    assert fitted(recorded, path)[0][0] == pytest.approx(0.5, rel=0.02)
    few = recorded.of(np.r_[: FEWEST - 1, NUM_ROWS : 2 * NUM_ROWS])
    assert fitted(few, path)[0][0] > 1


def test_scores_are_a_loss_of_their_own_and_full_depth_loses_nothing() -> None:
    full = np.array([[2.0, -2.0]]).repeat(4, axis=0)
    recorded = recording(full * [[1.0], [0.9], [0.2], [-1.0]], full, *"ab", task="single_label")
    losses = text_losses(recorded, None, ScoreMap(((1.0,), (1.0,))))
    assert losses.by_loss["score"].tolist() == [[0, 0, 1, 1], [0, 0, 0, 0]]
    assert "score" in losses.binary
    assert "score" not in text_losses(recorded, None).by_loss
