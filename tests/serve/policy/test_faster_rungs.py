"""Where requests go under overload: never past any limit, and some never at all."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from serve.errors import InvalidRule
from serve.policy.applied import AppliedPolicy, checked
from serve.policy.document import ExitChoice, Policy
from serve.policy.faster_rungs import FasterRungs, Path
from serve.policy.target import Degrade
from tests.serve.support.ladders import (
    BOLD,
    EITHER,
    NEVER,
    SAFE,
    STRICT,
    decisions,
    served,
)

CHOICE = TypeAdapter[ExitChoice](ExitChoice)
DEGRADE = TypeAdapter[Degrade](Degrade)
SURE = {"target": {"max_disagreement": 0.005}}
FLAGGED = {"exit": SURE, "flag": {"negative": 0.5}}
OVERLOAD = {"queue_ms": 100, "target": {"max_disagreement": 0.03}}


def applied(ladder: Any = None, **policy: Any) -> AppliedPolicy:
    whole = {"default": SURE, "overload": OVERLOAD, **policy}
    return checked(Policy.model_validate(whole), ladder or served())


def path(policy: AppliedPolicy, choice: Any = None, degrade: Any = None) -> Path | None:
    own = None if choice is None else CHOICE.validate_python(choice)
    said = None if degrade is None else DEGRADE.validate_python(degrade)
    assert policy.faster is not None
    return policy.faster.path(policy.exit_for(own), own, said)


def rules(found: Path | None) -> list[dict[str, Any]]:
    """Return the rules of a path from level 0 on."""
    assert found is not None
    levels = range(len(found.faster) + 1)
    return [found.at(n).rule.rule.model_dump(exclude_none=True) for n in levels]


def thresholds(found: Path | None) -> list[float]:
    return [rule["threshold"] for rule in rules(found)]


def test_the_default_moves_rung_by_rung_to_the_operators_limit() -> None:
    policy = applied()
    found = path(policy)
    assert thresholds(found) == [each["threshold"] for each in (STRICT, SAFE, BOLD)]
    assert found is not None
    assert found.at(99) == found.at(2)  # no further, whatever the level is
    assert [found.at(n).moved for n in range(3)] == [False, True, True]
    assert policy.faster is not None
    assert policy.faster.most == 2
    moved = found.at(1).resolution
    assert moved is not None
    assert moved.certificate is not None
    assert moved.certificate.epsilon == 0.01  # of the rung that is used


@pytest.mark.parametrize(
    ("profile", "last"),
    [
        ({"exit": SURE}, BOLD),
        ({"exit": SURE, "degrade": {"max_disagreement": 0.01}}, SAFE),
        ({"exit": SURE, "degrade": {"max_disagreement": 0.2}}, BOLD),  # not past the operator's
        ({"exit": SURE, "degrade": {"max_loss": 0.005}}, SAFE),
        ({"target": {"max_disagreement": 0.005}}, BOLD),
        ({"target": {"speedup": 1.0}}, BOLD),  # has no limit but the operator's
    ],
)
def test_a_profile_says_how_far(profile: dict[str, Any], last: dict[str, Any]) -> None:
    policy = applied(profiles={"one": profile})
    assert rules(path(policy, "one"))[-1] == last


@pytest.mark.parametrize(
    ("choice", "degrade", "last"),
    [
        (None, {"max_disagreement": 0.01}, SAFE),
        (None, {"max_disagreement": 0.4}, BOLD),
        (SURE, {"max_disagreement": 0.01}, SAFE),
        (SURE, {"max_disagreement": 0.4}, BOLD),
        ("narrow", {"max_disagreement": 0.4}, SAFE),
        (SURE, {"max_disagreement": 0.0}, STRICT),
    ],
)
def test_a_request_narrows_it(choice: Any, degrade: Any, last: dict[str, Any]) -> None:
    narrow = {"exit": SURE, "degrade": {"max_disagreement": 0.01}}
    found = path(applied(profiles={"narrow": narrow}), choice, degrade)
    assert thresholds(found)[-1] == last["threshold"]


@pytest.mark.parametrize(
    ("choice", "degrade"),
    [
        (SURE, None),  # a request's own target is its limit
        (SAFE, None),
        (NEVER, None),
        ("exact", None),
        ("lossless", None),
        ("lossless", {"max_disagreement": 0.03}),
        ("kept", None),
        ("kept", {"max_disagreement": 0.03}),
        ("rule", None),
        ("decided", None),
        ("decision", None),
        (None, False),
        ({"target": {"max_disagreement": 0}}, {"max_disagreement": 0.03}),
    ],
)
def test_some_never_move(choice: Any, degrade: Any) -> None:
    flag = {"flag": {"negative": 0.8}}
    profiles = {
        "exact": NEVER,
        "lossless": {"target": {"max_disagreement": 0}},
        "kept": {"exit": SURE, "degrade": False},
        "rule": SAFE,
        "decided": {"exit": {"target": {"max_missed": 0.01}}, **flag},
        "decision": {"exit": EITHER, **flag},
    }
    policy = applied(served(decisions=decisions()), profiles=profiles)
    assert path(policy, choice, degrade) is None


def test_where_no_profile_may_move_requests_move_as_far_as_they_say() -> None:
    at_the_limit = applied(default={"target": {"max_disagreement": 0.03}}, profiles={"f": FLAGGED})
    assert at_the_limit.faster
    own = path(at_the_limit, SURE, {"max_disagreement": 0.03})
    assert own
    assert len(own.faster) > 1
    assert at_the_limit.faster.most >= len(own.faster)
    assert path(at_the_limit, "f") is None


@pytest.mark.parametrize(
    ("ladder", "policy", "why"),
    [
        (served(), {"overload": {**OVERLOAD, "target": {"max_disagreement": 0.001}}}, "as little"),
        (served(certified=False), {}, "run `offramp calibrate`"),
        (served(), {"limits": {"min_layer": 3}}, "min_layer 3"),
        *(
            (served(), {"default": stays, "limits": {"overrides": "profiles"}}, "no request could")
            for stays in ({"rule": "never"}, {"target": {"max_disagreement": 0.03}})
        ),
        (
            served(),
            {"default": "guard", "profiles": {"guard": FLAGGED}, "limits": {"overrides": "none"}},
            "no request could",
        ),
    ],
)
def test_an_overload_that_could_move_nothing_is_refused(
    ladder: Any, policy: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRule, match=r"overload(\.target)?: .*" + why):
        applied(ladder, **policy)


@pytest.mark.parametrize(
    "overload",
    [
        {"queue_ms": 0, "target": {"max_disagreement": 0.03}},
        {"queue_ms": 100},
        {"queue_ms": 100, "target": {}},
        {"queue_ms": 100, "target": {"max_disagreement": 3}},
        {"queue_ms": 100, "target": {"speedup": 2}},
        {"queue_ms": 100, "target": {"max_loss": 0.03}, "deadline": "drop"},
    ],
)
def test_what_says_no_limit_is_refused(overload: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="overload"):
        Policy.model_validate({"default": SURE, "overload": overload})


@pytest.mark.parametrize("said", [True, 0, 1, "no", None, {"max_ms": 3}, {}])
def test_degrade_is_false_or_a_limit(said: Any) -> None:
    with pytest.raises(ValidationError):
        DEGRADE.validate_python(said)


def test_a_policy_without_overload_reads_as_before() -> None:
    plain = Policy.model_validate({"default": SURE, "profiles": {"one": {"exit": SURE}}})
    assert "overload" not in plain.model_dump_json()
    assert "degrade" not in plain.model_dump_json()
    assert AppliedPolicy(plain, served()).faster is None
    assert isinstance(applied().faster, FasterRungs)
