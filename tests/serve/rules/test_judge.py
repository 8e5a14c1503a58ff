import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.rules import (
    ConfidenceRule,
    EntropyRule,
    ExitRule,
    LayerRule,
    NeverRule,
    PatienceRule,
)
from serve.rules.head_output import HeadOutput
from serve.rules.judge import judge
from serve.rules.reason import Reason
from serve.rules.signals import confidence, entropy
from tests.serve.support.judging import state_of
from tests.support.traits import two_labels

EXITS = (1, 2, 3, 4, 5, 6)
NUM_LABELS = 3


def run(rules: list[ExitRule], logits: np.ndarray) -> list[tuple[int, Reason]]:
    """Judge rows exit by exit, compacting on the way; return (exit index, reason) of each.

    `logits` is (exits, rows, labels).
    """
    columns = state_of(rules, two_labels(EXITS))
    alive = np.arange(len(rules))
    left: dict[int, tuple[int, Reason]] = {}
    for index in range(len(EXITS)):
        decision = judge(columns, HeadOutput(logits[index][alive]), index, len(EXITS))
        gone = decision.reasons != Reason.STAYS
        for row, reason in zip(alive[gone], decision.reasons[gone], strict=True):
            left[int(row)] = index, Reason(reason)
        alive, columns = alive[~gone], columns.take(np.flatnonzero(~gone))
    return [left[i] for i in range(len(rules))]


def saying(labels: list[int | None]) -> np.ndarray:
    """Return (exits, 1, labels) logits whose argmax is as given; None is a NaN row."""
    logits = np.zeros((len(labels), 1, NUM_LABELS), np.float32)
    for index, label in enumerate(labels):
        logits[index, 0] = np.nan if label is None else 5 * np.eye(NUM_LABELS)[label]
    return logits


@pytest.mark.parametrize(
    ("labels", "exits_by_patience"),
    [
        ([0, 0, 0, 0, 0, 0], {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 5}),
        ([0, 1, 0, 1, 0, 1], {1: 5, 2: 5}),
        ([0, 1, 1, 1, 0, 0], {1: 2, 2: 3, 3: 5}),
        ([2, 2, 0, 0, 0, 0], {1: 1, 2: 4, 3: 5}),
        ([0, None, 0, 0, 0, 1], {1: 3, 2: 4, 3: 5}),
        ([None, None, None, None, None, 0], {1: 5}),
    ],
)
def test_patience_counts_agreement_with_the_exit_before(
    labels: list[int | None], exits_by_patience: dict[int, int]
) -> None:
    for patience, expected in exits_by_patience.items():
        ((index, reason),) = run([PatienceRule(patience=patience)], saying(labels))
        assert index == expected, f"patience {patience}"
        assert reason == (Reason.PATIENCE if index < 5 else Reason.FINAL)


def test_patience_counts_exits_before_min_layer_too() -> None:
    ((index, _),) = run([PatienceRule(patience=1, min_layer=4)], saying([0] * 6))
    assert index == 3


def test_the_first_of_equal_logits_is_the_label() -> None:
    logits = np.zeros((6, 1, NUM_LABELS), np.float32)
    logits[1:, 0, 0] = 1
    ((index, _),) = run([PatienceRule(patience=1)], logits)
    assert index == 1


def test_entropy_is_strict_and_confidence_is_not() -> None:
    logits = np.tile(np.array([[2.0, 0.0, 0.0]], np.float32), (6, 1, 1))
    at_entropy = float(entropy(logits[0])[0])
    at_confidence = float(confidence(logits[0])[0])
    above = float(np.nextafter(np.float32(at_entropy), np.float32(9)))
    rules: list[ExitRule] = [
        EntropyRule(threshold=at_entropy),
        EntropyRule(threshold=above),
        ConfidenceRule(threshold=at_confidence),
        ConfidenceRule(threshold=float(np.nextafter(np.float32(at_confidence), np.float32(1)))),
    ]
    exits = [index for index, _ in run(rules, np.repeat(logits, len(rules), axis=1))]
    assert exits == [5, 0, 0, 5]


def test_confidence_is_read_at_the_exits_temperature() -> None:
    logits = np.array([[2.0, 0.0, 0.0]], np.float32)
    columns = state_of([ConfidenceRule(threshold=0.7)], two_labels(EXITS))
    assert judge(columns, HeadOutput(logits), 0, 6, temperature=1.0).reasons[0] == Reason.CONFIDENT
    assert judge(columns, HeadOutput(logits), 0, 6, temperature=4.0).reasons[0] == Reason.STAYS


def test_bounds_hold_for_every_rule() -> None:
    sure = saying([0] * 6)
    rules: list[ExitRule] = [
        EntropyRule(threshold=0.5, min_layer=3),
        ConfidenceRule(threshold=0.5, min_layer=6),
        NeverRule(max_layer=4),
        EntropyRule(threshold=0, max_layer=2),
        LayerRule(layer=5),
        LayerRule(layer=6),
        NeverRule(),
        NeverRule(max_layer=6),
    ]
    assert run(rules, np.repeat(sure, len(rules), axis=1)) == [
        (2, Reason.CONFIDENT),
        (5, Reason.FINAL),
        (3, Reason.MAX_LAYER),
        (1, Reason.MAX_LAYER),
        (4, Reason.LAYER),
        (5, Reason.FINAL),
        (5, Reason.FINAL),
        (5, Reason.FINAL),
    ]


