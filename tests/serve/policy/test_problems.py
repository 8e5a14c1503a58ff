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
    problems = checked(Policy.model_validate(document), served(certified=certified)).problems
    assert problems.get("default") == problems.get("same")
    return problems.get("default", "")


def rule(name: str, **fields: Any) -> dict[str, Any]:
    return {"rule": name, **fields}


def target(**bounds: Any) -> dict[str, Any]:
    return {"target": bounds}


def layers(low: int | None = None, high: int | None = None) -> dict[str, int]:
    given = {"min_layer": low, "max_layer": high}
    return {name: layer for name, layer in given.items() if layer}


SURE, ENTROPY = target(max_disagreement=0.01), rule("entropy", threshold=0.2)
# Rounded, as people write it: not quite ln(labels).
LARGEST = math.floor(math.log(len(LABELS)) * 1e4) / 1e4
FIRST, SECOND = "all leave at layer 1", "all leave at layer 2"
LAST, IDLE = "lets no text leave before layer 4", "every text runs in full, which is fast enough"


@pytest.mark.parametrize(
    ("default", "limits", "said"),
    [
        (SURE, layers(2), "has become"),
        (SURE, layers(2), "min_layer 2, where it needs 1 or less"),
        (target(max_loss=0.02), layers(4), "min_layer 4, where it needs 1 or less"),
        (target(max_disagreement=0.01, certified=False), layers(3), "where it needs 1 or less"),
        (target(max_layers=2.5), layers(2), "min_layer 2, where"),
        (target(max_layers=3.5), layers(None, 3), "max_layer 3, where it needs 4 or more"),
        (target(max_disagreement=0.001), {}, "in full: no certified rule loses as little"),
        (target(max_layers=4), {}, IDLE),
        (target(speedup=1), layers(2), IDLE),
        (target(max_ms=400), {}, IDLE),
        (NEVER, layers(None, 3), "every text leaves at layer 3"),
        ({**NEVER, "min_layer": 2}, layers(None, 3), "every text leaves at layer 3"),
        (ENTROPY, layers(4), LAST),
        (ENTROPY, layers(None, 1), "with the limits' max_layer 1"),
        ({**ENTROPY, "max_layer": 2}, layers(2), "lets no text leave before layer 2"),
        ({**ENTROPY, "min_layer": 4}, {}, LAST),
        (rule("patience", patience=9), {}, LAST),
        (rule("patience", patience=2), layers(None, 3), "lets no text leave before layer 3"),
        (rule("confident_patience", patience=4, threshold=0.2), {}, LAST),
        (rule("confident_patience", patience=3, threshold=1), {}, "all leave at layer 3"),
        (rule("confident_patience", patience=2, threshold=[1, 0, 1, 0]), {}, LAST),
        (rule("voting", votes=4), {}, LAST),
        (rule("voting", votes=1), {}, FIRST),
        (rule("voting", votes=5, weights=[1, 5, 1, 1]), {}, SECOND),
        (rule("voting", share=1.4, exponent=0.5), layers(None, 2), "before layer 2"),
        (rule("voting", share=1, exponent=2), layers(2), "before layer 4"),
        (rule("entropy", threshold=1.2), layers(2), 'say {"rule":"layer","layer":2}'),
        (rule("entropy", threshold=[2, 0.2, 0.2, 0]), {}, FIRST),
        (rule("entropy", threshold=[0, 2, 2, 0]), {}, SECOND),
        (rule("entropy", threshold=LARGEST), {}, FIRST),
        (rule("entropy", threshold=0), {}, LAST),
        (rule("normalized_entropy", threshold=1), {}, FIRST),
        (rule("normalized_entropy", threshold=0), {}, LAST),
        (rule("confidence", threshold=0.01), {}, "holds no text back"),
        (rule("confidence", threshold=1), {}, LAST),
        (rule("margin", threshold=[1, 0, 1, 1]), {}, SECOND),
        (rule("margin", threshold=[0, 1, 1, 0]), layers(2), LAST),
        (rule("classes", thresholds=dict.fromkeys(LABELS, 0.1)), {}, FIRST),
        (rule("classes", thresholds={LABELS[0]: 1}), {}, LAST),
        (rule("decision", leave_above={LABELS[0]: 0}), {}, FIRST),
        (rule("decision", leave_above=dict.fromkeys(LABELS, 1 / len(LABELS))), {}, FIRST),
        (rule("decision", leave_above={LABELS[0]: 0.8}, leave_below={LABELS[0]: 0.8}), {}, FIRST),
        (rule("decision", leave_above={LABELS[0]: 1}), {}, LAST),
        (rule("decision", leave_below={LABELS[0]: 0, LABELS[1]: 1}), {}, LAST),
        # What is as it says has no problem.
        (SURE, layers(1, 4), ""),
        (target(max_disagreement=0), layers(2), ""),
        (target(max_ms=390), layers(2), ""),
        (NEVER, layers(3), ""),
        (ENTROPY, layers(2, 3), ""),
        (rule("entropy", threshold=0.99 * LARGEST), {}, ""),
        (rule("entropy", threshold=[0, 0.2, 2, 0]), {}, ""),
        (rule("confidence", threshold=0.9999), {}, ""),
        (rule("margin", threshold=0.01), {}, ""),
        (rule("confident_patience", patience=3, threshold=[1, 1, 0.2, 1]), {}, ""),
        (rule("classes", thresholds={LABELS[0]: 0}), {}, ""),
        (rule("decision", leave_above={LABELS[0]: 0.98}), {}, ""),
        (rule("decision", leave_below={LABELS[0]: 0.01}), {}, ""),
        (rule("voting", votes=2, weights=[1, 1, 2, 2]), {}, ""),
        (rule("layer", layer=3), layers(2, 3), ""),
        (rule("patience", patience=2), layers(2), ""),
    ],
)
def test_a_wish_that_becomes_another_is_named_with_what_would_keep_it(
    default: Any, limits: dict[str, int], said: str
) -> None:
    found = problem(default, limits)
    assert said in found if said else not found


