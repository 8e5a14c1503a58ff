import numpy as np
import pytest

from serve.criteria.judge import HeadOutput, judge
from serve.criteria.rule_state import RuleState
from serve.rules import ExitRule
from serve.rules.traits import Traits
from tests.serve.support.judging import NUM_EXITS, THREE, rule, saying
from tests.support.traits import two_labels

TAGS = Traits((1, 2, 3, 4), ("O", "B"), "token")
PLAIN = [
    rule("entropy", threshold=0.1),
    rule("confidence", threshold=0.9),
    rule("patience", patience=2),
    rule("never"),
]
VOTES = rule("voting", votes=5, weights=[1, 2, 1, 1, 1, 1])


def test_what_rare_rules_need_is_not_carried_without_them() -> None:
    assert RuleState.of(PLAIN, THREE).carry == {}
    mixed = RuleState.of([*PLAIN, VOTES], THREE)
    assert mixed.carry.keys() == {"votes", "weights", "scale", "share"}
    assert RuleState.concatenate([RuleState.of(PLAIN, THREE)] * 2).carry == {}


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_with_and_without_a_carry_come_together(reverse: bool) -> None:
    parts = [RuleState.of(PLAIN, THREE), RuleState.of([VOTES], THREE)]
    judge(parts[1], HeadOutput(saying("b")[0]), 1, NUM_EXITS)
    together = RuleState.concatenate(parts[::-1] if reverse else parts)
    place = 0 if reverse else len(PLAIN)
    assert together.carry["votes"][place].tolist() == [0, 2, 0]
    assert together.kind[place] == parts[1].kind[0]
    # And apart again.
    alone = together.take(np.array([place]))
    judge(alone, HeadOutput(saying("b")[0]), 2, NUM_EXITS)
    assert alone.carry["votes"].tolist() == [[0, 3, 0]]
    assert together.carry["votes"][place].tolist() == [0, 2, 0]


def test_a_parts_progress_is_put_back_into_its_rows() -> None:
    whole = RuleState.of([VOTES, rule("patience", patience=3), VOTES], THREE)
    rows = np.array([2, 1])
    part = whole.take(rows)
    judge(part, HeadOutput(np.repeat(saying("c")[0], 2, axis=0)), np.array([1, 0]), NUM_EXITS)
    assert whole.carry["votes"].tolist() == [[0, 0, 0]] * 3
    whole.put(rows, part)
    assert whole.carry["votes"].tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 2]]
    assert whole.label.tolist() == [-1, 2, -1]


def said(tags: str, width: int) -> HeadOutput:
    """Return what a head says of one row of tokens, padded to a width."""
    logits = np.zeros((1, width, 2), np.float32)
    for i, tag in enumerate(tags):
        logits[0, i] = 3 * np.eye(2)["OB".index(tag)]
    return HeadOutput(logits, counted=np.arange(width)[None] < len(tags))


def patient(*rows: tuple[str, int]) -> RuleState:
    """Return columns of rows that have come by the first exit, each padded as told."""
    parts = []
    for tags, width in rows:
        part = RuleState.of([rule("patience", patience=2)], TAGS)
        judge(part, said(tags, width), 0, len(TAGS.exits))
        parts.append(part)
    return RuleState.concatenate(parts)


def test_the_tags_of_texts_that_were_padded_differently_come_together() -> None:
    together = patient(("OB", 2), ("OBBO", 6))
    assert together.carry["before"].shape == (2, 6)
    assert together.carry["before"][0].tolist()[:2] == [0, 1]


@pytest.mark.parametrize("width", [2, 3, 9])
def test_agreement_survives_another_padding(width: int) -> None:
    columns = patient(("OB", 4))
    streaks = [judge(columns, said("OB", width), 1, 4).signals[0]]
    streaks.append(judge(columns, said("OO", 2), 2, 4).signals[0])
    assert streaks == [1, 0]


def test_a_part_with_other_padding_is_put_back() -> None:
    whole = patient(("OB", 2), ("OBBO", 4))
    for rows, tags, width in (([0], "OB", 2), ([1], "OBBO", 7)):
        part = whole.take(np.array(rows))
        judge(part, said(tags, width), 1, 4)
        whole.put(np.array(rows), part)
    assert whole.streak.tolist() == [1, 1]
    assert whole.carry["before"][0, :2].tolist() == [0, 1]
    assert whole.carry["before"][1, :4].tolist() == [0, 1, 1, 0]


def test_equal_rules_of_different_models_are_compiled_apart() -> None:
    layer: ExitRule = rule("layer", layer=4)
    assert RuleState.of([layer], two_labels((2, 4, 6))).last.tolist() == [1]
    assert RuleState.of([layer], two_labels((4, 6))).last.tolist() == [0]
    classes = rule("classes", thresholds={"b": 0.5})
    for labels, expected in ((("a", "b"), [np.inf, 0.5]), (("b", "a"), [0.5, np.inf])):
        columns = RuleState.of([classes], Traits((1, 2), labels))
        assert columns.carry["of_label"].tolist() == [expected]