def test_bounds_between_exits_mean_the_exits_inside_them() -> None:
    columns = state_of(
        [NeverRule(min_layer=3, max_layer=5), LayerRule(layer=4)], two_labels((2, 4, 6))
    )
    assert columns.first.tolist() == [1, 1]
    assert columns.last.tolist() == [1, 1]


@pytest.mark.parametrize(
    "rule", [EntropyRule(threshold=1.0), ConfidenceRule(threshold=0.0), PatienceRule(patience=1)]
)
def test_nan_never_leaves_early(rule: ExitRule) -> None:
    ((index, reason),) = run([rule], saying([None] * 5 + [0]))
    assert (index, reason) == (5, Reason.FINAL)


def test_signals_are_those_of_the_rule() -> None:
    rules: list[ExitRule] = [
        EntropyRule(threshold=0.1),
        ConfidenceRule(threshold=0.9),
        PatienceRule(patience=2),
        LayerRule(layer=1),
        NeverRule(),
    ]
    logits = np.tile(np.array([[1.0, 0.0, 0.0]], np.float32), (len(rules), 1))
    signals = judge(state_of(rules, two_labels(EXITS)), HeadOutput(logits), 0, 6).signals
    assert signals[:3].tolist() == [entropy(logits)[0], confidence(logits)[0], 0.0]
    assert np.isnan(signals[3:]).all()


rules = st.one_of(
    st.builds(EntropyRule, threshold=st.floats(0, 1.1)),
    st.builds(ConfidenceRule, threshold=st.floats(0, 1)),
    st.builds(PatienceRule, patience=st.integers(1, 6)),
    st.builds(LayerRule, layer=st.integers(1, 6)),
    st.builds(NeverRule, max_layer=st.integers(1, 6)),
    st.builds(EntropyRule, threshold=st.floats(0, 1.1), min_layer=st.integers(1, 6)),
)
seeds = st.integers(0, 2**32 - 1)


def random_logits(seed: int, rows: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 2.5, (6, rows, NUM_LABELS)).astype(np.float32)
    logits[generator.random((6, rows)) < 0.05] = np.nan
    return logits


def follow(rule: ExitRule, logits: np.ndarray) -> int:
    """One row at a time, straight from the rules' definitions; return the exit index."""
    streak, before = 0, None
    last = rule.max_layer or 6
    for layer in range(1, 7):
        row = logits[layer - 1].astype(np.float64)
        nan = bool(np.isnan(row).any())
        p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        label = None if nan else int(row.argmax())
        streak = streak + 1 if label is not None and label == before else 0
        before = label
        leaves = {
            "entropy": not nan
            and -(p * np.log(np.where(p > 0, p, 1))).sum() < getattr(rule, "threshold", 0),
            "confidence": not nan and p.max() >= getattr(rule, "threshold", 2),
            "patience": streak >= getattr(rule, "patience", math.inf),
            "layer": layer == getattr(rule, "layer", None),
            "never": False,
        }[rule.rule]
        if (leaves and layer >= (rule.min_layer or 1)) or layer == last:
            return layer - 1
    raise AssertionError("the last layer always answers")


@given(st.lists(rules, min_size=1, max_size=12), seeds)
def test_a_mixed_batch_leaves_as_each_row_alone_would(mix: list[ExitRule], seed: int) -> None:
    logits = random_logits(seed, len(mix))
    together = [index for index, _ in run(mix, logits)]
    alone = [run([rule], logits[:, [i]])[0][0] for i, rule in enumerate(mix)]
    assert together == alone


@given(st.lists(rules, min_size=1, max_size=12), seeds)
def test_the_vectorised_rules_follow_their_definitions(mix: list[ExitRule], seed: int) -> None:
    logits = random_logits(seed, len(mix))
    # A signal within rounding of a threshold may fall on either side.
    for i, rule in enumerate(mix):
        for index in range(6):
            signals = entropy(logits[index, [i]]), confidence(logits[index, [i]])
            if any(abs(s[0] - getattr(rule, "threshold", -1)) < 1e-6 for s in signals):
                return
    assert [index for index, _ in run(mix, logits)] == [
        follow(rule, logits[:, i]) for i, rule in enumerate(mix)
    ]


@given(st.floats(0, 1), st.floats(0, 1), seeds)
def test_loosening_a_threshold_never_makes_a_row_leave_later(a: float, b: float, seed: int) -> None:
    tight, loose = sorted((a, b))
    logits = random_logits(seed, 20)
    by_entropy = [
        [index for index, _ in run([EntropyRule(threshold=t)] * 20, logits)] for t in (tight, loose)
    ]
    by_confidence = [
        [index for index, _ in run([ConfidenceRule(threshold=t)] * 20, logits)]
        for t in (loose, tight)
    ]
    for earlier_rule, later_rule in (by_entropy, by_confidence):
        assert all(b <= a for a, b in zip(earlier_rule, later_rule, strict=True))
