"""What a wish has become instead of what it says: named, with what would keep it."""

from typing import Any

import pytest

from serve.errors import TargetOutOfReach
from serve.policy.applied import AppliedPolicy, check_policy
from serve.policy.document import Policy
from tests.serve.support.ladders import NEVER, served


def problem(default: Any, limits: dict[str, int] | None = None, certified: bool = True) -> str:
    """Return the problem of a default, which a profile of the same wish must have too."""
    document = {"default": default, "profiles": {"same": default}, "limits": limits or {}}
    policy, ladder = Policy.model_validate(document), served(certified=certified)
    check_policy(policy, ladder)
    problems = AppliedPolicy(policy, ladder).problems
    assert problems.get("default") == problems.get("same")
    return problems.get("default", "")


SURE = {"target": {"max_disagreement": 0.01}}
ENTROPY = {"rule": "entropy", "threshold": 0.2}


@pytest.mark.parametrize(
    ("default", "limits", "said"),
    [
        (
            SURE,
            {"min_layer": 2},
            'has become {"rule":"never","min_layer":2} with 4 layers per text, not '
            '{"rule":"entropy","threshold":0.2} with 2.8; the policy\'s limits change '
            '{"rule":"entropy","threshold":0.2}: min_layer 2, where it needs 1 or less',
        ),
        ({"target": {"max_loss": 0.02}}, {"min_layer": 4}, "min_layer 4, where it needs 1 or less"),
        (
            {"target": {"max_disagreement": 0.01, "certified": False}},
            {"min_layer": 3},
            "min_layer 3, where it needs 1 or less",
        ),
        ({"target": {"max_layers": 2.5}}, {"min_layer": 2}, "has become  ... min_layer 2, where"),
        ({"target": {"max_layers": 3.5}}, {"max_layer": 3}, "max_layer 3, where it needs 4 or"),
        ({"target": {"max_disagreement": 0.001}}, {}, "in full: no certified rule loses as little"),
        ({"target": {"max_layers": 4}}, {}, "every text runs in full, which is fast enough"),
        ({"target": {"speedup": 1}}, {"min_layer": 2}, "which is fast enough"),
        ({"target": {"max_ms": 400}}, {}, "which is fast enough"),
        (NEVER, {"max_layer": 3}, "with the limits' max_layer 3, every text leaves at layer 3"),
        ({**NEVER, "min_layer": 2}, {"max_layer": 3}, "every text leaves at layer 3"),
        (
            ENTROPY,
            {"min_layer": 4},
            "min_layer 4,  ...  lets no text leave before layer 4, where all",
        ),
        (
            ENTROPY,
            {"max_layer": 1},
            "max_layer 1,  ...  lets no text leave before layer 1, where all",
        ),
        ({**ENTROPY, "max_layer": 2}, {"min_layer": 2}, "no text leave before layer 2, where all"),
        ({**ENTROPY, "min_layer": 4}, {}, "lets no text leave before layer 4, where all must"),
        ({"rule": "patience", "patience": 9}, {}, "lets no text leave before layer 4"),
        ({"rule": "patience", "patience": 2}, {"max_layer": 3}, "no text leave before layer 3"),
        (
            {"rule": "confident_patience", "patience": 4, "threshold": 0.2},
            {},
            "lets no text leave before layer 4",
        ),
        ({"rule": "voting", "votes": 4}, {}, "lets no text leave before layer 4"),
        ({"rule": "voting", "share": 1.4, "exponent": 0.5}, {"max_layer": 2}, "before layer 2"),
        (
            {"rule": "entropy", "threshold": 1.2},
            {"min_layer": 2},
            'all leave at layer 2; if that is what you want, say {"rule":"layer","layer":2}',
        ),
        ({"rule": "entropy", "threshold": [2, 2, 2, 0]}, {}, "holds no text back"),
        ({"rule": "normalized_entropy", "threshold": 20}, {}, "holds no text back"),
        ({"rule": "confidence", "threshold": 0.01}, {}, "holds no text back"),
    ],
)
def test_a_wish_that_becomes_another_is_named_with_what_would_keep_it(
    default: Any, limits: dict[str, int], said: str
) -> None:
    found = problem(default, limits)
    assert all(part in found for part in said.split(" ... "))


@pytest.mark.parametrize(
    ("default", "limits"),
    [
        (SURE, {}),
        (SURE, {"min_layer": 1, "max_layer": 4}),
        ({"target": {"max_disagreement": 0}}, {"min_layer": 2}),
        ({"target": {"max_ms": 390}}, {"min_layer": 2}),
        (NEVER, {"min_layer": 3}),
        (ENTROPY, {"min_layer": 2, "max_layer": 3}),
        ({"rule": "entropy", "threshold": [0, 2, 2, 0]}, {}),
        ({"rule": "layer", "layer": 3}, {"min_layer": 2, "max_layer": 3}),
        ({"rule": "patience", "patience": 2}, {"min_layer": 2}),
        ({"rule": "voting", "votes": 3}, {}),
    ],
)
def test_a_wish_that_is_what_it_says_has_no_problem(default: Any, limits: dict[str, int]) -> None:
    assert problem(default, limits) == ""


def test_without_certificates_a_target_on_quality_says_that_it_saves_nothing() -> None:
    assert problem(SURE, certified=False) == (
        "every text runs in full: No rule of tiny is certified: run `offramp calibrate`"
    )
    assert problem({"target": {"max_layers": 2.5}}, certified=False) == ""


@pytest.mark.parametrize(
    ("target", "limits", "needed"),
    [
        ({"max_disagreement": 0.01}, {"max_layer": 3}, "max_layer 3, where it needs 4 or more"),
        ({"max_layers": 2}, {"min_layer": 3}, "min_layer 3, where it needs 1 or less"),
    ],
)
def test_a_target_that_the_limits_put_out_of_reach_is_refused_naming_them(
    target: dict[str, float], limits: dict[str, int], needed: str
) -> None:
    with pytest.raises(TargetOutOfReach, match=f"the nearest is .*; the policy's .*: {needed}"):
        problem({"target": target}, limits)
