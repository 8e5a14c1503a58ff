from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails

from serve.api.policy_edits import PolicyUpdate
from serve.classifier.classify_request import ClassifyRequest
from serve.policy.document import Policy
from serve.policy.rollout import Plan
from serve.policy.target import Target
from serve.validation import explain, read_share


def explained(model: type[BaseModel], document: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(document)
    return explain(caught.value)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({}, "inputs: required field is missing"),
        (3, "must be a JSON object"),
        ({"inputs": "a", "x": 1}, "x: unknown field"),
        ({"inputs": ["a", {"text": 3}]}, "inputs[1].text: must be a valid string, not 3"),
        ({"inputs": {"text": "a", "y": 1}}, "inputs.y: unknown field"),
        (
            {"inputs": "a", "exit": {"rule": "entropy", "threshold": float("nan")}},
            "exit.threshold: must be a finite number",
        ),
        (
            {"inputs": "a", "exit": {"rule": "patience", "patience": 0}},
            'exit.patience: must be 1 or more, not 0; to run the full model, say {"rule": "never"}',
        ),
        (
            {"inputs": "a", "exit": {"rule": "confidence", "threshold": [0.9, 1.5]}},
            "exit.threshold[1]: must be less than or equal to 1, not 1.5",
        ),
        (
            {"inputs": "a", "exit": {"rule": "voting", "votes": 1, "weights": 2}},
            "exit.weights: must be a list",
        ),
        (
            {"inputs": "a", "exit": {"rule": "classes", "thresholds": {"spam": 2}}},
            "exit.thresholds.spam: must be less than or equal to 1, not 2",
        ),
        (
            {"inputs": "a", "exit": {"rule": "voting", "votes": 2, "share": 1, "exponent": 1}},
            "exit: give either votes or share with exponent",
        ),
        (
            {"inputs": "a", "exit": {"rule": "x"}},
            "exit: unknown rule 'x', there are entropy, normalized_entropy, confidence, margin, "
            "patience, confident_patience, voting, learned, classes, decision, layer, never",
        ),
        ({"inputs": "a", "top_k": True}, "top_k: must be a valid integer, not true"),
        (
            {"inputs": {"input_ids": [float("nan")]}},
            "inputs.input_ids[0]: must be a valid integer, not NaN",
        ),
        (
            {"inputs": {"text": "a", "input_ids": [5]}},
            "inputs: give either text or input_ids, not both",
        ),
        (
            {"inputs": "a", "exit": "two words"},
            "exit: a name must be 1 to 64 letters, digits, '_', '-' or '.'",
        ),
        ({"inputs": "a", "exit": {}}, "exit: must have a rule"),
        ({"inputs": "a", "exit": {"profile": "fast", "x": 1}}, "exit.x: unknown field"),
    ],
)
def test_request_is_explained_by_place_and_expectation(document: Any, sentence: str) -> None:
    assert explained(ClassifyRequest, document) == sentence


A_WISH, A_NAME = "exit: must be a target such as", "exit: a name must be 1 to 64 letters"
A_TARGET = 'exit: a target is missing: say {"target": '
ENTROPY, PATIENCE = {"rule": "entropy"}, {"rule": "patience"}


