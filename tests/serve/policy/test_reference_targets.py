"""Targets from a reference: another classifier, from which full depth differs too."""

from typing import Any

import pytest
from pydantic import ValidationError

from serve.errors import TargetOutOfReach
from serve.policy.applied import AppliedPolicy, checked
from serve.policy.document import Policy
from serve.policy.limits import Limits
from serve.policy.resolution import resolve
from serve.policy.target import Target
from tests.serve.support.ladders import BOLD, NEVER, SAFE, of_reference, served

RUNGS = served(**of_reference()).rungs(Limits())


def target(**bounds: Any) -> Target:
    return Target.model_validate({"from": "reference", **bounds})


@pytest.mark.parametrize(
    ("bounds", "rule", "epsilon"),
    [
        ({"max_disagreement": 0.04}, SAFE, 0.04),
        ({"max_disagreement": 0.3}, BOLD, 0.05),
        ({"max_disagreement": 0.025, "certified": False}, SAFE, 0.04),
        ({"max_disagreement": 0.05, "max_layers": 2.5}, BOLD, 0.05),
    ],
)
def test_the_answer_names_the_certificate_about_the_reference(
    bounds: dict[str, Any], rule: dict[str, Any], epsilon: float
) -> None:
    report = resolve(target(**bounds), RUNGS).report
    assert report["exit_rule"] == rule
    own = report["certificate"]
    assert (own["loss"], own["epsilon"]) == ("reference", epsilon)


def test_full_depth_has_a_certificate_too_and_is_refused_where_it_differs_more() -> None:
    full = resolve(target(max_disagreement=0.03), RUNGS[:1])
    assert full.report["exit_rule"] == NEVER
    assert full.report["certificate"]["loss"] == "reference"
    for bounds in ({"max_disagreement": 0}, {"max_disagreement": 0.01, "certified": False}):
        with pytest.raises(TargetOutOfReach, match=r"differs from the reference for 2\.20 % of"):
            resolve(target(**bounds), RUNGS)


@pytest.mark.parametrize(
    "bounds", [{"max_disagreement": 0.01}, {"speedup": 1}, {"max_layers": 1.5}, {"max_loss": 0.02}]
)
def test_other_targets_see_no_certificate_about_a_reference(bounds: dict[str, Any]) -> None:
    plain = served().rungs(Limits())
    assert resolve(Target(**bounds), RUNGS).report == resolve(Target(**bounds), plain).report
    with pytest.raises(TargetOutOfReach):
        resolve(Target(max_layers=1.5, certified=True), RUNGS)


@pytest.mark.parametrize("certified", [True, False])
def test_without_a_reference_the_target_is_refused_with_what_helps(certified: bool) -> None:
    wish = {"target": {"max_disagreement": 0.03, "from": "reference", "certified": certified}}
    policy, known = Policy.model_validate({"default": wish}), served()
    with pytest.raises(TargetOutOfReach, match="run `offramp calibrate` with --reference"):
        checked(policy, known)
    with pytest.raises(TargetOutOfReach):
        AppliedPolicy(Policy(), known).exit_for(policy.wish_for(None))


def test_a_policy_keeps_where_its_target_is_measured_from() -> None:
    document = {"default": {"target": {"max_disagreement": 0.04, "from": "reference"}}}
    policy = Policy.model_validate(document)
    assert policy.model_dump(mode="json", exclude_none=True)["default"] == document["default"]
    chosen = checked(policy, served(**of_reference())).named["default"]
    assert (chosen.resolution.certificate.loss, chosen.problem) == ("reference", None)


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"max_loss": 0.01},
        {"speedup": 2},
        {"max_disagreement": 0.1, "max_loss": 0.1},
        {"max_missed": 0.1},
    ],
)
def test_from_goes_with_a_bound_on_disagreement_alone(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        target(**bounds)
