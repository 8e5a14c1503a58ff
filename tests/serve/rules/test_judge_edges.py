"""What the comparison with the rules' definition cannot tell: equality, extremes, rounding.

`test_judge_mixed.py` compares every rule in any company with its definition, but for rows whose
signal lies near the threshold. These are the cases there, and those of the numbers' ends.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.rules import EntropyRule
from serve.rules.criterion import HeadOutput, Reason
from serve.rules.judge import judge
from serve.rules.signals import (
    confidence,
    entropy,
    margin,
    normalized_entropy,
    reduced,
    sigmoid,
    softmax,
)
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
from tests.support.traits import two_labels

FIRST, LAST = 0, NUM_EXITS - 1
EXITS = (1, 2, 3)
SETS = Traits(EXITS, ("a", "b", "c"), "multi_label")
TAGS = Traits(EXITS, ("O", "B"), "token")

SAME = np.tile(np.array([2.0, 0.0, -1.0], np.float32), (NUM_EXITS, 1, 1))


SIGNALS = {
    "entropy": entropy,
    "normalized_entropy": normalized_entropy,
    "confidence": confidence,
    "margin": margin,
}


@pytest.mark.parametrize(
    ("name", "below", "at", "above"),
    [
        # Where a row leaves whose signal is the threshold's upper neighbour, itself, its lower.
        ("entropy", LAST, LAST, FIRST),
        ("normalized_entropy", LAST, LAST, FIRST),
        ("confidence", FIRST, FIRST, LAST),
        ("margin", FIRST, LAST, LAST),
    ],
)
def test_thresholds_are_strict_or_not_as_in_the_original(
    name: str, below: int, at: int, above: int
) -> None:
    signal = SIGNALS[name](SAME[0])[0]
    thresholds = [np.nextafter(signal, np.float32(-1)), signal, np.nextafter(signal, np.float32(9))]
    found = [left_at(rule(name, threshold=float(t)), SAME) for t in thresholds]
    assert found == [below, at, above]


def test_learned_errors_and_classes_are_compared_strictly() -> None:
    learned = Traits(THREE.exits, THREE.labels, learned=True)
    for error, expected in ((0.25, LAST), (0.2499, FIRST), (NAN, LAST)):
        heads = [HeadOutput(head, np.array([error], np.float32)) for head in SAME]
        ((index, *_),) = judged([rule("learned", threshold=0.25)], heads, learned)
        assert index == expected
    top = softmax(SAME[0])[0, 0]
    assert left_at(rule("classes", thresholds={"a": float(top)}), SAME) == LAST
    lower = float(np.nextafter(top, np.float32(0)))
    assert left_at(rule("classes", thresholds={"a": lower}), SAME) == FIRST


@pytest.mark.parametrize(
    ("name", "never", "always"),
    [
        ("entropy", 0, 1.1),
        ("normalized_entropy", 0, 1),
        ("confidence", 1, 0),
        ("margin", 1, 0),
    ],
)
def test_thresholds_at_the_ends_are_never_and_always(
    name: str, never: float, always: float
) -> None:
    # Confidence 1 is reached where float32 knows no probability besides.
    hardly = saying("aaaaaa", sureness=9)
    assert left_at(rule(name, threshold=never), hardly) == LAST
    assert left_at(rule(name, threshold=always), hardly) == FIRST
    assert left_at(rule(name, threshold=always), saying("?????a")) == LAST


@pytest.mark.parametrize("odd", [math.inf, NAN])
@np.errstate(invalid="ignore")
def test_infinite_logits_are_no_certainty(odd: float) -> None:
    logits = np.tile(np.array([odd, 0.0, 0.0], np.float32), (NUM_EXITS, 1, 1))
    loose: dict[str, dict[str, Any]] = {
        "entropy": {"threshold": 1.1},
        "normalized_entropy": {"threshold": 1},
        "confidence": {"threshold": 0},
        "margin": {"threshold": 0},
        "patience": {"patience": 1},
        "confident_patience": {"threshold": 1, "patience": 1},
        "voting": {"votes": 1},
        "classes": {"thresholds": {"a": 0, "b": 0, "c": 0}},
        "decision": {"leave_above": {"a": 0}, "leave_below": {"a": 0, "b": 1, "c": 1}},
    }
    for name, fields in loose.items():
        assert left_at(rule(name, **fields), logits) == LAST, name


def test_equal_logits_are_not_below_the_largest_entropy_by_rounding() -> None:
    for labels in (2, 3, 7, 9, 1000):
        traits = Traits(THREE.exits, tuple(map(str, range(labels))))
        equal = np.full((NUM_EXITS, 1, labels), 3.7, np.float32)
        assert left_at(EntropyRule(threshold=math.log(labels)), equal, traits) == LAST
        assert left_at(rule("normalized_entropy", threshold=1), equal, traits) == LAST
        assert left_at(rule("margin", threshold=0), equal, traits) == LAST


def test_confidence_alone_is_read_at_the_exits_temperature() -> None:
    cold_first = (4.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    found = {}
    for name, fields in (
        ("confidence", {"threshold": 0.7}),
        ("margin", {"threshold": 0.5}),
        ("classes", {"thresholds": {"a": 0.7}}),
        ("entropy", {"threshold": 0.8}),
    ):
        ((found[name], *_),) = judged([rule(name, **fields)], SAME, THREE, cold_first)
    assert found == {"confidence": 1, "margin": 0, "classes": 0, "entropy": 0}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("threshold", [1.2, 1e300])
@pytest.mark.parametrize("name", ["entropy", "normalized_entropy"])
def test_a_threshold_above_the_largest_entropy_leaves_at_the_first_permitted_exit(
    name: str, threshold: float
) -> None:
    # DeeBERT's users write 0.7 for two labels, whose entropy is at most 0.693.
    even = np.zeros((NUM_EXITS, 1, 3), np.float32)
    assert left_at(rule(name, threshold=threshold), even) == 0
    assert left_at(rule(name, threshold=threshold, min_layer=3), even) == 2
    even[2] = NAN
    assert left_at(rule(name, threshold=threshold, min_layer=3), even) == 3


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


def test_a_label_that_no_head_believes_in_keeps_a_finite_logit() -> None:
    sets = Traits(THREE.exits, THREE.labels, "multi_label")
    each = rule("confident_patience", threshold=0.5, patience=2, ensemble="all")
    logits = np.tile(np.array([1e4, -1e4, 0.0], np.float32), (NUM_EXITS, 1, 1))
    for traits, likely in ((THREE, [1, 0, 0]), (sets, [1, 0, 0.5])):
        (left,) = judged([each], logits, traits)
        assert np.isfinite(left.logits).all()
        p = softmax(left.logits) if traits is THREE else sigmoid(left.logits)
        assert p.tolist() == pytest.approx(likely, abs=1e-6)


def test_what_is_given_is_nobody_elses_to_write_in() -> None:
    columns = state_of([rule("voting", votes=6)], THREE)
    said = HeadOutput(saying("a")[0])
    given = judge(columns, said, 0, NUM_EXITS).prediction
    assert given is not None
    assert not np.shares_memory(given.logits, said.logits)


NUMBERS = np.array([[0.1, 0.4, 0.2, 0.3, 0.5]], np.float32)


def one(
    signals: np.ndarray, counted: Any = None, q: float = 1, sure_is_high: bool = False
) -> float:
    return float(reduced(signals, counted, np.array([q]), sure_is_high)[0])


@pytest.mark.parametrize(
    ("q", "doubt", "sureness"),
    [(1, 0.5, 0.1), (NAN, 0.3, 0.3), (0.2, 0.1, 0.5), (0.21, 0.2, 0.4), (0.6, 0.3, 0.3),
     (0.8, 0.4, 0.2), (0.801, 0.5, 0.1), (0.01, 0.1, 0.5)],
)  # fmt: skip
def test_the_share_asked_for_is_at_least_as_sure(q: float, doubt: float, sureness: float) -> None:
    assert one(NUMBERS, q=q) == pytest.approx(doubt)
    assert one(NUMBERS, q=q, sure_is_high=True) == pytest.approx(sureness)


def test_a_share_of_whole_parts_is_not_one_more_by_rounding() -> None:
    hundred = np.arange(100, dtype=np.float32)[None]
    for percent in range(1, 100):
        assert one(hundred, q=percent / 100) == percent - 1


@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40),
    st.integers(0, 60),
    st.sampled_from([1.0, NAN, 0.5]),
)
def test_padding_changes_no_bit_of_a_rows_signal(
    values: list[float], padding: int, q: float
) -> None:
    alone = np.array([values], np.float32)
    padded = np.pad(alone, ((0, 0), (0, padding)), constant_values=9)
    counted = np.arange(padded.shape[1])[None] < len(values)
    company = np.concatenate([padded, padded[:, ::-1]])
    both = reduced(company, np.concatenate([counted, counted]), np.array([q, q]), False)
    assert both[0] == one(alone, q=q)


def judge_once(traits: Traits, said: HeadOutput, *rules: Any) -> tuple[list[int], list[float]]:
    decision = judge(state_of(rules, traits), said, 0, len(traits.exits))
    return decision.reasons.tolist(), decision.signals.tolist()


@pytest.mark.parametrize("odd", [math.inf, -math.inf])
def test_an_infinite_logit_of_one_label_is_a_certain_yes_or_no(odd: float) -> None:
    logits = np.full((1, 3), odd, np.float32)
    for name, threshold in (("entropy", 1e-6), ("confidence", 1), ("margin", 0.99)):
        reasons, _ = judge_once(SETS, HeadOutput(logits), rule(name, threshold=threshold))
        assert reasons == [Reason.CONFIDENT]


def tags(*margins: float, counted: str = "") -> HeadOutput:
    """Return what a head says of one row of tokens, each so far from its two labels' middle."""
    logits = np.array([[[0.0, m] for m in margins]], np.float32)
    return HeadOutput(logits, counted=np.array([[c == "x" for c in counted or "x" * len(margins)]]))


