"""Rules that look at several exits in a row: patience, PABEE's and PCEE's, and votes."""

import numpy as np
import pytest

from serve.rules.head_output import HeadOutput
from serve.rules.judge import judge
from serve.rules.reason import Reason
from serve.rules.traits import Traits
from tests.serve.support.judging import (
    NAN,
    NUM_EXITS,
    THREE,
    judged,
    left_at,
    rule,
    saying,
    state_of,
)

LAST = NUM_EXITS - 1
STARS = Traits(THREE.exits, ("stars",), "regression")
SETS = Traits(THREE.exits, THREE.labels, "multi_label")
TAGS = Traits(THREE.exits, THREE.labels, "token")


@pytest.mark.parametrize(
    ("values", "exits_by_patience"),
    [
        ([0, 0, 0, 0, 0, 0], {1: 1, 2: 2, 5: 5}),
        # 0.5 apart is not less than 0.5 apart.
        ([0, 0.5, 1, 1.5, 2, 2.5], {1: 5}),
        ([0, 0.4, 0.8, 1.2, 1.6, 2], {1: 1, 4: 4}),
        ([0, 9, 9.2, 9.4, 0, 0], {1: 2, 2: 3, 3: 5}),
        ([0, NAN, 0, 0, 0, 0], {1: 3}),
        ([0, np.inf, np.inf, 0, 0, 0], {1: 4}),
    ],
)
def test_a_regression_agrees_with_the_exit_before_within_its_tolerance(
    values: list[float], exits_by_patience: dict[int, int]
) -> None:
    logits = np.array(values, np.float32)[:, None, None]
    for patience, expected in exits_by_patience.items():
        patient = rule("patience", patience=patience, tolerance=0.5)
        assert left_at(patient, logits, STARS) == expected, patience


def test_of_several_labels_the_whole_set_must_stay() -> None:
    # One half is not above one half: the fourth head says no more than the third.
    sets = [[5, -5, -5], [5, 5, -5], [5, 4, -1], [5, 4, 0], [5, 4, -2], [5, 4, 1]]
    logits = np.array(sets, np.float32)[:, None]
    assert left_at(rule("patience", patience=1), logits, SETS) == 2
    assert left_at(rule("patience", patience=2), logits, SETS) == 3
    logits[2, 0, 1] = np.nan
    assert left_at(rule("patience", patience=1), logits, SETS) == 4


def test_of_tokens_all_that_count_must_stay() -> None:
    def head(tags: str, counted: str) -> HeadOutput:
        logits = np.array([[6 * np.eye(3)["abc".index(tag)] for tag in tags]], np.float32)
        return HeadOutput(logits, counted=np.array([[c == "x" for c in counted]]))

    # The third token is padding, and padding changes; the second one moves once.
    heads = [head("aba", "xx."), head("aac", "xx."), head("aa", "xx"), head("aabc", "xx..")]
    for patience, expected in ((1, 2), (2, 3)):
        ((index, *_),) = judged([rule("patience", patience=patience)], heads, TAGS)
        assert index == expected
    nothing = [head("aaa", "...")] * 3
    ((index, reason, *_),) = judged([rule("patience", patience=1)], nothing, TAGS)
    assert (index, reason) == (2, Reason.FINAL)


# Sure or unsure exits; which of them say what does not matter to PCEE.
@pytest.mark.parametrize(
    ("sure", "exits_by_patience"),
    [
        ("ssssss", {1: 0, 2: 1, 3: 2, 6: 5}),
        ("uususs", {1: 2, 2: 5, 3: 5}),
        ("s?ssss", {1: 0, 2: 3, 3: 4}),
        ("uuuuuu", {1: 5}),
    ],
)
def test_confident_patience_counts_confident_exits_whatever_they_say(
    sure: str, exits_by_patience: dict[int, int]
) -> None:
    for patience, expected in exits_by_patience.items():
        each = rule("confident_patience", threshold=0.5, patience=patience)
        ((index, reason, *_),) = judged([each], as_sure_as(sure))
        assert index == expected, patience
        assert reason == (Reason.PATIENCE if index < LAST else Reason.FINAL)


def as_sure_as(sure: str) -> np.ndarray:
    """Return logits of exits that say a, b, c in turn, sure or unsure of it."""
    heads = []
    for index, kind in enumerate(sure):
        label = "?" if kind == "?" else "abc"[index % 3]
        heads.append(saying(label, 9 if kind == "s" else 0.1)[0])
    return np.array(heads)


def test_an_entropy_at_the_threshold_is_not_confident() -> None:
    equal = np.zeros((NUM_EXITS, 1, 3), np.float32)
    assert left_at(rule("confident_patience", threshold=1, patience=1), equal) == LAST


