"""Targets about decisions: which flag they are about, and what they become under it."""

from typing import Any

import pytest

from serve.errors import InvalidRule, OfframpError, TargetOutOfReach
from serve.policy.applied import AppliedPolicy, checked
from serve.policy.document import Policy
from serve.policy.resolution import ChosenExit
from serve.policy.target import Target, TargetChoice
from serve.rules import EXIT_RULE
from tests.serve.support.ladders import (
    ABOVE,
    BELOW,
    DECIDED,
    EITHER,
    NEVER,
    certificate,
    decisions,
    served,
)

WANTED = {"target": {"max_missed": 0.01, "max_false_alarms": 0.02}}
MISSED, ALARMS = certificate("missed", 0.01, 0.002), certificate("false_alarms", 0.02, 0.01)
UNDECIDED = 'No decision of the flag {"negative": 0.7} is certified, only of {"negative": 0.8}'


def applied(policy: dict[str, Any], **ladder: Any) -> AppliedPolicy:
    return checked(Policy.model_validate(policy), served(**{"decisions": decisions(), **ladder}))


def guard(flag: Any = DECIDED, **target: Any) -> dict[str, Any]:
    wish = {"target": target} if target else WANTED
    return {"default": "guard", "profiles": {"guard": {"exit": wish, "flag": flag}}}


def rule(chosen: ChosenExit) -> Any:
    return chosen.rule.rule.model_dump(mode="json", exclude_none=True)


PLAIN = applied({"default": NEVER})


@pytest.mark.parametrize(
    ("target", "expected", "certificates"),
    [
        ({"max_missed": 0.01, "max_false_alarms": 0.02}, EITHER, [MISSED, ALARMS]),
        # What a side leaves to full depth is not lost, and needs no certificate.
        ({"max_missed": 0.001, "max_false_alarms": 0.02}, ABOVE, [ALARMS]),
        ({"max_missed": 0, "max_false_alarms": 0.1}, ABOVE, [ALARMS]),
        ({"max_missed": 0.01, "max_false_alarms": 0.001}, BELOW, [MISSED]),
        ({"max_missed": 0.01}, EITHER, [MISSED, ALARMS]),
        ({"max_missed": 0.001, "max_false_alarms": 0.001}, NEVER, []),
        ({"max_missed": 0.005, "max_false_alarms": 0.02, "certified": False}, EITHER, None),
        ({"max_missed": 0.01, "max_layers": 2}, EITHER, None),
    ],
)
@pytest.mark.parametrize("flag", [DECIDED, {"negative": {"flag": 0.8, "defer": 0.1}}])
def test_a_target_becomes_the_fastest_rule_that_keeps_both_sides(
    target: Any, expected: Any, certificates: list[Any] | None, flag: Any
) -> None:
    found = applied(guard(flag, **target)).exit_for(None)
    assert rule(found) == expected
    read = guard(flag)["profiles"]["guard"]["flag"]
    policy = Policy.model_validate({"profiles": {"x": {"flag": read}}})
    own = policy.settings_for("x").flag
    asked = PLAIN.exit_for(TargetChoice(target=Target(**target)), flag=own)
    assert (rule(asked), asked.resolution) == (expected, found.resolution)
    assert found.resolution
    if certificates is not None:
        assert found.resolution.report["certificates"] == certificates


def test_full_depth_alone_is_left_where_nothing_is_certified_for_the_flag() -> None:
    found = applied(guard({"negative": 0.7}))
    assert rule(found.exit_for(None)) == NEVER
    assert UNDECIDED in found.problems["guard"]
    assert "--flag 'negative=0.7'" in found.problems["guard"]
    assert applied(guard({"negative": 0.7}), decisions=[]).problems["guard"]
    assert applied(guard(), certified=False).problems["guard"]
    assert not applied(guard()).problems


def test_a_requests_own_flag_is_the_one_that_its_profiles_target_is_about() -> None:
    found = applied(guard())
    for choice in (None, "guard"):
        assert rule(found.exit_for(choice, flag=dict(DECIDED))) == EITHER
        other = found.exit_for(choice, flag={"negative": 0.7})
        assert (rule(other), other.settings) == (NEVER, found.exit_for(None).settings)
        assert other.resolution
        assert other.resolution.report["certificates"] == []
    # A target about labels does not care.
    policy = guard() | {"default": {"target": {"max_disagreement": 0.01}}}
    assert rule(applied(policy).exit_for(None, flag={"negative": 0.7}))["rule"] == "entropy"


def test_a_request_must_name_a_flag_that_is_certified() -> None:
    choice = TargetChoice.model_validate(WANTED)
    with pytest.raises(InvalidRule):
        PLAIN.exit_for(choice)
    with pytest.raises(TargetOutOfReach, match=UNDECIDED):
        PLAIN.exit_for(choice, flag={"negative": 0.7})
    with pytest.raises(TargetOutOfReach):
        PLAIN.exit_for(TargetChoice(target=Target(max_missed=0.01, max_layers=1)), flag=DECIDED)


@pytest.mark.parametrize(
    ("policy", "place"),
    [
        ({"default": WANTED}, "default"),
        ({"profiles": {"guard": WANTED}}, "profiles.guard"),
        ({"profiles": {"guard": {"exit": WANTED, "windows": {}}}}, "profiles.guard.exit"),
        # Its exit is the default's, its flag is not.
        ({**guard(), "profiles": {**guard()["profiles"], "x": {"windows": {}}}}, "profiles.x"),
    ],
)
def test_a_policy_with_such_a_target_and_no_flag_is_refused(policy: Any, place: str) -> None:
    with pytest.raises(OfframpError, match=rf"^{place}\.target:"):
        applied(policy)


def test_limits_take_the_certificates_away_but_not_what_cannot_be_lost() -> None:
    limited = applied({**guard(), "limits": {"min_layer": 2}})
    assert rule(limited.exit_for(None))["rule"] == "never"
    assert "min_layer 2, where it needs 1 or less" in limited.problems["guard"]
    sure = applied({**guard(max_missed=0), "limits": {"min_layer": 2}}).exit_for(None)
    assert rule(sure) == {**ABOVE, "min_layer": 2}
    with pytest.raises(TargetOutOfReach):
        applied({**guard(max_missed=0), "limits": {"max_layer": 3}})


def test_a_ladder_with_rules_for_other_labels_is_refused() -> None:
    own = decisions()
    alien = EXIT_RULE.validate_python({"rule": "decision", "leave_above": {"angry": 0.9}})
    own[0]["rungs"][1]["rule"] = alien.model_dump(exclude_none=True)
    with pytest.raises(InvalidRule):
        served(decisions=own)
