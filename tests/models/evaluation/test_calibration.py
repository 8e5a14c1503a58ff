"""Evaluation figures on logits made by hand."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from models.data.alignment import IGNORED
from models.data.encoding import EncodedRow
from models.evaluation.calibration import calibrate, choose_policy, exit_figures, operating_point
from models.evaluation.predictions import Predictions, predict
from models.multi_exit import MultiExitModel
from serve.bundle.calibration import Data
from serve.rules import EntropyRule, ExitRule, LayerRule, NeverRule, PatienceRule
from serve.rules.replay import exits_taken
from serve.rules.traits import Task, Traits
from tests.support.traits import two_labels

DATA = Data(name="hand/made.tsv", rows=4, sha256="0" * 64)


def outcome(margins: Sequence[Sequence[float]], gold: Sequence[int]) -> Predictions:
    """Two-label logits: a positive margin says label 1, a large one says it surely."""
    ones = np.array(margins, np.float32).T  # (exits, rows)
    layers = tuple(range(2, 2 * len(ones) + 1, 2))
    logits = np.stack([np.zeros_like(ones), ones], axis=-1)
    return Predictions(logits, np.array(gold), two_labels(layers))


# Rows: sure and right at once; sure at layer 4; wrongly sure at once; never sure.
HAND_MADE = outcome([[9, 9, 9], [-0.1, -9, -9], [9, -1, -9], [0.1, -0.1, 0.2]], [1, 0, 0, 1])


def taken(rule: ExitRule) -> list[int]:
    return exits_taken(HAND_MADE.logits, rule, HAND_MADE.traits, (1.0,) * 3).tolist()


def test_accuracy_per_exit_counts_right_labels() -> None:
    figures = exit_figures(HAND_MADE)
    assert [(f.layer, f.accuracy) for f in figures] == [(2, 0.75), (4, 0.75), (6, 1.0)]


def test_entropy_rule_leaves_at_the_first_sure_exit() -> None:
    rule = EntropyRule(threshold=0.1)
    assert taken(rule) == [0, 1, 0, 2]
    point = operating_point(HAND_MADE, rule)
    assert point.accuracy == 0.75
    assert point.agreement == 0.75
    assert point.mean_exit_layer == (2 + 4 + 2 + 6) / 4


def test_agreement_is_with_the_last_exit_whatever_is_right() -> None:
    point = operating_point(
        HAND_MADE._replace(gold=np.array([1, 0, 1, 1])), EntropyRule(threshold=0.1)
    )
    assert point.accuracy == 1
    assert point.agreement == 0.75


def test_patience_rule_counts_agreeing_exits() -> None:
    assert taken(PatienceRule(patience=1)) == [1, 1, 2, 2]
    assert operating_point(HAND_MADE, PatienceRule(patience=1)).mean_exit_layer == 5


def test_never_and_threshold_zero_answer_at_the_last_exit() -> None:
    for rule in (NeverRule(), EntropyRule(threshold=0)):
        point = operating_point(HAND_MADE, rule)
        assert (point.accuracy, point.agreement, point.mean_exit_layer) == (1, 1, 6)


# 200 rows; leaving at once is wrong for one row with entropy 0.090, for two with 0.365 and
# for ten with 0.663. The allowances of the profiles are one row and four.
EARLY = [9.0] * 187 + [-4.0] + [-2.0] * 2 + [-0.5] * 10
GRADED = outcome([[margin, 9] for margin in EARLY], [1] * 200)


def test_profiles_are_the_loosest_thresholds_within_their_allowance() -> None:
    policy = choose_policy(GRADED)
    assert policy.default == "balanced"
    assert policy.profiles["exact"] == NeverRule()
    assert policy.profiles["balanced"] == EntropyRule(threshold=0.36)
    assert policy.profiles["fast"] == EntropyRule(threshold=0.66)


def test_exits_that_are_never_good_enough_leave_the_profiles_at_threshold_zero() -> None:
    policy = choose_policy(outcome([[-20, 9]] * 4, [1] * 4))
    assert policy.profiles["balanced"] == policy.profiles["fast"] == EntropyRule(threshold=0)


def test_published_thresholds_are_round_ones_and_those_of_the_profiles() -> None:
    figures = calibrate(GRADED, DATA, choose_policy(GRADED))
    rules = [point.rule for point in figures.operating_points]
    thresholds = [rule.threshold for rule in rules if isinstance(rule, EntropyRule)]
    assert thresholds == [0, *[0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35], 0.36,
                          *[0.4, 0.45, 0.5, 0.55, 0.6, 0.65], 0.66]  # fmt: skip
    assert figures.data == DATA


def test_published_patience_stops_where_it_would_never_leave_early() -> None:
    figures = calibrate(HAND_MADE, DATA, choose_policy(HAND_MADE))
    rules = [point.rule for point in figures.operating_points]
    assert [r for r in rules if isinstance(r, PatienceRule)] == [PatienceRule(patience=1)]


# Three exits; values settle at once, at layer 2, or drift on to the end.
VALUES = np.array([[1, 3, 0, 5], [1.1, 2, 1, 4], [1.1, 2.1, 2, 3]], np.float32)[:, :, None]
VALUED = Predictions(
    VALUES, np.array([1, 2, 2, 3], np.float32), Traits((1, 2, 3), ("score",), "regression")
)


def test_regression_is_measured_by_correlations() -> None:
    first, _, last = exit_figures(VALUED)
    assert first.accuracy is None
    assert last.metrics["pearson"] == pytest.approx(np.corrcoef(VALUES[2, :, 0], VALUED.gold)[0, 1])
    assert last.measured == ("pearson", "spearman")
    assert last.value("pearson") > first.value("pearson")


def test_regression_leaves_where_values_have_settled_and_agreement_is_not_told() -> None:
    point = operating_point(VALUED, PatienceRule(patience=1, tolerance=0.5))
    assert point.mean_exit_layer == (2 + 3 + 3 + 3) / 4
    assert point.agreement is None


def valued(*exits: Sequence[float]) -> Predictions:
    """A regression that is right at its last exit."""
    values = np.array(exits, np.float32)
    layers = tuple(range(1, len(exits) + 1))
    return Predictions(values[:, :, None], values[-1], Traits(layers, ("score",), "regression"))


def test_policy_of_a_regression_lets_settled_values_go() -> None:
    right = np.linspace(0, 5, 20)
    wild = np.where(np.arange(20) % 7 == 3, 9, 0)
    outcome = valued(right + 2 * wild, right + wild, right)
    policy = choose_policy(outcome)
    balanced = policy.profiles["balanced"]
    assert isinstance(balanced, PatienceRule)
    assert balanced.patience == 1
    # Three rows jump from exit to exit; the others leave where their value has not moved.
    assert operating_point(outcome, balanced).mean_exit_layer == (17 * 2 + 3 * 3) / 20
    policy.check(outcome.traits)
    assert calibrate(outcome, DATA, policy).metric == "pearson"


def test_fixed_layer_is_taken_where_agreement_tells_nothing() -> None:
    # The first two exits say the same of every text, the third already all that there is to say.
    right = np.linspace(0, 5, 20)
    outcome = valued(right * 0, right * 0, right, right)
    assert choose_policy(outcome).profiles["balanced"] == LayerRule(layer=3)


def test_values_need_not_be_asked_before_they_mean_anything() -> None:
    right = np.linspace(1, 6, 20)
    wild = np.where(np.arange(20) % 7 == 3, 9, 0)
    outcome = valued(right * 0, right * 0, right + 2 * wild, right + wild, right)
    balanced = choose_policy(outcome).profiles["balanced"]
    assert isinstance(balanced, PatienceRule)
    assert balanced.min_layer is not None
    assert operating_point(outcome, balanced).mean_exit_layer == (17 * 4 + 3 * 5) / 20
    published = calibrate(outcome, DATA, choose_policy(outcome)).operating_points
    assert balanced in [point.rule for point in published]


def test_regression_that_never_settles_in_time_never_leaves_early() -> None:
    wild = VALUED._replace(logits=VALUES * np.array([-1, 9, 1], np.float32)[:, None, None])
    assert choose_policy(wild).profiles["balanced"] == NeverRule()


# Of each label whether it is sure: both, both, one of two, none.
MARKS = np.array([[9, -9], [9, 9], [9, 0.5], [0.5, -0.5]], np.float32)
SEVERAL = Predictions(
    np.stack([MARKS, np.where(MARKS > 0, 9, -9).astype(np.float32)]),
    np.array([[1, 0], [1, 1], [1, 0], [0, 0]], np.float32),
    Traits((1, 2), ("a", "b"), "multi_label"),
)


def test_row_with_several_labels_leaves_when_the_least_sure_one_is_sure() -> None:
    point = operating_point(SEVERAL, EntropyRule(threshold=0.1))
    assert point.mean_exit_layer == (1 + 1 + 2 + 2) / 4
    assert point.agreement == 1
    assert point.accuracy == 0.5
    assert point.metrics["micro_f1"] == pytest.approx(2 * 4 / (6 + 4))


def test_thresholds_for_several_labels_end_at_the_entropy_of_a_coin() -> None:
    policy = choose_policy(SEVERAL)
    policy.check(SEVERAL.traits)
    # All rows may leave at once: the first exit's marks are the last one's.
    fast = policy.profiles["fast"]
    assert operating_point(SEVERAL, fast).mean_exit_layer == 1
    assert isinstance(fast, EntropyRule)
    assert fast.threshold == 0.69


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
    counted = np.array([[True, True, True], [True, True, False]])
    return Predictions(np.stack([early, right]), gold, TAGS, counted)


def test_words_are_measured_by_entities_and_by_share_of_right_tags() -> None:
    first, last = exit_figures(tagged([[1, 1, 0], [0, 0, 0]], sure=9))
    assert (last.accuracy, last.metrics["entity_f1"]) == (1, 1)
    assert (first.accuracy, first.metrics["entity_f1"]) == (0.75, 0)


def test_text_leaves_when_its_tokens_are_sure_and_padding_is_not_asked() -> None:
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


def test_policy_for_words_is_chosen_by_entities() -> None:
    outcome = tagged([[1, 1, 0], [0, 0, 0]], sure=9)
    policy = choose_policy(outcome)
    policy.check(TAGS)
    # The first exit has half of the tags and no entity: whoever is as sure must stay.
    for name in ("balanced", "fast"):
        assert operating_point(outcome, policy.profiles[name]).metrics["entity_f1"] == 1
    good = tagged([[1, 2, 0], [0, 0, 0]], sure=9)
    assert operating_point(good, choose_policy(good).profiles["balanced"]).mean_exit_layer == 1


def test_tags_that_name_no_entities_are_measured_by_their_share_alone() -> None:
    words = tagged([[1, 1, 0], [0, 0, 0]], sure=9)._replace(
        traits=Traits((1, 2), ("NOUN", "VERB", "X"), "token")
    )
    assert exit_figures(words)[0].measured == ("accuracy",)
    assert calibrate(words, DATA, choose_policy(words)).metric == "accuracy"


def test_two_labels_have_an_f1_of_the_second_and_more_labels_a_macro_f1() -> None:
    assert exit_figures(HAND_MADE)[0].metrics == {"f1": pytest.approx(2 * 2 / (3 + 2))}
    three = HAND_MADE._replace(
        logits=np.pad(HAND_MADE.logits, ((0, 0), (0, 0), (0, 1)), constant_values=-9),
        traits=Traits((2, 4, 6), ("a", "b", "c")),
    )
    assert exit_figures(three)[0].measured == ("accuracy", "macro_f1")


@pytest.mark.parametrize(
    ("task", "labels"),
    [("multi_label", "ab"), ("regression", "a"), ("token", "abc")],
)
def test_model_of_each_task_is_run_whole(
    make_model: Callable[..., MultiExitModel],
    make_rows: Callable[..., list[EncodedRow]],
    task: Task,
    labels: str,
) -> None:
    model = make_model(task=task, labels=tuple(labels))
    right = {"multi_label": (1.0, 0.0), "regression": 0.5}.get(task)
    rows = [
        EncodedRow(row.ids, row.types, right or [1] * len(row.ids), [True] * len(row.ids))
        for row in make_rows(70)
    ]
    found = predict(model, rows)
    assert found.traits == model.traits
    ids = torch.tensor([rows[5].ids])
    alone = torch.stack(model(ids, torch.ones_like(ids)))[:, 0].detach().numpy()
    inner = (slice(ids.shape[1]),) if task == "token" else ()
    assert found.logits[:, 5][:, *inner] == pytest.approx(alone, abs=1e-5)
    if task == "token":
        assert found.in_text[5].sum() == ids.shape[1]
        assert set(found.gold[5, ids.shape[1] :].tolist()) <= {IGNORED}
    else:
        assert np.array_equal(found.gold[5], np.float32(right))


def test_running_a_model_keeps_the_order_of_rows_and_the_mode(
    make_model: Callable[..., MultiExitModel],
    make_rows: Callable[..., list[EncodedRow]],
) -> None:
    model, rows = make_model().train(), make_rows(70)
    found = predict(model, rows)
    assert model.training
    model.eval()
    assert found.gold.tolist() == [row.label for row in rows]
    for index in (0, 31, 69):
        ids = torch.tensor([rows[index].ids])
        alone = torch.stack(model(ids, torch.ones_like(ids)))[:, 0]
        assert found.logits[:, index] == pytest.approx(alone.detach().numpy(), abs=1e-5)
