import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from serve.errors import InvalidRule
from serve.rules import (
    EXIT_RULE,
    ConfidenceRule,
    DecisionRule,
    EntropyRule,
    LayerRule,
    LearnedRule,
    MarginRule,
    NeverRule,
    NormalizedEntropyRule,
    PatienceRule,
    Rule,
    check_rule,
    compile_rule,
)
from serve.rules.traits import Task, Traits
from tests.support.traits import two_labels

EXITS = (2, 4, 6)
TASKS = get_args(Task)
LEARNED = replace(two_labels(EXITS), learned=True)


def parse(**fields: Any):
    return EXIT_RULE.validate_python(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"rule": "entropy", "threshold": 0.2},
        {"rule": "entropy", "threshold": 0},
        {"rule": "entropy", "threshold": [0.1, 0.2, 0]},
        {"rule": "normalized_entropy", "threshold": 0.5},
        {"rule": "confidence", "threshold": 1, "min_layer": 2, "fallback": "last"},
        {"rule": "confidence", "threshold": [1, 0.9, 0], "fallback": "most_confident"},
        {"rule": "margin", "threshold": 0.3},
        {"rule": "patience", "patience": 9, "max_layer": 4},
        {"rule": "confident_patience", "threshold": 0.2, "patience": 1, "ensemble": "run"},
        {"rule": "voting", "votes": 3},
        {"rule": "voting", "votes": 1.5, "weights": [0, 0.5, 1]},
        {"rule": "voting", "share": 1.2, "exponent": 0.5},
        {"rule": "classes", "thresholds": {"no": 0.99, "yes": 1}},
        {"rule": "decision", "leave_above": {"yes": 0.98}},
        {"rule": "decision", "leave_above": {"no": 0.9}, "leave_below": {"no": 0.9, "yes": 0.1}},
        {"rule": "layer", "layer": 4},
        {"rule": "never", "min_layer": 2, "max_layer": 2},
    ],
)
def test_a_rule_survives_the_way_through_json(fields: dict[str, Any]) -> None:
    rule = parse(**fields)
    check_rule(rule, two_labels(EXITS))
    assert EXIT_RULE.validate_json(EXIT_RULE.dump_json(rule)) == rule
    assert rule.model_dump(mode="json", exclude_none=True) == fields
    # Rules are looked up by their value.
    assert hash(rule) == hash(parse(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"rule": "entropy"},
        {"rule": "entropy", "threshold": -0.1},
        {"rule": "entropy", "threshold": math.nan},
        {"rule": "entropy", "threshold": "0.1"},
        {"rule": "entropy", "threshold": 0.1, "patience": 1},
        {"rule": "entropy", "threshold": [0.1, "0.1"]},
        {"rule": "entropy", "threshold": 0.1, "reduce": "quantile"},
        {"rule": "entropy", "threshold": 0.1, "reduce": "mean", "quantile": 0.5},
        {"rule": "entropy", "threshold": 0.1, "quantile": 0.5},
        {"rule": "entropy", "threshold": 0.1, "reduce": "quantile", "quantile": 1},
        {"rule": "margin", "threshold": 1.1},
        {"rule": "confidence", "threshold": 1.01},
        {"rule": "patience", "patience": 0},
        {"rule": "patience", "patience": 1001},
        {"rule": "patience", "patience": 1, "tolerance": 0},
        {"rule": "confident_patience", "threshold": 0.2, "patience": 0},
        {"rule": "voting"},
        {"rule": "voting", "votes": 2, "share": 1, "exponent": 1},
        {"rule": "voting", "votes": 2, "exponent": 1},
        {"rule": "voting", "votes": 0},
        {"rule": "voting", "share": 0.8},
        {"rule": "voting", "share": 0.8, "exponent": -1},
        {"rule": "voting", "votes": 1, "weights": [0, 0]},
        {"rule": "voting", "votes": 1, "weights": [1e39, 1]},
        {"rule": "learned", "threshold": 1.1},
        {"rule": "classes", "thresholds": {}},
        {"rule": "classes", "thresholds": {"yes": 1.1}},
        {"rule": "decision"},
        {"rule": "decision", "leave_above": {"yes": 1.1}},
        {"rule": "decision", "leave_below": {"yes": math.nan}},
        # A label that may still flag the text is named on one side only, or between both.
        {"rule": "decision", "leave_above": {"no": 0.9, "yes": 0.9}, "leave_below": {"yes": 0.1}},
        {"rule": "decision", "leave_above": {"yes": 0.3}, "leave_below": {"yes": 0.4}},
        {"rule": "layer", "layer": 0},
        {"rule": "layer", "layer": 4, "min_layer": 5},
        {"rule": "layer", "layer": 4, "max_layer": 3},
        {"rule": "never", "min_layer": 5, "max_layer": 4},
        {"rule": "sometimes"},
        {"threshold": 0.1},
    ],
)
def test_what_makes_no_sense_for_any_model_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parse(**fields)


