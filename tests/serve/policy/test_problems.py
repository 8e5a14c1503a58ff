"""What a wish has become instead of what it says: named, with what would keep it."""

import math
from typing import Any

import pytest

from serve.errors import TargetOutOfReach
from serve.policy.applied import AppliedPolicy, checked
from serve.policy.document import Policy
from serve.policy.target import Target, TargetChoice
from serve.rules import EXIT_RULE
from serve.rules.traits import Task, Traits
from tests.serve.support.ladders import NEVER, served, without_labels
from tests.serve.support.ladders import ladder as labelled
from tests.support.tiny import LABELS


def problem(default: Any, limits: dict[str, int] | None = None, certified: bool = True) -> str:
    """Return the problem of a default, which a profile of the same wish must have too."""
    document = {"default": default, "profiles": {"same": default}, "limits": limits or {}}
    policy, ladder = Policy.model_validate(document), served(certified=certified)
    checked(policy, ladder)
    problems = AppliedPolicy(policy, ladder).problems
    assert problems.get("default") == problems.get("same")
    return problems.get("default", "")


SURE = {"target": {"max_disagreement": 0.01}}
ENTROPY = {"rule": "entropy", "threshold": 0.2}
# Rounded, as people write it: not quite ln(labels).
LARGEST = math.floor(math.log(len(LABELS)) * 1e4) / 1e4


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
        ({"rule": "entropy", "threshold": [2, 0.2, 0.2, 0]}, {}, "all leave at layer 1"),
        ({"rule": "entropy", "threshold": [0, 2, 2, 0]}, {}, "all leave at layer 2"),
        ({"rule": "normalized_entropy", "threshold": 20}, {}, "holds no text back"),
        ({"rule": "confidence", "threshold": 0.01}, {}, "holds no text back"),
        ({"rule": "entropy", "threshold": LARGEST}, {}, "all leave at layer 1"),
        ({"rule": "normalized_entropy", "threshold": 1}, {}, "all leave at layer 1"),
        ({"rule": "margin", "threshold": 0}, {}, "all leave at layer 1"),
        ({"rule": "margin", "threshold": [1, 0, 1, 1]}, {}, "all leave at layer 2"),
        ({"rule": "confident_patience", "threshold": 1, "patience": 3}, {}, "leave at layer 3"),
        ({"rule": "classes", "thresholds": dict.fromkeys(LABELS, 0.1)}, {}, "leave at layer 1"),
        ({"rule": "decision", "leave_above": {LABELS[0]: 0}}, {}, "all leave at layer 1"),
        (
            {"rule": "decision", "leave_above": dict.fromkeys(LABELS, 1 / len(LABELS))},
            {},
            "all leave at layer 1",
        ),
        (
            {"rule": "decision", "leave_above": {LABELS[0]: 0.8}, "leave_below": {LABELS[0]: 0.8}},
            {},
            "all leave at layer 1",
        ),
        ({"rule": "decision", "leave_above": {LABELS[0]: 1}}, {}, "no text leave before layer 4"),
        (
            {"rule": "decision", "leave_below": {LABELS[0]: 0, LABELS[1]: 1}},
            {},
            "no text leave before layer 4",
        ),
        ({"rule": "voting", "votes": 1}, {}, "all leave at layer 1"),
        ({"rule": "voting", "votes": 5, "weights": [1, 5, 1, 1]}, {}, "all leave at layer 2"),
        ({"rule": "entropy", "threshold": 0}, {}, "lets no text leave before layer 4"),
        ({"rule": "normalized_entropy", "threshold": 0}, {}, "lets no text leave before layer 4"),
        ({"rule": "confidence", "threshold": 1}, {}, "lets no text leave before layer 4"),
        ({"rule": "margin", "threshold": 1}, {}, "lets no text leave before layer 4"),
        ({"rule": "margin", "threshold": [0, 1, 1, 0]}, {"min_layer": 2}, "before layer 4"),
        ({"rule": "classes", "thresholds": {LABELS[0]: 1}}, {}, "no text leave before layer 4"),
        ({"rule": "voting", "share": 1, "exponent": 2}, {"min_layer": 2}, "before layer 4"),
        (
            {"rule": "confident_patience", "threshold": [1, 0, 1, 0], "patience": 2},
            {},
            "lets no text leave before layer 4",
        ),
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
        ({"rule": "entropy", "threshold": 0.99 * LARGEST}, {}),
        ({"rule": "entropy", "threshold": [0, 0.2, 2, 0]}, {}),
        ({"rule": "confidence", "threshold": 0.9999}, {}),
        ({"rule": "margin", "threshold": 0.01}, {}),
        ({"rule": "confident_patience", "threshold": [1, 1, 0.2, 1], "patience": 3}, {}),
        ({"rule": "classes", "thresholds": {LABELS[0]: 0}}, {}),
        ({"rule": "decision", "leave_above": {LABELS[0]: 0.98}}, {}),
        ({"rule": "decision", "leave_below": {LABELS[0]: 0.01}}, {}),
        ({"rule": "voting", "votes": 2, "weights": [1, 1, 2, 2]}, {}),
        ({"rule": "layer", "layer": 3}, {"min_layer": 2, "max_layer": 3}),
        ({"rule": "patience", "patience": 2}, {"min_layer": 2}),
        ({"rule": "voting", "votes": 3}, {}),
    ],
)
def test_a_wish_that_is_what_it_says_has_no_problem(default: Any, limits: dict[str, int]) -> None:
    assert problem(default, limits) == ""


