"""Rules tried on recordings: families, the policy's profiles, the front, and gains."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from models.quality.costs import LAYERS, MS, TimeCost
from models.quality.points import STATIC, Point, gain, resampled, served_profiles
from models.quality.recorded import Recorded
from models.quality.rule_families import LEARNED, PATIENCE, headline_family, rule_families
from serve.bundle.manifest import TrainedFor
from serve.classifier.exit_costs import ExitCosts
from serve.policy.document import Policy
from serve.rules import ExitRule, LayerRule, NeverRule, PatienceRule
from serve.rules.rule import Rule
from serve.rules.traits import Task, Traits
from tests.support.recordings import analysed, margins, noisy, said

# At layers 1, 2 and 4: a layer takes 2 ms.
TIMED = {MS: TimeCost(ExitCosts((0.002, 0.002, 0.004), 0.0, 0.0))}


def served(timed: bool = True, **policy: Any) -> dict[str, ExitRule]:
    seen = analysed(noisy("single_label"), policy=Policy.model_validate(policy))
    profiles = served_profiles(seen.model, seen.recorded, TIMED if timed else {})
    return {name: rule for rule, name, _ in profiles}


@pytest.mark.parametrize(
    ("target", "rule"),
    [
        ({"max_layers": 2.0}, LayerRule(layer=2)),
        ({"max_ms": 2.0}, LayerRule(layer=1)),
        ({"speedup": 2.0}, LayerRule(layer=2)),
        # Nothing is certified.
        ({"max_disagreement": 0.01}, NeverRule()),
    ],
)
def test_targets_become_what_the_server_would_make_of_them(
    target: dict[str, float], rule: ExitRule
) -> None:
    assert served(profiles={"wish": {"target": target}})["wish"] == rule


def test_rules_are_held_within_the_policys_limits_and_targets_need_times() -> None:
    profiles = {"quick": {"rule": "patience", "patience": 1}, "wish": {"target": {"max_ms": 3.0}}}
    found = served(timed=False, profiles=profiles, limits={"min_layer": 2}, default="quick")
    assert found == {"quick": PatienceRule(patience=1, min_layer=2)}


def test_every_rule_that_is_tried_has_all_metrics() -> None:
    recorded = margins([[9, 9, 9], [-0.1, -9, -9], [9, -1, -9], [0.1, -0.1, 0.2]], [1, 0, 0, 1])
    points = analysed(recorded).points
    for point in (point for family in points.values() for point in family):
        decided = recorded.taken(point.rule).deciding.argmax(axis=1)
        assert point.metrics["accuracy"] == point.value
        assert point.metrics["mcc"] == pytest.approx(matthews_corrcoef(recorded.gold, decided))
    assert set(points[STATIC][0].metrics) == {"accuracy", "f1", "mcc", "accuracy_and_f1"}


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


def curve(depths: list[float], values: list[float]) -> list[Point]:
    """Return a curve that is the same in every sample."""
    point = analysed(margins([[1.0]], [1])).full
    each = zip(depths, values, strict=True)
    return [point._replace(depths=np.full(4, d), values=np.full(4, v)) for d, v in each]


STOPPING = curve([2.0, 4.0, 6.0], [0.6, 0.8, 0.9])


def test_the_area_is_that_between_the_lines() -> None:
    # A triangle over the static line from 2 to 6, with 0.1 at layer 4.
    found = gain(curve([2.0, 4.0, 6.0], [0.6, 0.9, 0.9]), STOPPING)
    assert found.area == pytest.approx(0.1 * 4 / 2)
    assert found.mean == pytest.approx(0.05)
    assert found.shown


def test_points_may_come_in_any_order_and_cover_a_part_of_the_depths() -> None:
    found = gain(curve([6.0, 3.0], [0.9, 0.7]), STOPPING)
    assert found.depths == (3, 6)
    # On the line from 3 to 4 it loses up to 1/30 at 4, where the static line bends.
    assert found.mean == pytest.approx(-(0.8 - 0.7 - 0.2 / 3) / 2, abs=1e-4)


def test_samples_draw_the_same_rows_for_every_point() -> None:
    seen = analysed(noisy("single_label"))
    static = seen.points[STATIC]
    found = resampled([*static, *static], samples=40)
    for place, (one, other) in enumerate(zip(found[:3], found[3:], strict=True)):
        assert np.array_equal(one.values, other.values)
        assert one.values[0] == pytest.approx(static[place].value)
        assert one.values[1:].std() > 0
        # Every text stops at the same layer, whatever is drawn.
        assert set(one.depths) == {(1, 2, 4)[place]}


def test_a_rule_that_lets_easy_texts_leave_is_seen_to_gain() -> None:
    # Half of the texts are right and sure at once; the others become right at the end.
    easy, hard = [[9.0, 9.0, 9.0]] * 200, [[-0.1, -0.1, 9.0]] * 200
    analysis = analysed(margins([*easy, *hard], [1] * 400))
    assert analysis.headline == "entropy"
    found = analysis.gains["entropy"]
    assert found.shown
    # From (2, 0.5) over (4, 1) to (6, 1), against (2, 0.5), (4, 0.5), (6, 1).
    assert found.mean == pytest.approx(0.25, abs=0.01)


def test_the_front_holds_what_no_other_point_beats() -> None:
    seen = analysed(margins([[9.0, 9.0, 9.0], [0.1, -9.0, -9.0]], [1, 0]))
    costs = [(p.costs[LAYERS], p.value) for p in seen.front()]
    # All at the first exit; one at the first and one at the second.
    assert costs == [(2, 0.5), (3, 1)]