ONE, ANY_NUMBER, VALUE, TAGS = (
    two_labels(EXITS),
    Traits(EXITS, ("a", "b", "c"), "multi_label"),
    Traits(EXITS, ("stars",), "regression"),
    Traits(EXITS, ("O", "PER", "LOC"), "token"),
)


@pytest.mark.parametrize(
    ("fields", "traits"),
    [
        ({"rule": "layer", "layer": 3}, ONE),
        ({"rule": "layer", "layer": 8}, ONE),
        ({"rule": "never", "max_layer": 1}, ONE),
        ({"rule": "never", "max_layer": 7}, ONE),
        ({"rule": "entropy", "threshold": 0.1, "min_layer": 7}, ONE),
        ({"rule": "never", "min_layer": 3, "max_layer": 3}, ONE),
        ({"rule": "entropy", "threshold": [0.1, 0.2]}, ONE),
        ({"rule": "margin", "threshold": []}, ONE),
        ({"rule": "learned", "threshold": [0.1, 0.2]}, LEARNED),
        ({"rule": "voting", "votes": 1, "weights": [1, 2]}, ONE),
        ({"rule": "entropy", "threshold": 0.1, "reduce": "max"}, ONE),
        ({"rule": "entropy", "threshold": 0.1}, VALUE),
        ({"rule": "classes", "thresholds": {"stars": 0.5}}, replace(VALUE, learned=True)),
        ({"rule": "patience", "patience": 2}, VALUE),
        ({"rule": "patience", "patience": 2, "tolerance": 1}, ONE),
        ({"rule": "voting", "votes": 2}, TAGS),
        ({"rule": "classes", "thresholds": {"a": 0.5}}, ANY_NUMBER),
        ({"rule": "learned", "threshold": 0.1}, ONE),
        ({"rule": "classes", "thresholds": {"no": 0.9, "maybe": 0.9}}, ONE),
        ({"rule": "decision", "leave_above": {"no": 1}, "leave_below": {"no": 0, "B-PER": 0}}, ONE),
        ({"rule": "decision", "leave_above": {"O": 0.9}}, TAGS),
        ({"rule": "decision", "leave_above": {"stars": 0.9}}, VALUE),
        ({"rule": "voting", "votes": 4}, ONE),
        ({"rule": "voting", "votes": 2.5, "weights": [0.5, 0.5, 1]}, ONE),
        ({"rule": "voting", "share": 1.8, "exponent": 0.5}, ONE),
        ({"rule": "voting", "share": 1.01, "exponent": 2}, ONE),
    ],
)
def test_what_this_model_cannot_follow_is_refused(fields: dict[str, Any], traits: Traits) -> None:
    with pytest.raises(InvalidRule):
        check_rule(parse(**fields), traits)


@pytest.mark.parametrize(
    ("fields", "traits"),
    [
        ({"rule": "entropy", "threshold": 0.7, "reduce": "mean"}, ANY_NUMBER),
        ({"rule": "entropy", "threshold": [0.7, 3, 0]}, ONE),
        ({"rule": "normalized_entropy", "threshold": 1.5}, TAGS),
        ({"rule": "margin", "threshold": 0.7, "reduce": "quantile", "quantile": 0.9}, TAGS),
        ({"rule": "confident_patience", "threshold": 0.7, "patience": 2, "ensemble": "all"}, TAGS),
        ({"rule": "patience", "patience": 2}, TAGS),
        ({"rule": "patience", "patience": 2}, ANY_NUMBER),
        ({"rule": "patience", "patience": 2, "tolerance": 0.5}, VALUE),
        ({"rule": "learned", "threshold": 0.1}, LEARNED),
        ({"rule": "learned", "threshold": 0.1}, replace(VALUE, learned=True)),
        # As much as can be reached, and not refused for the rounding.
        ({"rule": "voting", "votes": 3}, ONE),
        ({"rule": "voting", "share": 3 / 3**0.5, "exponent": 0.5}, ONE),
        ({"rule": "voting", "share": 1, "exponent": 1}, ONE),
    ],
)
def test_what_the_model_can_follow_is_accepted(fields: dict[str, Any], traits: Traits) -> None:
    check_rule(parse(**fields), traits)