def test_what_a_head_has_learned_is_an_error_from_0_to_1() -> None:
    traits = Traits((1, 2), LABELS, learned=True)
    rules = [EXIT_RULE.validate_python({"rule": "learned", "threshold": t}) for t in (0, 0.1, 1)]
    assert [rule.surely_leave(traits)[0] for rule in rules] == [False, None, True]


def test_of_two_labels_an_odd_number_of_votes_has_a_winner() -> None:
    rule = EXIT_RULE.validate_python({"rule": "voting", "votes": 2})
    assert rule.surely_leave(Traits((1, 2, 3), ("no", "yes"))) == (False, None, True)
    assert rule.surely_leave(Traits((1, 2, 3), LABELS)) == (False, None, None)


@pytest.mark.parametrize(
    ("flag", "task", "said"),
    [
        ({"no": 0}, "single_label", "flags every text"),
        ({"no": 0.5, "yes": 0.5}, "single_label", "flags every text"),
        ({"no": 0.5, "yes": 0.5}, "multi_label", ""),
        ({"no": 0.5, "yes": 0.6}, "single_label", ""),
        ({"no": 0.2, "yes": 0}, "multi_label", "flags every text"),
        ({"no": 0.5, "yes": 1}, "single_label", "'yes' from 1 on flags next to no text"),
        ({"no": {"flag": 0.5, "defer": 0}}, "multi_label", "defers every text that it does not"),
        ({"no": {"flag": 1, "defer": 0.2}}, "multi_label", "'no' from 1 on flags next to no text"),
        ({"no": {"flag": 0.5, "defer": 0.2}}, "single_label", ""),
        ({"no": 0}, "token", ""),
        ({"no": 1}, "token", "'no' from 1 on flags next to no text"),
    ],
)
def test_a_flag_that_does_not_depend_on_the_text_is_named(
    flag: dict[str, Any], task: Task, said: str
) -> None:
    profiles = {"guard": {"exit": {"rule": "layer", "layer": 1}, "flag": flag}}
    policy = Policy.model_validate({"default": "guard", "profiles": profiles})
    ladder = served(certified=False, traits=Traits((1, 2), ("no", "yes"), task))
    problems = AppliedPolicy(policy, ladder).problems
    assert problems.get("default") == problems.get("guard")
    assert said in problems.get("guard", "") if said else not problems


def test_without_certificates_a_target_on_quality_says_that_it_saves_nothing() -> None:
    assert problem(SURE, certified=False) == (
        "every text runs in full: No rule of tiny is certified: run `offramp calibrate`"
    )
    assert problem({"target": {"max_layers": 2.5}}, certified=False) == ""


def test_a_bound_on_right_answers_without_labels_says_why_it_runs_in_full() -> None:
    ladder = served(**without_labels(labelled()))
    applied = AppliedPolicy(
        Policy.model_validate({"default": {"target": {"max_loss": 0.02}}}), ladder
    )
    asked = applied.exit_for(TargetChoice(target=Target(max_loss=0.01))).resolution
    assert asked
    by_default = applied.exit_for(None).resolution
    assert by_default
    for said in (applied.problems["default"], asked.report["note"], by_default.report["note"]):
        assert said.startswith("every text runs in full: max_loss is about right answers, and")
        assert said.endswith("Certify with labelled ones, or ask for max_disagreement")
    sure = applied.exit_for(TargetChoice(target=Target(max_disagreement=0.01))).resolution
    assert sure
    assert "note" not in sure.report


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