@pytest.mark.parametrize(
    "each",
    [
        rule("entropy", threshold=0.7),
        rule("normalized_entropy", threshold=1),
        rule("confidence", threshold=0),
        rule("margin", threshold=0, reduce="max"),
        rule("patience", patience=1),
        rule("confident_patience", threshold=1, patience=1),
    ],
)
def test_a_text_without_tokens_of_its_own_has_signal_zero_and_stays(each: Any) -> None:
    said = tags(9, 9, counted="..")
    columns = state_of([each], TAGS)
    for index in range(2):
        decision = judge(columns, said, index, len(EXITS))
        assert decision.reasons.tolist() == [Reason.STAYS]
        assert decision.signals.tolist() == [0]


def test_equal_rules_of_different_models_are_compiled_apart() -> None:
    layer = rule("layer", layer=4)
    assert state_of([layer], two_labels((2, 4, 6))).last.tolist() == [1]
    assert state_of([layer], two_labels((4, 6))).last.tolist() == [0]
    classes = rule("classes", thresholds={"b": 0.5})
    for labels, expected in ((("a", "b"), [np.inf, 0.5]), (("b", "a"), [0.5, np.inf])):
        columns = state_of([classes], Traits((1, 2), labels)).columns
        assert columns["label_thresholds"].tolist() == [expected]
