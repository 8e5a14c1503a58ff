"""Agreement, overthinking, calibration and difficulty, on rows made by hand."""

from typing import get_args

import numpy as np
import pytest

from models.evaluation.answers import AnswerIds
from models.evaluation.difficulty import difficulty
from models.evaluation.exit_agreement import exit_agreement
from models.evaluation.overthinking import overthinking
from models.evaluation.predictions import Predictions
from models.evaluation.reliability import Decisions, binned, decisions_of, reliability
from models.evaluation.task_metrics import score
from serve.rules.traits import Task, Traits
from tests.support.observations import margins, noisy, observed

# Right at once; wrong, then right; right, then wrong; wrong throughout.
FOUR = margins([[9, 9, 9], [-1, -2, 3], [2, -1, -1], [-3, -3, -3]], [1, 1, 1, 1])


def test_agreement_is_the_share_of_equal_answers() -> None:
    found = exit_agreement(observed(FOUR))
    assert found.exits == (2, 4, 6)
    assert found.matrix.tolist() == [[1, 0.75, 0.5], [0.75, 1, 0.75], [0.5, 0.75, 1]]


def test_values_of_a_regression_are_compared_by_their_correlation() -> None:
    found = exit_agreement(observed(noisy("regression")))
    assert found.measure == "pearson"
    values = noisy("regression").logits[..., 0]
    assert found.matrix == pytest.approx(np.corrcoef(values))


def test_overthinking_and_the_oracle() -> None:
    answers = AnswerIds(FOUR).all()
    found = overthinking(answers, FOUR.exits)
    assert (found.overthought, found.rescued) == (0.25, 0.25)
    assert found.right_now_wrong_later == (0.25, 0, 0)
    assert found.wrong_now_right_later == (0.25, 0.25, 0)
    assert (found.oracle_accuracy, found.full_accuracy) == (0.75, 0.5)
    # The rows leave at layers 2, 6, 2 and, as no exit has it right, 6.
    assert found.oracle_depth == 4
    assert found.oracle_shares == (0.5, 0, 0.5)


def test_calibration_error_weighs_each_bins_gap_by_its_decisions() -> None:
    sure = np.array([0.55, 0.55, 0.95, 0.95, 0.95, 1.0])
    right = np.array([True, False, True, True, False, True])
    found = binned(Decisions(sure, right))
    assert found.counts.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 4]
    expected = (2 * abs(0.55 - 0.5) + 4 * abs((3 * 0.95 + 1) / 4 - 0.75)) / 6
    assert found.ece == pytest.approx(expected)


def test_several_labels_are_as_many_decisions_and_padding_is_none() -> None:
    several = noisy("multi_label")
    assert len(decisions_of(several, several.logits[0]).sure) == 60 * 3
    assert decisions_of(several, several.logits[0]).sure.min() >= 0.5
    tagged = noisy("token")
    assert tagged.in_text is not None
    assert len(decisions_of(tagged, tagged.logits[0]).right) == tagged.in_text.sum()


def test_the_temperature_changes_the_second_error_only() -> None:
    plain = observed(noisy("single_label"))
    hot = plain.__class__(**{**vars(plain), "temperatures": (2.0, 2.0, 2.0)})
    for one, other in zip(reliability(plain), reliability(hot), strict=True):
        assert one.bins.ece == other.bins.ece
        assert one.scaled_ece == one.bins.ece != other.scaled_ece


def test_the_first_exits_confidence_goes_with_length_and_consistency() -> None:
    # The longer the text, the less sure; the surer, the more later exits say the same.
    rows = [[4, 1, 1], [3, 1, 1], [2, -1, 1], [1, -1, -1]]
    seen = observed(margins(rows, [1, 1, 1, 1]))
    found = difficulty(seen, AnswerIds(seen.predictions).all())
    assert found.with_length == pytest.approx(-1)
    assert found.with_consistency == pytest.approx(0.948683)


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_right_answers_are_counted_as_the_accuracy_counts_them(task: Task) -> None:
    predictions = noisy(task)
    right = AnswerIds(predictions).all().right.mean(axis=1)
    assert right.tolist() == pytest.approx(
        [score(predictions, logits).accuracy for logits in predictions.logits]
    )


def test_a_taggers_answer_is_the_set_of_its_entities() -> None:
    traits = Traits((1, 2), ("O", "B-PER", "I-PER"), "token")
    # The same entities: I-PER after O begins one, as B-PER does.
    tags = np.array([[[1, 2, 0, 0]], [[2, 2, 0, 1]]])
    logits = np.eye(3, dtype=np.float32)[tags]
    gold = np.array([[1, 2, 0, -100]])
    answers = AnswerIds(Predictions(logits, gold, traits)).all()
    assert answers.right.all()


def test_every_task_but_a_regression_has_answers() -> None:
    for task in get_args(Task):
        assert (observed(noisy(task)).answers is None) == (task == "regression")
    with pytest.raises(ValueError, match="regression"):
        AnswerIds(noisy("regression"))