def test_what_a_head_has_learned_is_an_error_from_0_to_1() -> None:
    traits = Traits((1, 2), LABELS, learned=True)
    rules = [EXIT_RULE.validate_python(rule("learned", threshold=t)) for t in (0, 0.1, 1)]
    assert [each.surely_leave(traits)[0] for each in rules] == [False, None, True]


def test_of_two_labels_an_odd_number_of_votes_has_a_winner() -> None:
    votes = EXIT_RULE.validate_python(rule("voting", votes=2))
    assert votes.surely_leave(Traits((1, 2, 3), ("no", "yes"))) == (False, None, True)
    assert votes.surely_leave(Traits((1, 2, 3), LABELS)) == (False, None, None)


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
    assert problem(SURE, certified=False).startswith("every text runs in full: No rule of tiny is")
    assert problem(target(max_layers=2.5), certified=False) == ""


def test_a_bound_on_right_answers_without_labels_says_why_it_runs_in_full() -> None:
    policy = Policy.model_validate({"default": target(max_loss=0.02)})
    applied = AppliedPolicy(policy, served(**without_labels(labelled())))
    asked = applied.exit_for(TargetChoice(target=Target(max_loss=0.01))).resolution
    by_default = applied.exit_for(None).resolution
    sure = applied.exit_for(TargetChoice(target=Target(max_disagreement=0.01))).resolution
    for said in (applied.problems["default"], asked.report["note"], by_default.report["note"]):
        assert "max_loss is about right answers" in said
    assert "note" not in sure.report


@pytest.mark.parametrize(
    ("bounds", "limits", "needed"),
    [
        ({"max_disagreement": 0.01}, layers(None, 3), "max_layer 3, where it needs 4 or more"),
        ({"max_layers": 2}, layers(3), "min_layer 3, where it needs 1 or less"),
    ],
)
def test_a_target_that_the_limits_put_out_of_reach_is_refused_naming_them(
    bounds: dict[str, float], limits: dict[str, int], needed: str
) -> None:
    with pytest.raises(TargetOutOfReach, match=needed):
        problem(target(**bounds), limits)
