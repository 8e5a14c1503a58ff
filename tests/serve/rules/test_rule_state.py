import numpy as np
import pytest

from serve.rules.head_output import HeadOutput
from serve.rules.judge import judge
from serve.rules.rule_state import RuleState
from serve.rules.traits import Traits
from tests.serve.support.judging import NUM_EXITS, THREE, rule, saying, state_of
from tests.support.traits import two_labels

TAGS = Traits((1, 2, 3, 4), ("O", "B"), "token")
PLAIN = [
    rule("entropy", threshold=0.1),
    rule("confidence", threshold=0.9),
    rule("patience", patience=2),
    rule("never"),
]
VOTES = rule("voting", votes=5, weights=[1, 2, 1, 1, 1, 1])


def test_rows_carry_only_what_their_rules_declare() -> None:
    assert state_of([PLAIN[0]] * 3, THREE).columns.keys() == {"threshold"}
    assert state_of([rule("never")], THREE).columns == {}
    votes = {"votes", "weight", "scale", "share"}
    assert state_of([rule("never"), VOTES], THREE).columns.keys() == votes


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_with_and_without_a_column_come_together_and_part_again(reverse: bool) -> None:
    parts = [state_of(PLAIN, THREE), state_of([VOTES], THREE)]
    judge(parts[1], HeadOutput(saying("b")[0]), 1, NUM_EXITS)
    together = RuleState.concatenate(parts[::-1] if reverse else parts)
    place = 0 if reverse else len(PLAIN)
    assert together.columns["votes"][place].tolist() == [0, 2, 0]
    assert together.criteria[together.kind[place]] == parts[1].criteria[0]
    apart = together.take(np.array([place]))
    judge(apart, HeadOutput(saying("b")[0]), 2, NUM_EXITS)
    assert apart.columns["votes"].tolist() == [[0, 3, 0]]
    assert together.columns["votes"][place].tolist() == [0, 2, 0]


@pytest.mark.parametrize("order", [1, -1])
def test_one_threshold_for_all_exits_stands_beside_one_per_exit(order: int) -> None:
    one, each = (
        rule("entropy", threshold=0.5),
        rule("entropy", threshold=[0.1 * i for i in range(6)]),
    )
    parts = [state_of([one], THREE), state_of([each], THREE)][::order]
    for state in (RuleState.concatenate(parts), state_of([one, each][::order], THREE)):
        thresholds = state.columns["threshold"]
        assert thresholds[::order, 3].tolist() == pytest.approx([0.5, 0.3])


def test_fresh_rows_of_one_rule_do_not_share_their_progress() -> None:
    patient = rule("patience", patience=3)
    first, second = state_of([patient], THREE), state_of([patient], THREE)
    for index in range(2):
        judge(first, HeadOutput(saying("c")[0]), index, NUM_EXITS)
    assert (first.columns["streak"].tolist(), second.columns["streak"].tolist()) == ([1], [0])


def tags(text: str, width: int) -> HeadOutput:
    """Return a head's output for one row of tokens, padded to a width."""
    logits = np.zeros((1, width, 2), np.float32)
    for i, tag in enumerate(text):
        logits[0, i] = 3 * np.eye(2)["OB".index(tag)]
    return HeadOutput(logits, counted=np.arange(width)[None] < len(text))


def patient(*rows: tuple[str, int]) -> RuleState:
    """Return the state of rows that have passed the first exit, each padded to its width."""
    parts = []
    for text, width in rows:
        part = state_of([rule("patience", patience=2)], TAGS)
        judge(part, tags(text, width), 0, len(TAGS.exits))
        parts.append(part)
    return RuleState.concatenate(parts)


def test_tags_of_texts_that_were_padded_differently_come_together() -> None:
    together = patient(("OB", 2), ("OBBO", 6))
    assert together.columns["labels"].shape == (2, 6)
    assert together.columns["labels"][0].tolist()[:2] == [0, 1]


@pytest.mark.parametrize("width", [2, 3, 9])
def test_agreement_survives_another_padding(width: int) -> None:
    state = patient(("OB", 4))
    streaks = [judge(state, tags("OB", width), 1, 4).signals[0]]
    streaks.append(judge(state, tags("OO", 2), 2, 4).signals[0])
    assert streaks == [1, 0]


def test_equal_rules_of_different_models_are_compiled_apart() -> None:
    layer = rule("layer", layer=4)
    assert state_of([layer], two_labels((2, 4, 6))).last.tolist() == [1]
    assert state_of([layer], two_labels((4, 6))).last.tolist() == [0]
    classes = rule("classes", thresholds={"b": 0.5})
    for labels, expected in ((("a", "b"), [np.inf, 0.5]), (("b", "a"), [0.5, np.inf])):
        columns = state_of([classes], Traits((1, 2), labels)).columns
        assert columns["label_thresholds"].tolist() == [expected]
