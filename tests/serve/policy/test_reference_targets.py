"""Targets from a reference: another classifier, from which full depth differs too."""

from typing import Any

import pytest
from pydantic import ValidationError

from serve.errors import TargetOutOfReach
from serve.policy.applied import AppliedPolicy, checked
from serve.policy.document import Policy
from serve.policy.limits import Limits
from serve.policy.resolution import resolve
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import Target
from tests.serve.support.ladders import BOLD, NEVER, SAFE, of_reference, served


def from_reference() -> ServedLadder:
    return served(**of_reference())


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
    report = resolve(target(**bounds), from_reference().rungs(Limits())).report
    assert report["exit_rule"] == rule
    assert (report["certificate"]["loss"], report["certificate"]["epsilon"]) == (
        "reference",
        epsilon,
    )


def test_full_depth_has_a_certificate_too_and_is_refused_where_it_differs_more() -> None:
    rungs = from_reference().rungs(Limits())
    full = resolve(target(max_disagreement=0.03), rungs[:1])
    assert full.report["exit_rule"] == NEVER
    assert full.report["certificate"]["loss"] == "reference"
    for bound in (0.0, 0.01):
        with pytest.raises(TargetOutOfReach, match=r"differs from the reference for 2\.20 % of"):
            resolve(target(max_disagreement=bound), rungs)
    with pytest.raises(TargetOutOfReach, match=r"2\.20 %"):
        resolve(target(max_disagreement=0.01, certified=False), rungs)


def test_other_targets_see_no_certificate_about_a_reference() -> None:
    for bounds in (
        {"max_disagreement": 0.01},
        {"speedup": 1},
        {"max_layers": 1.5},
        {"max_loss": 0.02},
    ):
        compared, plain = (
            resolve(Target(**bounds), known.rungs(Limits())).report
            for known in (from_reference(), served())
        )
        assert compared == plain
    with pytest.raises(TargetOutOfReach):
        resolve(Target(max_layers=1.5, certified=True), from_reference().rungs(Limits()))


@pytest.mark.parametrize("certified", [True, False])
def test_without_a_reference_the_target_is_refused_with_what_helps(certified: bool) -> None:
    wish = {"target": {"max_disagreement": 0.03, "from": "reference", "certified": certified}}
    policy, known = Policy.model_validate({"default": wish}), served()
    with pytest.raises(
        TargetOutOfReach, match=r"from a reference: run `offramp calibrate` with --"
    ):
        checked(policy, known)
    with pytest.raises(TargetOutOfReach, match="is not known"):
        AppliedPolicy(Policy.model_validate({"default": NEVER}), known).exit_for(
            policy.wish_for(None)
        )


def test_a_policy_keeps_where_its_target_is_measured_from() -> None:
    document = {"default": {"target": {"max_disagreement": 0.04, "from": "reference"}}}
    policy = Policy.model_validate(document)
    assert policy.model_dump(mode="json", exclude_none=True)["default"] == document["default"]
    chosen = AppliedPolicy(policy, from_reference()).named["default"]
    assert chosen.resolution.certificate.loss == "reference"
    assert chosen.problem is None


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
    with pytest.raises(ValidationError, match="max_"):
        target(**bounds)
