from typing import Any

import pytest
from pydantic import ValidationError

from serve.errors import InvalidRule, OverrideForbidden, UnknownProfile
from serve.policy.document import Policy
from serve.policy.limits import Limits
from serve.policy.target import Target, TargetChoice
from serve.rules import ConfidenceRule, EntropyRule, LayerRule, NeverRule, PatienceRule
from tests.support.traits import two_labels

PROFILES = {
    "exact": {"rule": "never"},
    "fast": {"rule": "entropy", "threshold": 0.4, "max_layer": 4},
    "sure": {"target": {"max_disagreement": 0.01}},
}
FAST, SURE = EntropyRule(threshold=0.4, max_layer=4), Target(max_disagreement=0.01)


def policy(**fields: Any) -> Policy:
    return Policy.model_validate({"profiles": PROFILES, **fields})


def test_without_a_choice_the_default_applies() -> None:
    patience = {"rule": "patience", "patience": 2}
    assert policy(default="fast").wish_for(None) == FAST
    assert policy(default="sure").wish_for(None) == TargetChoice(target=SURE)
    assert policy(default=patience).wish_for(None) == PatienceRule(patience=2)
    assert policy(default={"target": {"speedup": 2}}).wish_for(None).target.speedup == 2
    assert Policy().wish_for(None) == NeverRule()


def test_a_choice_is_a_rule_a_target_or_a_profile() -> None:
    assert policy().wish_for("exact") == NeverRule()
    assert policy().wish_for("sure") == TargetChoice(target=SURE)
    assert policy().wish_for(LayerRule(layer=2)) == LayerRule(layer=2)
    assert policy().wish_for(TargetChoice(target=SURE)) == TargetChoice(target=SURE)


def test_what_is_stored_is_read_as_it_was_written() -> None:
    written = policy(default={"target": {"max_ms": 5, "certified": True}})
    assert Policy.model_validate_json(written.model_dump_json()) == written
    assert written.model_dump(exclude_none=True)["profiles"]["sure"] == PROFILES["sure"]


@pytest.mark.parametrize("limits", [{}, {"min_layer": 1}, {"max_layer": 4}])
def test_rule_that_is_within_the_limits_is_taken_as_it_is(limits: dict[str, Any]) -> None:
    """Caches are keyed by the rule object."""
    assert Limits(**limits).applied_to(FAST) is FAST


def test_an_unknown_profile_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownProfile, match="no profile 'slow'; the policy has exact, fast, sure"):
        policy().wish_for("slow")


@pytest.mark.parametrize("choice", [NeverRule(), TargetChoice(target=SURE)])
def test_limits_can_forbid_rules_and_targets_or_every_override(choice: Any) -> None:
    only_profiles = policy(limits={"overrides": "profiles"})
    assert only_profiles.wish_for("exact") == NeverRule()
    assert only_profiles.wish_for("sure") == TargetChoice(target=SURE)
    with pytest.raises(OverrideForbidden, match="only profiles: exact, fast, sure"):
        only_profiles.wish_for(choice)
    none = policy(limits={"overrides": "none"})
    with pytest.raises(OverrideForbidden, match="no override"):
        none.wish_for("exact")
    with pytest.raises(OverrideForbidden, match="no override"):
        none.wish_for(choice)
    assert none.wish_for(None) == NeverRule()


def test_limits_bound_every_rule() -> None:
    limits = Limits(min_layer=2, max_layer=3)
    assert limits.applied_to(FAST) == EntropyRule(threshold=0.4, min_layer=2, max_layer=3)
    choice = ConfidenceRule(threshold=0.9, min_layer=3, max_layer=6)
    assert limits.applied_to(choice) == ConfidenceRule(threshold=0.9, min_layer=3, max_layer=3)


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
        Limits(**limits).applied_to(choice)


@pytest.mark.parametrize(
    "fields",
    [
        {"default": "slow"},
        {"default": 3},
        {"default": {"target": {}}},
        {"profiles": {"not a name": {"rule": "never"}}},
        {"profiles": {"one": "fast"}},
        {"profiles": {"one": {"profile": "fast"}}},
        {"profiles": {"one": {"rule": "never", "flag": {"yes": 0.5}}}},
        {"profiles": {"one": {"flag": {}}}},
        {"profiles": {"one": {"flag": {"yes": 1.5}}}},
        {"profiles": {"one": {"exit": "fast", "flag": {"yes": 0.5}}}},
        {"profiles": {"one": {"windows": {"stride": -1}}}},
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
        ({"profiles": {"one": {"exit": {"rule": "layer", "layer": 5}}}}, "one.exit: layer 5"),
        ({"profiles": {"one": {"flag": {"maybe": 0.5}}}}, "one.flag: no label 'maybe'; .* no, yes"),
        ({"profiles": {"one": {"windows": {"combine": "any"}}}}, "one.windows.combine: any needs"),
    ],
)
def test_a_policy_is_checked_against_the_model_and_the_place_is_named(
    fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(InvalidRule, match=place):
        policy(**fields).check(two_labels((2, 4, 6)))


def test_profiles_and_the_default_may_be_targets() -> None:
    target = {"target": {"max_disagreement": 0.01}}
    wanted = policy(default=target, profiles={"balanced": target, "exact": {"rule": "never"}})
    assert Policy.model_validate_json(wanted.model_dump_json()) == wanted
    wanted.check(two_labels((1, 2)))
    assert wanted.wish_for(None) == wanted.wish_for("balanced") == wanted.default


def test_a_profile_without_an_exit_leaves_as_the_default_does() -> None:
    flag = {"flag": {"yes": 0.5}}
    assert policy(default="fast", profiles=PROFILES | {"one": flag}).wish_for("one") == FAST
    assert policy(default="one", profiles={"one": flag}).wish_for(None) == NeverRule()
    with_exit = {"exit": PROFILES["fast"], **flag}
    own = policy(profiles={"one": with_exit})
    assert own.wish_for("one") == own.wishes["one"] == FAST
    assert own.place_of("one") == "profiles.one.exit"
    assert own.settings_for("one").flag == {"yes": 0.5}
    assert policy(default="one", profiles={"one": flag}).settings_for(None).flag == {"yes": 0.5}
    assert own.settings_for(None).flag is own.settings_for(NeverRule()).flag is None
    assert Policy.model_validate_json(own.model_dump_json()) == own
    assert own.model_dump(exclude_none=True)["profiles"]["one"] == with_exit


def test_documents_that_were_stored_before_are_written_as_they_were() -> None:
    """Replicas compare hashes of the document, so not a byte may differ."""
    written = policy(default="fast").model_dump_json()
    assert "flag" not in written
    assert "windows" not in written
    assert "unchecked" not in written
    assert "detectors" not in written
