from typing import Any

import pytest
from pydantic import ValidationError

from serve.errors import InvalidRule, OverrideForbidden, UnknownProfile
from serve.policy.document import Policy
from serve.rules import ConfidenceRule, EntropyRule, LayerRule, NeverRule, PatienceRule
from tests.support.traits import two_labels

PROFILES = {
    "exact": {"rule": "never"},
    "fast": {"rule": "entropy", "threshold": 0.4, "max_layer": 4},
}


def policy(**fields: Any) -> Policy:
    return Policy.model_validate({"profiles": PROFILES, **fields})


def test_without_a_choice_the_default_applies() -> None:
    patience = {"rule": "patience", "patience": 2}
    assert policy(default="fast").rule_for(None) == EntropyRule(threshold=0.4, max_layer=4)
    assert policy(default=patience).rule_for(None) == PatienceRule(patience=2)
    assert Policy().rule_for(None) == NeverRule()


def test_a_choice_is_a_rule_or_a_profile() -> None:
    assert policy().rule_for("exact") == NeverRule()
    assert policy().rule_for(LayerRule(layer=2)) == LayerRule(layer=2)


@pytest.mark.parametrize("limits", [{}, {"min_layer": 1}, {"max_layer": 4}])
def test_rule_that_is_within_the_limits_is_taken_as_it_is(limits: dict[str, Any]) -> None:
    """Caches are keyed by the rule object."""
    fast = policy(limits=limits).profiles["fast"]
    assert policy(limits=limits).rule_for(fast) is fast


def test_an_unknown_profile_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownProfile, match="no profile 'slow'; the policy has exact, fast"):
        policy().rule_for("slow")


def test_limits_can_forbid_rules_or_every_override() -> None:
    only_profiles = policy(limits={"overrides": "profiles"})
    assert only_profiles.rule_for("exact") == NeverRule()
    with pytest.raises(OverrideForbidden, match="only profiles: exact, fast"):
        only_profiles.rule_for(NeverRule())
    with pytest.raises(OverrideForbidden, match="no override"):
        policy(limits={"overrides": "none"}).rule_for("exact")
    assert policy(limits={"overrides": "none"}).rule_for(None) == NeverRule()


def test_limits_bound_every_rule_the_default_too() -> None:
    bounded = policy(default="fast", limits={"min_layer": 2, "max_layer": 3})
    assert bounded.rule_for(None) == EntropyRule(threshold=0.4, min_layer=2, max_layer=3)
    choice = ConfidenceRule(threshold=0.9, min_layer=3, max_layer=6)
    assert bounded.rule_for(choice) == ConfidenceRule(threshold=0.9, min_layer=3, max_layer=3)


@pytest.mark.parametrize(
    ("choice", "limits", "message"),
    [
        (LayerRule(layer=2), {"min_layer": 3}, "limits: layer 3 or later$"),
        (LayerRule(layer=1), {"min_layer": 2, "max_layer": 3}, "limits: layers 2 to 3$"),
        (LayerRule(layer=4), {"min_layer": 2, "max_layer": 3}, "limits: layers 2 to 3$"),
        (NeverRule(max_layer=1), {"min_layer": 2}, "nothing between min_layer 2 and max_layer 1"),
        (NeverRule(min_layer=4), {"max_layer": 3}, "nothing between min_layer 4 and max_layer 3"),
    ],
)
def test_a_choice_outside_the_limits_is_refused_with_those_they_allow(
    choice: Any, limits: dict[str, int], message: str
) -> None:
    with pytest.raises(OverrideForbidden, match=message):
        policy(limits=limits).rule_for(choice)


@pytest.mark.parametrize(
    "fields",
    [
        {"default": "slow"},
        {"default": 3},
        {"profiles": {"not a name": {"rule": "never"}}},
        {"limits": {"overrides": "some"}},
        {"limits": {"min_layer": 4, "max_layer": 2}},
        {"thresholds": [0.1]},
    ],
)
def test_a_document_that_contradicts_itself_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        policy(**fields)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"default": {"rule": "layer", "layer": 5}}, "default: layer 5"),
        ({"profiles": {"deep": {"rule": "never", "max_layer": 9}}}, "profiles.deep: max_layer 9"),
        ({"limits": {"min_layer": 9}}, "limits: min_layer 9"),
        (
            {"profiles": {"one": {"rule": "layer", "layer": 2}}, "limits": {"min_layer": 4}},
            "profiles.one: layer 2",
        ),
        ({"limits": {"min_layer": 3, "max_layer": 3}}, "limits: there is no exit"),
    ],
)
def test_a_policy_is_checked_against_the_model_and_the_place_is_named(
    fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(InvalidRule, match=place):
        policy(**fields).check(two_labels((2, 4, 6)))


def test_profiles_and_the_default_may_be_targets_which_are_never_until_resolved() -> None:
    target = {"target": {"max_disagreement": 0.01}}
    wanted = policy(default=target, profiles={"balanced": target, "exact": {"rule": "never"}})
    assert Policy.model_validate_json(wanted.model_dump_json()) == wanted
    wanted.check(two_labels((1, 2)))
    assert wanted.rule_for(None) == wanted.rule_for("balanced") == NeverRule()