@pytest.mark.parametrize(
    ("exit_choice", "sentence"),
    [
        ({**ENTROPY, "threshold": None}, "exit.threshold: must be a valid"),
        ({**PATIENCE, "patience": 10**30}, "exit.patience: must be less"),
        ({"rule": {"a": 1}}, "exit: unknown rule"),
        ({"max_disagreement": 0.01}, f'{A_TARGET}{{"max_disagreement": 0.01}}}}'),
        ({"certified": True, "max_ms": [5]}, f'{A_TARGET}{{"max_ms": ..., "certified": true}}}}'),
        ({"target": {"speedup": 2}, "max_ms": 5.0}, f'{A_TARGET}{{"max_ms": 5.0}}}}'),
        ([], A_WISH),
        (1, A_WISH),
        ("", A_NAME),
        ("fast\n", A_NAME),
        ("x" * 65, A_NAME),
    ],
)
def test_exit_choice_is_explained(exit_choice: Any, sentence: str) -> None:
    assert explained(ClassifyRequest, {"inputs": "a", "exit": exit_choice}).startswith(sentence)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            {"default": 3},
            'default: must be a target such as {"target": {"max_disagreement": 0.01}}, a rule such '
            'as {"rule": "entropy", "threshold": 0.2}, or the name of a profile',
        ),
        ({"profiles": {"a": {"rule": "layer"}}}, "profiles.a.layer: required field is missing"),
        (
            {"profiles": {"a": {"max_loss": 0.01}}},
            'profiles.a: a target is missing: say {"target": {"max_loss": 0.01}}',
        ),
        (
            {"profiles": {"a": {"max_loss": 0.01, "flag": {"yes": 0.5}}}},
            'profiles.a: a target is missing: say {"exit": {"target": {"max_loss": 0.01}}}',
        ),
        (
            {"profiles": {"entropy": {"rule": "entropy", "threshold": -1}}},
            "profiles.entropy.threshold: must be greater than or equal to 0, not -1",
        ),
        ({"profiles": {"a b": {"rule": "never"}}}, 'profiles."a b": a name must be 1 to 64'),
    ],
)
def test_names_of_alternatives_are_no_part_of_the_place(document: Any, sentence: str) -> None:
    assert explained(Policy, document).startswith(sentence)
    assert explained(PolicyUpdate, {"policy": document}).startswith(f"policy.{sentence}")


def test_several_findings_are_joined_and_no_more_than_five_told() -> None:
    sentence = explained(ClassifyRequest, {f"x{i}": 1 for i in range(9)})
    assert sentence.split("; ")[0] == "inputs: required field is missing"
    assert len(sentence.split("; ")) == 5


def test_list_whose_entries_are_wrong_is_not_called_empty() -> None:
    plan = {"steps": [0], "bounds": {"errors": 0.1}}
    assert explained(Plan, plan) == "steps[0]: must be greater than 0, not 0"
    assert explained(Plan, {**plan, "steps": []}) == "steps: must not be empty"


def test_of_two_errors_at_one_place_the_first_is_told() -> None:
    places = (("missing", ("a", 0)), ("dict_type", ("a", 0)), ("dict_type", ("b",)))
    details = [InitErrorDetails(type=kind, loc=loc, input=None) for kind, loc in places]
    error = ValidationError.from_exception_data("any", details)
    assert explain(error) == "a[0]: required field is missing; b: must be a JSON object"


@pytest.mark.parametrize(
    ("tag", "sentence"),
    [
        (None, "exit: unknown rule null, there are entropy,"),
        (5, "exit: unknown rule 5, there are entropy,"),
        (["entropy"], "exit: unknown rule, there are entropy,"),
        ("x" * 41, "exit: unknown rule, there are entropy,"),
    ],
)
def test_rule_that_is_no_name_is_quoted_as_in_json(tag: Any, sentence: str) -> None:
    document = {"inputs": "a", "exit": {"rule": tag}}
    assert explained(ClassifyRequest, document).startswith(sentence)


def test_long_value_is_not_repeated() -> None:
    long_number = {"inputs": "a", "exit": {"rule": "margin", "threshold": 10**400}}
    assert explained(ClassifyRequest, long_number) == "exit.threshold: must be a valid number"
    assert "xxx" not in explained(ClassifyRequest, {"inputs": "a", "top_k": "x" * 41})
    assert "xxx" in explained(ClassifyRequest, {"inputs": "a", "top_k": "x" * 40})


@pytest.mark.parametrize("written", ["3%", "3 %", " 3.0% ", 0.03])
def test_shares_may_be_written_as_percentages(written: str | float) -> None:
    bounds, target = {"disagreement": written, "errors": written}, {"max_disagreement": written}
    plan = Plan.model_validate({"bounds": bounds, "audit_share": written})
    policy = Policy.model_validate({"default": {"target": target}, "audit": {"share": written}})
    found = *plan.bounds.given.values(), plan.audit_share, policy.audit.share
    assert {*found, *policy.model_dump(exclude_none=True)["default"]["target"].values()} == {0.03}


@pytest.mark.parametrize("written", ["3", "-3%", "3%%", "60%", "1e1%", "%"])
def test_what_is_no_percentage_of_a_share_is_refused(written: str) -> None:
    assert "max_loss: must be a share" in explained(Target, {"max_loss": written})


def test_what_is_no_share_on_the_command_line_is_told_as_it_was_written() -> None:
    with pytest.raises(ValueError, match="'3%%'"):
        read_share("3%%")