def test_equal_rules_are_worked_out_once() -> None:
    first = compile_rule(parse(rule="layer", layer=4), ONE)
    assert compile_rule(parse(rule="layer", layer=4), ONE) is first
    assert compile_rule(parse(rule="layer", layer=2), ONE) is not first


def test_a_list_of_thresholds_is_one_per_exit_that_is_used() -> None:
    rule = parse(rule="entropy", threshold=[0.1, 0.2])
    check_rule(rule, two_labels((2, 6)))
    with pytest.raises(InvalidRule):
        check_rule(rule, two_labels((2, 4, 6)))


@pytest.mark.parametrize("task", ["single_label", "multi_label", "token", "regression"])
@pytest.mark.parametrize("learned", [False, True])
def test_the_documentation_says_which_rules_each_task_knows(task: Any, learned: bool) -> None:
    labels = ("stars",) if task == "regression" else ("a", "b")
    traits = Traits(EXITS, labels, task, learned)
    rules: dict[str, dict[str, Any]] = {
        **{name: {"threshold": 0.5} for name in THRESHOLD_RULES},
        "confident_patience": {"threshold": 0.5, "patience": 1},
        "patience": {"patience": 1} | ({"tolerance": 1} if task == "regression" else {}),
        "voting": {"votes": 1},
        "classes": {"thresholds": {labels[0]: 0.5}},
        "decision": {"leave_above": {labels[0]: 0.5}},
        "layer": {"layer": 2},
        "never": {},
    }
    accepted = {name for name, fields in rules.items() if can_follow(name, fields, traits)}
    documented = rules_in_documentation(task) - (set() if learned else {"learned"})
    assert accepted == documented


THRESHOLD_RULES = ("entropy", "normalized_entropy", "confidence", "margin", "learned")


def can_follow(name: str, fields: dict[str, Any], traits: Traits) -> bool:
    try:
        check_rule(parse(rule=name, **fields), traits)
    except InvalidRule:
        return False
    return True


def rules_in_documentation(task: str) -> set[str]:
    """Read the table of docs/rules.md: a row per rule, a column per task."""
    lines = (Path(__file__).parents[3] / "docs" / "rules.md").read_text("utf-8").splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    header = next(row for row in table if row[1:] == [f"`{t}`" for t in TASKS])
    column = header.index(f"`{task}`")
    rows = table[table.index(header) + 2 :][:12]
    return {row[0].strip("`") for row in rows if row[column] != "no"}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (EntropyRule(threshold=0.123456), "entropy < 0.123"),
        (EntropyRule(threshold=0.5, min_layer=2), "entropy < 0.5 from layer 2"),
        (ConfidenceRule(threshold=(0.5, 1.0)), "confidence >= (0.5, 1)"),
        (ConfidenceRule(threshold=0.9743), "confidence >= 0.9743"),
        (ConfidenceRule(threshold=0.99999366), "confidence >= 0.99999366"),
        (PatienceRule(patience=2, tolerance=0.5), "patience 2 tolerance 0.5"),
        (LayerRule(layer=3), "layer 3"),
        (NeverRule(max_layer=4), "never to layer 4"),
        (
            DecisionRule(leave_above={"a": 0.999}, leave_below={"a": 0.01, "b": 0.1}, min_layer=2),
            "decision from layer 2 above a 0.999 below a 0.01, b 0.1",
        ),
        (LearnedRule(threshold=0.1), "predicted error < 0.1"),
        (NormalizedEntropyRule(threshold=0.5), "normalized entropy < 0.5"),
        (MarginRule(threshold=0.5), "margin > 0.5"),
        (EntropyRule(threshold=0.015, reduce="max"), "entropy < 0.015 reduce max"),
    ],
)  # fmt: skip
def test_rules_are_written_in_a_few_words(rule: Rule, words: str) -> None:
    assert rule.text() == words
