"""The rule `decision`: what several labels, tokens and missing numbers mean to a flag."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from serve.rules.criterion import HeadOutput, Reason
from serve.rules.judge import Decision, judge
from serve.rules.traits import Traits
from tests.serve.support.judging import NAN, NUM_EXITS, THREE, rule, state_of

SETS = replace(THREE, task="multi_label")
TAGS = Traits(THREE.exits, ("O", "B-PER", "I-PER", "B-LOC"), "token")
STAYS, LEAVES = Reason.STAYS, Reason.CONFIDENT


def said(logits: Any, traits: Traits, counted: Any = None, **sides: dict[str, float]) -> Decision:
    """Judge one row once."""
    given = HeadOutput(np.array([logits], np.float32), counted=counted)
    with np.errstate(invalid="ignore"):
        return judge(state_of([rule("decision", **sides)], traits), given, 0, NUM_EXITS)


def reason(logits: Any, traits: Traits, counted: Any = None, **sides: dict[str, float]) -> int:
    return int(said(logits, traits, counted, **sides).reasons[0])


def test_of_one_label_per_text_the_bounds_are_of_the_softmax_and_equality_leaves() -> None:
    logits = np.log([0.5, 0.25, 0.25])
    for traits, at in ((THREE, 0.5), (SETS, 1 / 3)):
        p = float(np.float32(at))
        assert said(logits, traits, leave_above={"a": p}).signals[0] == pytest.approx(at)
    assert reason([0, 0, 0], SETS, leave_above={"a": 0.5}) == LEAVES
    assert reason([0, 0, 0], SETS, leave_below={"a": 0.5}) == LEAVES
    assert reason([0, 0, 0], SETS, leave_above={"a": 0.51}, leave_below={"a": 0.49}) == STAYS


@pytest.mark.parametrize("logits", [[NAN, 9, 9], [9, 9, NAN], [np.inf, 0, 0], [-np.inf] * 3])
def test_a_text_without_a_number_never_leaves(logits: list[float]) -> None:
    always: dict[str, Any] = {"leave_above": {"b": 0}, "leave_below": {"b": 0}}
    assert reason([0, 1, 2], THREE, **always) == LEAVES
    assert reason(logits, THREE, **always) == STAYS
    if any(map(np.isnan, logits)):
        assert reason(logits, SETS, **always) == STAYS


def tokens(*labels: str, sureness: float = 6) -> list[list[float]]:
    return [[sureness * (label == name) for name in TAGS.labels] for label in labels]


def test_of_tokens_an_entity_flags_and_a_single_token_keeps_from_leaving_below() -> None:
    every = np.ones((1, 3), np.bool_)
    sure = tokens("O", "B-PER", "I-PER")
    assert reason(sure, TAGS, every, leave_above={"PER": 0.98}) == LEAVES
    assert reason(sure, TAGS, every, leave_above={"LOC": 0.01}) == STAYS
    assert reason(sure, TAGS, every, leave_below={"LOC": 0.01}) == LEAVES
    assert reason(sure, TAGS, every, leave_below={"LOC": 0.01, "PER": 0.01}) == STAYS
    # The mean of the entity's tokens is its score; a second B- begins another entity.
    unsure = [*tokens("O", "B-PER"), *tokens("I-PER", sureness=1)]
    assert reason(unsure, TAGS, every, leave_above={"PER": 0.98}) == STAYS
    apart = [*tokens("O", "B-PER"), *tokens("B-PER", sureness=1)]
    assert reason(apart, TAGS, every, leave_above={"PER": 0.98}) == LEAVES
    # No entity is found in [3, 2.9, 0, 0], but one is likely.
    close = [*tokens("O", "O"), [3, 2.9, 0, 0]]
    assert reason(close, TAGS, every, leave_below={"PER": 0.3}) == STAYS
    assert reason(close, TAGS, every, leave_above={"PER": 0.3}) == STAYS
    assert said(close, TAGS, every, leave_below={"PER": 0.3}).signals[0] == pytest.approx(0.45, 0.1)


def test_all_labels_whose_entities_have_one_name_are_a_flags_label() -> None:
    every = np.ones((1, 2), np.bool_)
    traits = replace(TAGS, labels=("O", "B-PER", "I-PER", "S-PER", "E-PER"))
    for label in traits.labels[1:]:
        found = [[6.0 * (name == said) for name in traits.labels] for said in ("O", label)]
        assert reason(found, traits, every, leave_above={"PER": 0.98}) == LEAVES
        assert reason(found, traits, every, leave_below={"PER": 0.02}) == STAYS
