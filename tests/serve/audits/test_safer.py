from typing import Any

import pytest

from serve.audits.guardrail import safer_policy
from serve.policy.applied import AppliedPolicy
from serve.policy.document import Policy
from serve.policy.ladder import Loss
from tests.serve.support.ladders import DECIDED, NEVER, decisions, served


def target(**bounds: Any) -> dict[str, Any]:
    return {"target": bounds}


def safer(policy: dict[str, Any], profile: str, loss: Loss, epsilon: float) -> dict[str, Any]:
    """Return the JSON of what the profile, or the default, has become."""
    made = safer_policy(
        Policy.model_validate(policy), profile, loss, epsilon, served(decisions=decisions())
    )
    found = made.model_dump(mode="json", exclude_none=True)
    return found["profiles"].get(profile) or found["default"]


def test_profile_goes_down_the_ladder_and_ends_at_full_depth() -> None:
    exit_ = target(max_disagreement=0.03)
    steps = []
    for epsilon in (0.03, 0.01, 0.005):
        policy = {"default": NEVER, "profiles": {"fast": exit_}}
        exit_ = safer(policy, "fast", "disagreement", epsilon)
        steps.append(exit_)
    assert steps == [target(max_disagreement=0.01), target(max_disagreement=0.005), NEVER]


@pytest.mark.parametrize(
    "wish",
    [
        target(max_disagreement=0.03),
        target(max_disagreement=0.02),
        target(max_disagreement=0.03, max_layers=3),
        target(speedup=1.5, certified=True),
        target(max_disagreement=0.03, max_loss=0.02),
    ],
)
def test_every_step_runs_more_layers_until_none_leaves_early(wish: dict[str, Any]) -> None:
    ladder = served()
    policy = Policy.model_validate({"default": wish})
    layers = []
    while (found := AppliedPolicy(policy, ladder).named["default"].resolution) is not None:
        layers.append(found.rung.expected_layers)
        assert found.certificate
        policy = safer_policy(
            policy, "default", "disagreement", found.rung.certificates[0].epsilon, ladder
        )
    assert policy.model_dump(mode="json", exclude_none=True)["default"] == NEVER
    assert layers == sorted(set(layers))


def test_other_bounds_on_losses_stay_and_those_on_speed_go() -> None:
    wish = target(max_disagreement=0.03, max_loss=0.02, max_ms=3.0)
    found = safer({"default": wish}, "default", "disagreement", 0.03)
    assert found == target(max_disagreement=0.01, max_loss=0.02)


def test_profile_that_the_default_names_changes() -> None:
    policy = {"default": "fast", "profiles": {"fast": target(max_disagreement=0.03)}}
    made = safer_policy(
        Policy.model_validate(policy), "default", "disagreement", 0.03, served()
    ).model_dump(mode="json", exclude_none=True)
    assert made["default"] == "fast"
    assert made["profiles"]["fast"] == target(max_disagreement=0.01)


def test_settings_of_a_profile_stay() -> None:
    settings = {"flag": DECIDED, "exit": target(max_missed=0.01, max_false_alarms=0.02)}
    policy = {"default": NEVER, "profiles": {"guard": settings}}
    found = safer(policy, "guard", "missed", 0.01)
    assert found == {"flag": DECIDED, "exit": NEVER}


def test_profile_without_an_exit_of_its_own_gets_one() -> None:
    policy = {
        "default": target(max_disagreement=0.03),
        "profiles": {"guard": {"flag": DECIDED}},
    }
    found = safer(policy, "guard", "disagreement", 0.03)
    assert found == {"flag": DECIDED, "exit": target(max_disagreement=0.01)}


def test_nothing_certified_under_the_limits_means_never() -> None:
    policy = {"default": target(max_disagreement=0.03), "limits": {"min_layer": 2}}
    assert safer(policy, "default", "disagreement", 0.03) == NEVER
