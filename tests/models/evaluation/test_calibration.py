"""Evaluation figures on logits made by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from models.data.alignment import IGNORED
from models.evaluation.calibration import exit_figures, figures_of, operating_point
from models.evaluation.predictions import Predictions
from serve.policy.ladder import Data
from serve.rules import EntropyRule, ExitRule, LayerRule, NeverRule, PatienceRule
from serve.rules.replay import answers_taken
from serve.rules.traits import Traits
from tests.support.traits import two_labels

DATA = Data(name="hand/made.tsv", rows=4, sha256="0" * 64)


def predictions(margins: Sequence[Sequence[float]], gold: Sequence[int]) -> Predictions:
    """Two-label logits: a positive margin says label 1, a large one says it surely."""
    ones = np.array(margins, np.float32).T  # (exits, rows)
    layers = tuple(range(2, 2 * len(ones) + 1, 2))
    logits = np.stack([np.zeros_like(ones), ones], axis=-1)
    return Predictions(logits, np.array(gold), two_labels(layers))


# Rows: sure and right at once; sure at layer 4; wrongly sure at once; never sure.
HAND_MADE = predictions([[9, 9, 9], [-0.1, -9, -9], [9, -1, -9], [0.1, -0.1, 0.2]], [1, 0, 0, 1])


def test_accuracy_per_exit_counts_right_labels() -> None:
    figures = exit_figures(HAND_MADE)
    assert [(f.layer, f.accuracy) for f in figures] == [(2, 0.75), (4, 0.75), (6, 1.0)]


@pytest.mark.parametrize(
    ("rule", "exits", "accuracy", "agreement"),
    [
        (EntropyRule(threshold=0.1), [0, 1, 0, 2], 0.75, 0.75),
        (PatienceRule(patience=1), [1, 1, 2, 2], 1, 1),
        (NeverRule(), [2, 2, 2, 2], 1, 1),
        (EntropyRule(threshold=0), [2, 2, 2, 2], 1, 1),
    ],
)
def test_a_rule_is_measured_by_the_answers_at_the_exits_it_takes(
    rule: ExitRule, exits: list[int], accuracy: float, agreement: float
) -> None:
    taken = answers_taken(HAND_MADE.logits, rule, HAND_MADE.traits, (1.0,) * 3)
    assert taken.exits.tolist() == exits
    point = operating_point(HAND_MADE, rule)
    assert (point.accuracy, point.agreement) == (accuracy, agreement)
    assert point.mean_exit_layer == np.mean([2 * exit_ + 2 for exit_ in exits])


def test_agreement_is_with_the_last_exit_not_with_the_gold_labels() -> None:
    changed = HAND_MADE._replace(gold=np.array([1, 0, 1, 1]))
    point = operating_point(changed, EntropyRule(threshold=0.1))
    assert (point.accuracy, point.agreement) == (1, 0.75)


def published(predictions: Predictions) -> list[ExitRule]:
    figures = figures_of(predictions, DATA)
    assert figures.data == DATA
    return [point.rule for point in figures.operating_points]


def test_published_rules_are_round_thresholds_and_useful_patience() -> None:
    rules = published(HAND_MADE)
    thresholds = [rule.threshold for rule in rules if isinstance(rule, EntropyRule)]
    assert thresholds == pytest.approx(np.arange(0, 0.66, 0.05))
    # A higher patience would never leave early.
    patience = [rule for rule in rules if isinstance(rule, PatienceRule)]
    assert patience == [PatienceRule(patience=1)]


# Three exits; values settle at once, at layer 2, or drift on to the end.
VALUES = np.array([[1, 3, 0, 5], [1.1, 2, 1, 4], [1.1, 2.1, 2, 3]], np.float32)[:, :, None]
VALUED = Predictions(
    VALUES, np.array([1, 2, 2, 3], np.float32), Traits((1, 2, 3), ("score",), "regression")
)


def test_regression_is_measured_by_correlations_and_has_no_agreement() -> None:
    first, _, last = exit_figures(VALUED)
    assert first.accuracy is None
    assert last.metrics["pearson"] == pytest.approx(np.corrcoef(VALUES[2, :, 0], VALUED.gold)[0, 1])
    assert last.measured == ("pearson", "spearman")
    assert last.value("pearson") > first.value("pearson")
    point = operating_point(VALUED, PatienceRule(patience=1, tolerance=0.5))
    assert point.mean_exit_layer == (2 + 3 + 3 + 3) / 4
    assert point.agreement is None


# Of each label whether it is sure: both, both, one of two, none.
MARKS = np.array([[9, -9], [9, 9], [9, 0.5], [0.5, -0.5]], np.float32)
SEVERAL = Predictions(
    np.stack([MARKS, np.where(MARKS > 0, 9, -9).astype(np.float32)]),
    np.array([[1, 0], [1, 1], [1, 0], [0, 0]], np.float32),
    Traits((1, 2), ("a", "b"), "multi_label"),
)


def test_row_with_several_labels_leaves_when_the_least_certain_one_is_certain() -> None:
    point = operating_point(SEVERAL, EntropyRule(threshold=0.1))
    assert point.mean_exit_layer == (1 + 1 + 2 + 2) / 4
    assert (point.agreement, point.accuracy) == (1, 0.5)
    assert point.metrics["micro_f1"] == pytest.approx(2 * 4 / (6 + 4))


TAGS = Traits((1, 2), ("O", "B-x", "I-x"), "token")


def tagged(first: Sequence[Sequence[int]], sure: float) -> Predictions:
    """Two sentences of three tokens, of which the last of the second is padding.

    Args:
        first: tags that the first exit gives; the last exit is right and sure.
        sure: how sure the first exit is of the second token.
    """
    gold = np.array([[1, 2, 0], [0, IGNORED, IGNORED]])
    right = 9 * np.eye(3, dtype=np.float32)[np.where(gold == IGNORED, 0, gold)]
    early = 9 * np.eye(3, dtype=np.float32)[np.array(first)]
    early[:, 1] *= sure / 9
    in_text = np.array([[True, True, True], [True, True, False]])
    return Predictions(np.stack([early, right]), gold, TAGS, in_text)


def test_words_are_measured_by_entities_and_accuracy_or_by_accuracy_alone() -> None:
    words = tagged([[1, 1, 0], [0, 0, 0]], sure=9)
    first, last = exit_figures(words)
    assert (last.accuracy, last.metrics["entity_f1"]) == (1, 1)
    assert (first.accuracy, first.metrics["entity_f1"]) == (0.75, 0)
    words = words._replace(traits=Traits((1, 2), ("NOUN", "VERB", "X"), "token"))
    assert exit_figures(words)[0].measured == ("accuracy",)
    assert figures_of(words, DATA).metric == "accuracy"


def test_text_leaves_when_its_tokens_are_certain_and_padding_does_not_count() -> None:
    unsure = tagged([[1, 2, 0], [0, 0, 0]], sure=0)
    point = operating_point(unsure, EntropyRule(threshold=0.01, reduce="max"))
    assert point.mean_exit_layer == 2
    assert operating_point(unsure, EntropyRule(threshold=0.6)).mean_exit_layer == 1
    sure = tagged([[1, 2, 0], [0, 0, 0]], sure=9)
    sure.logits[0, 1, 2] = 0
    point = operating_point(sure, EntropyRule(threshold=0.01, reduce="max"))
    assert point.mean_exit_layer == 1


def test_texts_agree_if_all_their_words_have_the_last_exits_tags() -> None:
    # The second text differs at a token that begins no word.
    point = operating_point(tagged([[1, 1, 0], [0, 1, 1]], sure=9), LayerRule(layer=1))
    assert point.agreement == 0.5


def test_two_labels_have_an_f1_of_the_second_and_more_labels_a_macro_f1() -> None:
    assert exit_figures(HAND_MADE)[0].metrics == {"f1": pytest.approx(2 * 2 / (3 + 2))}
    three = HAND_MADE._replace(
        logits=np.pad(HAND_MADE.logits, ((0, 0), (0, 0), (0, 1)), constant_values=-9),
        traits=Traits((2, 4, 6), ("a", "b", "c")),
    )
    assert exit_figures(three)[0].measured == ("accuracy", "macro_f1")
