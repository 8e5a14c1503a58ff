"""Families of rules that are drawn as curves."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from models.evaluation.rule_families import LEARNED, PATIENCE, headline_family, rule_families
from models.recorded import Recorded
from serve.bundle.manifest import TrainedFor
from serve.rules import PatienceRule
from serve.rules.rule import Rule
from serve.rules.traits import Task, Traits
from tests.support.recordings import margins, noisy, said


def mean_exit(seen: Recorded, rule: Rule) -> float:
    return float(seen.taken(rule).exits.mean())


@pytest.mark.parametrize("task", get_args(Task))
def test_a_familys_rules_run_from_never_to_the_first_exit(task: Task) -> None:
    seen = noisy(task)
    families = rule_families(seen)
    assert headline_family(seen, TrainedFor()) in families
    for name, rules in families.items():
        depths = [mean_exit(seen, rule) for rule in rules]
        assert depths[0] == 2, name
        assert depths == sorted(depths, reverse=True), name
        # Rules that count exits wait for the second one at least.
        assert depths[-1] < 2 if "patience" in name or name == "voting" else depths[-1] == 0, name


def test_heads_that_predict_their_errors_are_judged_by_those() -> None:
    seen = noisy("single_label")
    errors = np.random.default_rng(0).random((3, 60), np.float32)
    learned = Traits(seen.traits.exits, seen.traits.labels, learned=True)
    seen = replace(seen, uncertainty=errors, traits=learned)
    assert headline_family(seen, TrainedFor()) == LEARNED
    loosest = rule_families(seen)[LEARNED][-1]
    assert mean_exit(seen, loosest) == 0


def test_the_family_to_judge_by_is_that_of_the_training() -> None:
    for stated in (TrainedFor(rule=PatienceRule(patience=1)), TrainedFor(method="PABEE")):
        assert headline_family(noisy("single_label"), stated) == PATIENCE


def test_with_two_labels_confidence_and_margin_would_draw_the_entropys_curve_again() -> None:
    assert {"confidence", "margin"} <= rule_families(noisy("single_label")).keys()
    two = margins([[1, 2, 3], [3, -2, 5]], [0, 1])
    assert not {"confidence", "margin"} & rule_families(two).keys()


def test_a_single_exit_has_no_families() -> None:
    assert rule_families(margins([[1.0], [2.0]], [0, 1])) == {}


def test_thresholds_are_not_rounded_so_that_the_rows_leave_that_were_meant_to() -> None:
    seen = noisy("single_label")
    for rule in rule_families(seen)["entropy"]:
        again = type(rule).model_validate_json(rule.model_dump_json())
        assert np.array_equal(seen.taken(again).exits, seen.taken(rule).exits)


def test_an_exit_that_knows_nothing_at_all_is_no_trouble() -> None:
    rows = [[0.0, 1, 2], [0.0, -1, 2]]
    families = rule_families(margins(rows, [0, 1]))
    assert all(rules for rules in families.values())


def test_numbers_that_no_exit_changes_leave_at_the_second_exit() -> None:
    traits = Traits((1, 2, 4), ("stars",), "regression")
    seen = said(np.full((3, 5, 1), 0.5), traits, np.arange(5.0))
    families = rule_families(seen)
    assert headline_family(seen, TrainedFor()) in families
    assert [mean_exit(seen, rule) for rule in families[PATIENCE]][-1] == 1
