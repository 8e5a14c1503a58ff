"""What a policy's profiles are in a report."""

import pytest

from models.evaluation.costs import MS, TimeCost
from models.evaluation.points import served_profiles
from serve.classifier.exit_costs import ExitCosts
from serve.policy.limits import Limits
from serve.policy.target import Target, TargetChoice
from serve.rules import ExitRule, LayerRule, NeverRule, PatienceRule
from tests.support.recordings import analysed, noisy

# At layers 1, 2 and 4: a layer takes 2 ms.
TIMED = {MS: TimeCost(ExitCosts((0.002, 0.002, 0.004), 0.0, 0.0))}


def served(timed: bool = True, **subject: object) -> dict[str, ExitRule]:
    seen = analysed(noisy("single_label"), **subject)
    profiles = served_profiles(seen.subject, seen.recorded, TIMED if timed else {})
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
)  # fmt: skip
def test_targets_become_what_the_server_would_make_of_them(
    target: dict[str, float], rule: LayerRule | NeverRule
) -> None:
    wish = TargetChoice(target=Target.model_validate(target))
    assert served(profiles={"wish": wish}) == {"wish": rule}


def test_rules_are_held_within_the_policys_limits() -> None:
    limited = served(profiles={"quick": PatienceRule(patience=1)}, limits=Limits(min_layer=2))
    assert limited["quick"] == PatienceRule(patience=1, min_layer=2)


def test_without_times_only_rules_are_known() -> None:
    target = TargetChoice(target=Target(max_ms=3.0))
    profiles = {"quick": PatienceRule(patience=1), "wish": target}
    assert served(timed=False, profiles=profiles).keys() == {"quick"}
