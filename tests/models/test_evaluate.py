"""Evaluation figures on logits made by hand."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from models.encoding import EncodedRow
from models.evaluate import (
    Outcome,
    calibrate,
    choose_policy,
    exit_figures,
    operating_point,
    run_model,
)
from models.multi_exit import MultiExitModel
from serve.calibration import Data
from serve.recording import exits_taken
from serve.rules import EntropyRule, ExitRule, NeverRule, PatienceRule

DATA = Data(name="hand/made.tsv", rows=4, sha256="0" * 64)


def outcome(margins: Sequence[Sequence[float]], gold: Sequence[int]) -> Outcome:
    """Two-label logits: a positive margin says label 1, a large one says it surely."""
    ones = np.array(margins, np.float32).T  # (exits, rows)
    layers = tuple(range(2, 2 * len(ones) + 1, 2))
    return Outcome(np.stack([np.zeros_like(ones), ones], axis=-1), np.array(gold), layers)


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


def test_running_a_model_keeps_the_order_of_rows_and_the_mode(
    make_model: Callable[..., MultiExitModel],
    make_rows: Callable[..., list[EncodedRow]],
) -> None:
    model, rows = make_model().train(), make_rows(70)
    found = run_model(model, rows)
    assert model.training
    model.eval()
    assert found.gold.tolist() == [row.label for row in rows]
    for index in (0, 31, 69):
        ids = torch.tensor([rows[index].ids])
        alone = torch.stack(model(ids, torch.ones_like(ids)))[:, 0]
        assert found.logits[:, index] == pytest.approx(alone.detach().numpy(), abs=1e-5)
