"""Agreement, overthinking, calibration and difficulty, on rows made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from models.quality.scores import exit_figures
from models.report.parts.agreement import agreement
from models.report.parts.calibration import binned, decisions_of, reliability
from models.report.parts.difficulty import difficulty
from models.report.parts.overthinking import overthinking
from serve.rules.traits import Task
from tests.support.recordings import analysed, margins, noisy

# Right at once; wrong, then right; right, then wrong; wrong throughout.
FOUR = margins([[9, 9, 9], [-1, -2, 3], [2, -1, -1], [-3, -3, -3]], [1, 1, 1, 1])


def test_agreement_is_the_share_of_equal_answers() -> None:
    assert agreement(FOUR).tolist() == [[1, 0.75, 0.5], [0.75, 1, 0.75], [0.5, 0.75, 1]]


def test_values_of_a_regression_are_compared_by_their_correlation() -> None:
    valued = noisy("regression")
    assert agreement(valued) == pytest.approx(np.corrcoef(valued.logits[..., 0]))


def test_overthinking_and_the_oracle() -> None:
    assert FOUR.right is not None
    found = overthinking(FOUR.right, (2, 4, 6))
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
    found = binned((sure, right))
    assert found.counts.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 4]
    expected = (2 * abs(0.55 - 0.5) + 4 * abs((3 * 0.95 + 1) / 4 - 0.75)) / 6
    assert found.ece == pytest.approx(expected)


def test_several_labels_are_as_many_decisions_and_padding_is_none() -> None:
    several = noisy("multi_label")
    assert len(decisions_of(several, several.logits[0])[0]) == 60 * 3
    assert decisions_of(several, several.logits[0])[0].min() >= 0.5
    tagged = noisy("token")
    assert tagged.counted is not None
    assert len(decisions_of(tagged, tagged.logits[0])[1]) == tagged.counted.sum()


def test_the_temperature_changes_the_second_error_only() -> None:
    plain = noisy("single_label")
    hot = replace(plain, temperatures=(2.0, 2.0, 2.0))
    for one, other in zip(reliability(plain), reliability(hot), strict=True):
        assert one.bins.ece == other.bins.ece
        assert one.scaled_ece == one.bins.ece != other.scaled_ece


def test_the_first_exits_confidence_goes_with_length_and_consistency() -> None:
    # The longer the text, the less sure; the surer, the more later exits say the same.
    rows = [[4, 1, 1], [3, 1, 1], [2, -1, 1], [1, -1, -1]]
    seen = analysed(margins(rows, [1, 1, 1, 1])).recorded
    assert seen.answers is not None
    found = difficulty(seen, seen.answers)
    assert found["with_length"] == pytest.approx(-1)
    assert found["with_consistency"] == pytest.approx(0.948683)


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_right_answers_are_counted_as_the_accuracy_counts_them(task: Task) -> None:
    recorded = noisy(task)
    assert recorded.right is not None
    shares = recorded.right.mean(axis=1).tolist()
    assert shares == pytest.approx([each.accuracy for each in exit_figures(recorded)])