@pytest.mark.parametrize(
    ("votes", "said", "expected"),
    [
        # Index, answer.
        (1, "abcabc", (0, "a")),
        (2, "aaaaaa", (1, "a")),
        (2, "abcabc", (3, "a")),
        (3, "abbaba", (4, "b")),
        (3, "ab?abb", (5, "b")),
        # Two each, then the leader gets its third.
        (2.5, "aabbca", (5, "a")),
        # Never enough: the majority answers at the last exit, not the last head.
        (5, "bbbbac", (5, "b")),
        # A tie at the last exit takes the last head's label, in the lead or not.
        (4, "aabbab", (5, "b")),
        (4, "aabbcc", (5, "c")),
        (6, "aaabbb", (5, "b")),
    ],
)
def test_votes_are_counted_and_the_majority_answers(
    votes: float, said: str, expected: tuple[int, str]
) -> None:
    (left,) = judged([rule("voting", votes=votes)], saying(said))
    assert (left.index, "abc"[left.label]) == expected
    assert left.reason == (Reason.VOTES if left.index < LAST else Reason.FINAL)


def test_a_tie_for_the_lead_does_not_leave() -> None:
    # Both have two votes by the fourth exit, and no exit before min_layer may be left at.
    assert left_at(rule("voting", votes=2, min_layer=4), saying("abbacc")) == LAST
    assert left_at(rule("voting", votes=2, min_layer=4), saying("abbaca")) == LAST
    assert left_at(rule("voting", votes=2, min_layer=4), saying("abbaac")) == 4


def test_votes_before_min_layer_count_and_the_label_is_the_majoritys() -> None:
    (left,) = judged([rule("voting", votes=3, min_layer=4)], saying("aaabbb"))
    assert (left.index, left.reason, left.label) == (3, Reason.VOTES, 0)
    (left,) = judged([rule("voting", votes=9, weights=[3] * 6, max_layer=2)], saying("bcabca"))
    assert (left.index, left.reason, left.label) == (1, Reason.MAX_LAYER, 2)


@pytest.mark.parametrize(
    ("share", "exponent", "said", "expected"),
    [
        # 3 / sqrt(3), and 4 / sqrt(5).
        (1.7, 0.5, "aaaaaa", 2),
        (1.75, 0.5, "abaaaa", 4),
        # The plain share is 1 at the first exit.
        (1, 1, "aaaaaa", 0),
        # What is reached is enough: 3 of 5 is 0.6 to the last bit.
        (0.6, 1, "abcbba", 0),
        (3, 0, "abcbba", 4),
        (3, 0, "abbbaa", 3),
        # A head without a number counts among the exits.
        (1.7, 0.5, "?aaaaa", 4),
    ],
)
def test_shares_are_of_the_exits_so_far_to_the_power_of_the_exponent(
    share: float, exponent: float, said: str, expected: int
) -> None:
    assert left_at(rule("voting", share=share, exponent=exponent), saying(said)) == expected


def test_a_share_at_equality_is_enough() -> None:
    exactly = rule("voting", share=0.6, exponent=1, min_layer=5)
    assert left_at(exactly, saying("abaabb")) == 4
    assert left_at(rule("voting", share=0.6001, exponent=1, min_layer=5), saying("abaabb")) == LAST


def test_votes_weigh_what_their_exits_weigh() -> None:
    weights = [1, 1, 1, 5, 1, 1]
    (left,) = judged([rule("voting", votes=4, weights=weights)], saying("aaabcc"))
    assert (left.index, left.label) == (3, 1)
    silent = [0, 0, 1, 1, 1, 1]
    (left,) = judged([rule("voting", votes=2, weights=silent)], saying("aabbcc"))
    assert (left.index, left.label) == (3, 1)


def test_a_head_without_a_number_keeps_a_voting_row_and_votes_for_nothing() -> None:
    (left,) = judged([rule("voting", votes=2, min_layer=3)], saying("aa?aaa"))
    assert left.index == 3
    columns = state_of([rule("voting", votes=2)], THREE)
    for head in saying("a?"):
        decision = judge(columns, HeadOutput(head), 0, NUM_EXITS)
    assert decision.signals.tolist() == [1]


def test_the_signal_of_votes_is_what_is_compared() -> None:
    rules = [rule("voting", votes=6), rule("voting", share=2, exponent=0.5)]
    columns = state_of(rules, THREE)
    for index, head in enumerate(saying("aab")):
        decision = judge(columns, HeadOutput(np.repeat(head, 2, axis=0)), index, NUM_EXITS)
    assert decision.signals.tolist() == pytest.approx([2, 2 / 3**0.5])
