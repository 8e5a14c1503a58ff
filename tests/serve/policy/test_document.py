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
CHOICES = (NeverRule(), TargetChoice(target=SURE))


def policy(**fields: Any) -> Policy:
    return Policy.model_validate({"profiles": PROFILES, **fields})


@pytest.mark.parametrize(
    ("default", "wish"),
    [
        ("fast", FAST),
        ("sure", TargetChoice(target=SURE)),
        ({"rule": "patience", "patience": 2}, PatienceRule(patience=2)),
        ({"target": {"speedup": 2}}, TargetChoice(target=Target(speedup=2))),
    ],
)
def test_without_a_choice_the_default_applies(default: Any, wish: Any) -> None:
    assert policy(default=default).wish_for(None) == wish
    assert Policy().wish_for(None) == NeverRule()


def test_a_choice_is_a_rule_a_target_or_a_profile() -> None:
    assert policy().wish_for("exact") == NeverRule()
    assert policy().wish_for("sure") == TargetChoice(target=SURE)
    for choice in (LayerRule(layer=2), *CHOICES):
        assert policy().wish_for(choice) == choice
    with pytest.raises(UnknownProfile):
        policy().wish_for("slow")


@pytest.mark.parametrize("choice", CHOICES)
def test_limits_can_forbid_rules_and_targets_or_every_override(choice: Any) -> None:
    only_profiles = policy(limits={"overrides": "profiles"})
    assert only_profiles.wish_for("exact") == NeverRule()
    assert only_profiles.wish_for("sure") == TargetChoice(target=SURE)
    with pytest.raises(OverrideForbidden):
        only_profiles.wish_for(choice)
    none = policy(limits={"overrides": "none"})
    for each in ("exact", choice):
        with pytest.raises(OverrideForbidden):
            none.wish_for(each)
    assert none.wish_for(None) == NeverRule()


@pytest.mark.parametrize("limits", [{}, {"min_layer": 1}, {"max_layer": 4}])
def test_rule_that_is_within_the_limits_is_taken_as_it_is(limits: dict[str, Any]) -> None:
    """Caches are keyed by the rule object."""
    assert Limits(**limits).applied_to(FAST) is FAST


def test_limits_bound_every_rule() -> None:
    limits = Limits(min_layer=2, max_layer=3)
    assert limits.applied_to(FAST) == EntropyRule(threshold=0.4, min_layer=2, max_layer=3)
    choice = ConfidenceRule(threshold=0.9, min_layer=3, max_layer=6)
    assert limits.applied_to(choice) == ConfidenceRule(threshold=0.9, min_layer=3, max_layer=3)


@pytest.mark.parametrize(
    ("choice", "limits"),
    [
        (LayerRule(layer=2), {"min_layer": 3}),
        (LayerRule(layer=1), {"min_layer": 2, "max_layer": 3}),
        (LayerRule(layer=4), {"min_layer": 2, "max_layer": 3}),
        (NeverRule(max_layer=1), {"min_layer": 2}),
        (NeverRule(min_layer=4), {"max_layer": 3}),
    ],
)
def test_a_choice_outside_the_limits_is_refused(choice: Any, limits: dict[str, int]) -> None:
    with pytest.raises(OverrideForbidden):
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
        *({"audit": {"share": share}} for share in (-0.1, 1.1, "1", float("nan"))),
        *({"audit": {"max_queue_ms": most}} for most in (0, float("inf"))),
        {"audit": {"rate": 1}},
        {"guard": {"on_broken_promise": "stop"}},
        *({"guard": {"delta": delta}} for delta in (0, 0.5, 5)),
        *(
            {"guard": {"webhook": url}}
            for url in (
                "ftp://example.com",
                "example.com",
                "http://",
                "http://[1",
                "http://a b.example.com",
                "http://example.com:99999",
                "http://example.com/\n",
                "http://example.com/" + 2048 * "a",
                "http://user:secret@example.com",
            )
        ),
    ],
)
def test_a_document_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        policy(**fields)
    (field,) = fields
    assert all(error["loc"][0] == field for error in caught.value.errors() if error["loc"])


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"default": {"rule": "layer", "layer": 5}}, "default:"),
        ({"profiles": {"deep": {"rule": "never", "max_layer": 9}}}, "profiles.deep:"),
        ({"limits": {"min_layer": 9}}, "limits:"),
        ({"profiles": {"b": {"rule": "layer", "layer": 2}}, "limits": {"min_layer": 4}}, "s.b:"),
        ({"limits": {"min_layer": 3, "max_layer": 3}}, "limits:"),
        ({"profiles": {"one": {"exit": {"rule": "layer", "layer": 5}}}}, "profiles.one.exit:"),
        ({"profiles": {"one": {"flag": {"maybe": 0.5}}}}, "profiles.one.flag:"),
        ({"profiles": {"one": {"windows": {"combine": "any"}}}}, "one.windows.combine:"),
    ],
)
def test_a_policy_is_checked_against_the_model_and_the_place_is_named(
    fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(InvalidRule, match=place):
        policy(**fields).check(two_labels((2, 4, 6)))


def test_a_profile_without_an_exit_leaves_as_the_default_does() -> None:
    flag = {"flag": {"yes": 0.5}}
    assert policy(default="fast", profiles=PROFILES | {"one": flag}).wish_for("one") == FAST
    assert policy(default="one", profiles={"one": flag}).wish_for(None) == NeverRule()
    own = policy(profiles={"one": {"exit": PROFILES["fast"], **flag}})
    assert own.wish_for("one") == own.wishes["one"] == FAST
    assert own.settings_for("one").flag == {"yes": 0.5}
    assert policy(default="one", profiles={"one": flag}).settings_for(None).flag == {"yes": 0.5}
    assert own.settings_for(None).flag is own.settings_for(NeverRule()).flag is None


@pytest.mark.parametrize(
    "document",
    [
        {"default": "fast", "profiles": PROFILES},
        {
            "default": {"target": {"max_ms": 5, "certified": True}},
            "profiles": {"sure": PROFILES["sure"]},
        },
        {"profiles": {"one": {"exit": PROFILES["fast"], "flag": {"yes": 0.5}}}},
        {
            "audit": {"share": 0, "max_queue_ms": 5},
            "guard": {"on_broken_promise": "safer", "delta": 0.1, "webhook": "https://a.example/"},
        },
    ],
)
def test_what_is_stored_is_read_as_it_was_written(document: dict[str, Any]) -> None:
    written = Policy.model_validate(document)
    assert Policy.model_validate_json(written.model_dump_json()) == written
    assert written.model_dump(include=set(document), exclude_none=True) == document


def test_documents_that_were_stored_before_are_written_as_they_were() -> None:
    """Replicas compare hashes of the document, so not a byte may differ."""
    written = policy(
        default="fast", audit={"share": 0.01}, guard={"on_broken_promise": "alert"}
    ).model_dump_json()
    assert written == policy(default="fast").model_dump_json()
    new = ("flag", "windows", "unchecked", "detectors", "audit", "guard", "overload", "degrade")
    assert not any(name in written for name in new)
