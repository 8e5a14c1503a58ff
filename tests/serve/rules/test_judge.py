import numpy as np
import pytest

from serve.rules import LayerRule, NeverRule
from serve.rules.reason import Reason
from tests.serve.support.judging import THREE, judged, left_at, rule, saying, state_of
from tests.support.traits import two_labels


@pytest.mark.parametrize(
    ("said", "exits_by_patience"),
    [
        ("aaaaaa", {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 5}),
        ("ababab", {1: 5, 2: 5}),
        ("abbbaa", {1: 2, 2: 3, 3: 5}),
        ("ccaaaa", {1: 1, 2: 4, 3: 5}),
        ("a?aaab", {1: 3, 2: 4, 3: 5}),
        ("?????a", {1: 5}),
    ],
)
def test_patience_counts_agreement_with_the_exit_before(
    said: str, exits_by_patience: dict[int, int]
) -> None:
    for patience, expected in exits_by_patience.items():
        (left,) = judged([rule("patience", patience=patience)], saying(said))
        assert left.index == expected, f"patience {patience}"
        assert left.reason == (Reason.PATIENCE if expected < 5 else Reason.FINAL)


def test_patience_counts_exits_before_min_layer_too() -> None:
    assert left_at(rule("patience", patience=1, min_layer=4), saying("aaaaaa")) == 3


def test_the_first_of_equal_logits_is_the_label() -> None:
    logits = np.zeros((6, 1, len(THREE.labels)), np.float32)
    logits[1:, 0, 0] = 1
    assert left_at(rule("patience", patience=1), logits) == 1


def test_bounds_hold_for_every_rule() -> None:
    expected = [
        (rule("entropy", threshold=0.5, min_layer=3), 2, Reason.CONFIDENT),
        (rule("confidence", threshold=0.5, min_layer=6), 5, Reason.FINAL),
        (NeverRule(max_layer=4), 3, Reason.MAX_LAYER),
        (rule("entropy", threshold=0, max_layer=2), 1, Reason.MAX_LAYER),
        (LayerRule(layer=5), 4, Reason.LAYER),
        (LayerRule(layer=6), 5, Reason.FINAL),
        (NeverRule(), 5, Reason.FINAL),
        (NeverRule(max_layer=6), 5, Reason.FINAL),
    ]
    rules = [each for each, _, _ in expected]
    found = judged(rules, np.repeat(saying("aaaaaa"), len(rules), axis=1))
    assert [left[:2] for left in found] == [row[1:] for row in expected]


def test_bounds_between_exits_mean_the_exits_inside_them() -> None:
    columns = state_of(
        [NeverRule(min_layer=3, max_layer=5), LayerRule(layer=4)], two_labels((2, 4, 6))
    )
    assert columns.first.tolist() == [1, 1]
    assert columns.last.tolist() == [1, 1]
