"""Signals of labels and of tokens, reduced to one per row."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.rules.head_output import HeadOutput
from serve.rules.judge import judge
from serve.rules.multipart import reduced
from serve.rules.reason import Reason
from serve.rules.signals import entropy, sigmoid
from serve.rules.traits import Traits
from tests.serve.support.judging import NAN, rule, state_of

EXITS = (1, 2, 3)
SETS = Traits(EXITS, ("a", "b", "c"), "multi_label")
TAGS = Traits(EXITS, ("O", "B"), "token")
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


def test_only_parts_that_count_are_reduced() -> None:
    counted = np.array([[True, False, True, False, False]])
    assert one(NUMBERS, counted, q=1) == pytest.approx(0.2)
    assert one(NUMBERS, counted, q=NAN) == pytest.approx(0.15)
    assert one(NUMBERS, counted, q=1, sure_is_high=True) == pytest.approx(0.1)


@pytest.mark.parametrize("q", [1, NAN, 0.1])
def test_one_part_that_counts_and_has_no_number_leaves_none(q: float) -> None:
    broken = np.array([[0.1, NAN, 0.2]], np.float32)
    assert math.isnan(one(broken, q=q))
    assert math.isfinite(one(broken, np.array([[True, False, True]]), q=q))
    assert math.isnan(one(broken, np.zeros((1, 3), np.bool_), q=q))


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


def test_by_default_the_least_sure_label_decides() -> None:
    logits = np.array([[6.0, -6.0, 0.5]], np.float32)
    unsure = entropy(np.array([[0.5, 0.0]]))[0]
    reasons, signals = judge_once(SETS, HeadOutput(logits), rule("entropy", threshold=0.5))
    assert (reasons, signals) == ([Reason.STAYS], pytest.approx([unsure]))
    confident = judge_once(SETS, HeadOutput(logits), rule("confidence", threshold=0.6))
    assert confident == ([Reason.CONFIDENT], pytest.approx([sigmoid(np.array(0.5))]))
    apart = judge_once(SETS, HeadOutput(logits), rule("margin", threshold=0.3))
    assert apart == ([Reason.STAYS], pytest.approx([2 * sigmoid(np.array(0.5)) - 1]))


def test_of_several_labels_the_mean_or_a_share_may_decide() -> None:
    logits = np.array([[6.0, -6.0, 0.0]] * 3, np.float32)
    sure = entropy(np.array([[6.0, 0.0]]))[0]
    reductions = [{"reduce": "mean"}, {"reduce": "quantile", "quantile": 0.6}, {"reduce": "max"}]
    rules = [rule("entropy", threshold=0.5, **each) for each in reductions]
    reasons, signals = judge_once(SETS, HeadOutput(logits), *rules)
    assert signals == pytest.approx([(2 * sure + math.log(2)) / 3, sure, math.log(2)])
    assert reasons == [Reason.CONFIDENT, Reason.CONFIDENT, Reason.STAYS]


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


def test_by_default_a_text_is_as_sure_as_its_tokens_on_the_whole() -> None:
    said = tags(9, 9, 0, counted="xxx")
    mean = (2 * entropy(np.array([[0.0, 9.0]]))[0] + math.log(2)) / 3
    reasons, signals = judge_once(TAGS, said, rule("entropy", threshold=0.3))
    assert (reasons, signals) == ([Reason.CONFIDENT], pytest.approx([mean]))
    reasons, _ = judge_once(TAGS, said, rule("entropy", threshold=0.3, reduce="max"))
    assert reasons == [Reason.STAYS]
    half = rule("entropy", threshold=0.3, reduce="quantile", quantile=0.6)
    assert judge_once(TAGS, said, half)[0] == [Reason.CONFIDENT]


def test_tokens_that_do_not_count_do_not_matter() -> None:
    for rubbish in (0.0, 9.0, NAN):
        reasons, signals = judge_once(
            TAGS, tags(rubbish, 9, rubbish, counted=".x."), rule("entropy", threshold=0.3)
        )
        assert reasons == [Reason.CONFIDENT]
        assert signals == [entropy(np.array([[0.0, 9.0]]))[0]]


def test_a_token_without_a_number_keeps_the_text() -> None:
    reasons, signals = judge_once(TAGS, tags(9, NAN), rule("confidence", threshold=0))
    assert reasons == [Reason.STAYS]
    assert math.isnan(signals[0])


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


def test_a_rule_without_reduction_waits_for_nobody() -> None:
    assert judge_once(TAGS, tags(0, counted="."), rule("layer", layer=1))[0] == [Reason.LAYER]
