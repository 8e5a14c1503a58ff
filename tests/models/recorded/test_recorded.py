"""What recordings made by hand say: answers, agreement with full depth, and what is right."""

from collections.abc import Sequence

import numpy as np
import pytest

from models.recorded import Recorded
from serve.rules import EntropyRule, LayerRule, NeverRule, PatienceRule, Rule, VotingRule
from serve.rules.traits import Task, Traits
from tests.support.recordings import margins, noisy, said

# Rows: sure and right at once; sure at layer 4; wrongly sure at once; never sure.
BY_HAND = margins([[9, 9, 9], [-0.1, -9, -9], [9, -1, -9], [0.1, -0.1, 0.2]], [1, 0, 0, 1])


@pytest.mark.parametrize(
    ("rule", "exits", "agrees"),
    [
        (EntropyRule(threshold=0.1), [0, 1, 0, 2], [True, True, False, True]),
        (PatienceRule(patience=1), [1, 1, 2, 2], [True] * 4),
        (NeverRule(), [2, 2, 2, 2], [True] * 4),
        # Voters outvote the last exit on the fourth row: its answer is not the exit's own.
        (VotingRule(votes=1.0), [0, 0, 0, 0], [True, True, False, True]),
    ],
)
def test_a_rule_is_judged_by_the_answers_that_rows_leave_with(
    rule: Rule, exits: list[int], agrees: list[bool]
) -> None:
    taken = BY_HAND.taken(rule)
    assert taken.exits.tolist() == exits
    found = BY_HAND.agrees(taken)
    assert found is not None
    assert found.tolist() == agrees


def test_a_vote_is_compared_not_the_exits_own_answer() -> None:
    # Two exits say yes, the third no; the vote stays yes, full depth says no.
    voted = margins([[1, 1, -1, -1]], [1])
    taken = voted.taken(VotingRule(votes=2.0, min_layer=6))
    assert voted.logits[taken.exits[0], 0].argmax() == 0
    assert taken.deciding[0].argmax() == 1
    assert voted.agrees(taken) is not None
    assert not voted.agrees(taken).any()  # type: ignore[union-attr]


TAGS = ("O", "B-PER", "I-PER")


def tagged(*exits: Sequence[int], gold: Sequence[int]) -> Recorded:
    """One text: [CLS], tokens, [SEP]; the tags of the tokens at every exit, and of the words."""
    tags = np.array([[[0, *ids, 0]] for ids in exits])
    counted = np.array([[False, *[True] * len(gold), False]])
    traits = Traits(tuple(range(1, len(exits) + 1)), TAGS, "token")
    return said(9 * np.eye(3)[tags], traits, [[-100, *gold, -100]], counted=counted)


def test_a_taggers_answer_is_the_entities_that_are_served() -> None:
    # The second token continues a word. Its tag does not count as a word's tag, and yet the
    # server's entity ends there: the answer differs, though all words have the same tags.
    pieces = tagged([1, 0, 0], [1, 2, 0], gold=[1, -100, 0])
    assert pieces.same().tolist() == [[False], [True]]
    assert pieces.right is not None
    assert pieces.right.tolist() == [[True], [True]]
    leaves = pieces.agrees(pieces.taken(LayerRule(layer=1)))
    assert leaves is not None
    assert leaves.tolist() == [False]


def test_other_tags_of_the_same_entities_are_the_same_answer() -> None:
    # I-PER after O begins an entity, as B-PER does.
    begun = tagged([0, 2, 2], [0, 1, 2], gold=[0, 1, 2])
    assert begun.same().all()
    assert begun.right is not None
    assert begun.right.all()
    assert not tagged([0, 1, 1], [0, 1, 2], gold=[0, 1, 2]).same()[0].any()


def test_tags_that_name_no_entities_are_compared_word_by_word() -> None:
    logits = np.eye(2)[[[[0, 1, 1]], [[0, 1, 0]]]]
    traits = Traits((1, 2), ("NOUN", "VERB"), "token")
    words = said(logits, traits, [[0, 1, 0]], counted=np.ones((1, 3), bool))
    assert words.right is not None
    assert words.right.tolist() == [[False], [True]]
    assert words.same().tolist() == [[False], [True]]


@pytest.mark.parametrize("task", ["single_label", "multi_label", "token", "regression"])
def test_every_task_but_a_regression_has_answers(task: Task) -> None:
    recorded = noisy(task)
    missing = task == "regression"
    assert (recorded.answers is None, recorded.right is None) == (missing, missing)
    assert (recorded.agrees(recorded.taken(NeverRule())) is None) == missing
    if not missing:
        assert recorded.same()[-1].all()
        assert not recorded.same().all()


def test_values_agree_within_a_tolerance() -> None:
    values = said([[[1.0], [np.nan]], [[1.2], [1.0]]], Traits((1, 2), ("v",), "regression"))
    assert values.same(0.25).tolist() == [[True, False], [True, True]]
    assert values.same(0.1).tolist() == [[False, False], [True, True]]


def test_a_head_that_gives_nan_answers_nothing() -> None:
    nothing = margins([[np.nan, 9]], [1])
    assert nothing.right is not None
    assert nothing.right.tolist() == [[False], [True]]
    assert nothing.same().tolist() == [[False], [True]]


@pytest.mark.parametrize("task", ["single_label", "token"])
def test_some_of_the_rows_say_what_they_say_among_all(task: Task) -> None:
    rows, whole = np.array([7, 3, 3]), noisy(task)
    part = whole.of(rows)
    assert part.num_rows == 3
    assert np.array_equal(part.same(), whole.same()[:, rows])
    assert part.right is not None
    assert whole.right is not None
    assert np.array_equal(part.right, whole.right[:, rows])
    sure = EntropyRule(threshold=0.3)
    assert np.array_equal(part.taken(sure).exits, whole.taken(sure).exits[rows])
