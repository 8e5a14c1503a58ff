import numpy as np
import pytest

from serve.rules.criterion import HeadOutput
from serve.rules.judge import RuleState, judge
from serve.rules.traits import Traits
from tests.serve.support.judging import NUM_EXITS, THREE, rule, saying, state_of

TAGS = Traits((1, 2, 3, 4), ("O", "B"), "token")
PLAIN = [
    rule("entropy", threshold=0.1),
    rule("confidence", threshold=0.9),
    rule("patience", patience=2),
    rule("never"),
]
VOTES = rule("voting", votes=5, weights=[1, 2, 1, 1, 1, 1])


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
