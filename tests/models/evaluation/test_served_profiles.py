"""What a policy's profiles are in a report."""

from dataclasses import replace

import numpy as np
import pytest

from models.evaluation.costs import LAYERS, MS, Cost
from models.evaluation.observation import Observation
from models.evaluation.served_profiles import ServedProfile, served_profiles
from serve.policy.limits import Limits
from serve.policy.target import Target, TargetChoice
from serve.rules import LayerRule, NeverRule, PatienceRule
from tests.support.observations import noisy, observed


def timed(**subject: object) -> Observation:
    """Return an observation at layers 1, 2 and 4 in which a layer takes 2 ms."""
    seen = observed(noisy("single_label"), **subject)
    layers = seen.costs[LAYERS]
    return replace(
        seen, costs={LAYERS: layers, MS: Cost(2 * layers.run, np.zeros_like(layers.run))}
    )


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
    assert served_profiles(timed(profiles={"wish": wish})) == {"wish": ServedProfile(rule)}


def test_rules_are_held_within_the_policys_limits() -> None:
    limited = timed(profiles={"quick": PatienceRule(patience=1)}, limits=Limits(min_layer=2))
    assert served_profiles(limited)["quick"].rule == PatienceRule(patience=1, min_layer=2)


def test_without_times_only_rules_are_known() -> None:
    target = TargetChoice(target=Target(max_ms=3.0))
    profiles = {"quick": PatienceRule(patience=1), "wish": target}
    assert served_profiles(observed(noisy("single_label"), profiles=profiles)).keys() == {"quick"}
