"""What rows leave with where a rule answers otherwise than with the exit's own logits.

Ties, temperatures, layer bounds and batch mates: `test_judge_mixed.py`.
"""

import numpy as np
import pytest

from serve.rules.head_output import HeadOutput
from serve.rules.judge import judge
from serve.rules.reason import Reason
from serve.rules.signals import sigmoid, softmax
from serve.rules.traits import Traits
from tests.serve.support.judging import NAN, NUM_EXITS, THREE, judged, rule, saying, state_of

LAST = NUM_EXITS - 1
MOST_CONFIDENT = rule("confidence", threshold=0.999, fallback="most_confident")


def as_sure(*sureness: float) -> np.ndarray:
    """Return logits of exits that say a, b, c in turn, as sure as given."""
    return np.array([saying("abc"[i % 3], s)[0] for i, s in enumerate(sureness)])


def test_most_rules_give_nothing_but_the_exits_own_logits() -> None:
    rules = [
        rule("entropy", threshold=0.1),
        rule("confidence", threshold=0.5),
        rule("patience", patience=2),
        rule("confident_patience", threshold=0.1, patience=2),
        rule("classes", thresholds={"a": 0.5}),
        rule("never"),
    ]
    columns = state_of(rules, THREE)
    logits = np.repeat(saying("a")[0], len(rules), axis=0)
    assert judge(columns, HeadOutput(logits), 0, NUM_EXITS).prediction is None


def test_if_nobody_was_confident_the_most_confident_head_answers() -> None:
    (left,) = judged([MOST_CONFIDENT], as_sure(1, 4, 2, 3, 1, 2))
    assert (left.index, left.reason, left.head, left.label) == (LAST, Reason.FINAL, 1, 1)
    assert left.logits.tolist() == as_sure(1, 4)[1, 0].tolist()


def test_an_exit_that_was_confident_answers_itself() -> None:
    (left,) = judged([MOST_CONFIDENT], as_sure(1, 4, 20, 3, 1, 2))
    assert (left.index, left.reason, left.head, left.label) == (2, Reason.CONFIDENT, 2, 2)


def test_a_head_without_a_number_is_never_the_most_confident() -> None:
    (left,) = judged([MOST_CONFIDENT], as_sure(1, NAN, 2, 3, 1, NAN))
    assert (left.index, left.head) == (LAST, 3)
    (left,) = judged([MOST_CONFIDENT], as_sure(*[NAN] * 6))
    assert (left.index, left.head, left.label) == (LAST, LAST, -1)


@pytest.mark.parametrize(
    ("ensemble", "sureness", "heads"),
    [
        # Confident from sureness 3 on; which exits the answer is the mean of.
        ("none", (0.1, 9, 9), [2]),
        ("run", (9, 0.1, 9, 9), [1, 2, 3]),
        ("run", (9, 9), [0, 1]),
        ("run", (9, NAN, 9, 9), [2, 3]),
        ("run", (9, 0.1, 9, 0.2, 9, 0.3), [5]),
        ("run", (9, 0.1, 9, 0.2, 0.3, 9), [4, 5]),
        ("all", (9, 0.1, 9, 9), [0, 1, 2, 3]),
        ("all", (9, NAN, 0.1, 9, 9), [0, 2, 3, 4]),
        ("all", (1, 0.1, 1, 0.2, 1, 0.3), [0, 1, 2, 3, 4, 5]),
    ],
)
def test_an_ensemble_answers_with_the_mean_of_its_exits(
    ensemble: str, sureness: tuple[float, ...], heads: list[int]
) -> None:
    each = rule("confident_patience", threshold=0.5, patience=2, ensemble=ensemble)
    logits = as_sure(*sureness, *[0.1] * (NUM_EXITS - len(sureness)))
    (left,) = judged([each], logits)
    assert left.index == left.head == len(sureness) - 1
    expected = softmax(logits[heads, 0]).mean(axis=0)
    assert softmax(left.logits) == pytest.approx(expected, abs=1e-6)


def test_a_label_that_no_head_believes_in_keeps_a_finite_logit() -> None:
    sets = Traits(THREE.exits, THREE.labels, "multi_label")
    each = rule("confident_patience", threshold=0.5, patience=2, ensemble="all")
    logits = np.tile(np.array([1e4, -1e4, 0.0], np.float32), (NUM_EXITS, 1, 1))
    for traits, likely in ((THREE, [1, 0, 0]), (sets, [1, 0, 0.5])):
        (left,) = judged([each], logits, traits)
        assert np.isfinite(left.logits).all()
        p = softmax(left.logits) if traits is THREE else sigmoid(left.logits)
        assert p.tolist() == pytest.approx(likely, abs=1e-6)


def test_what_a_late_row_would_leave_with_is_told_at_every_exit() -> None:
    rules = [
        rule("voting", votes=6),
        MOST_CONFIDENT,
        rule("confident_patience", threshold=0.01, patience=6, ensemble="all"),
        rule("entropy", threshold=0),
    ]
    columns = state_of(rules, THREE)
    for index, head in enumerate(as_sure(1, 4, 2)):
        decision = judge(columns, HeadOutput(np.repeat(head, 4, axis=0)), index, NUM_EXITS)
    assert not decision.reasons.any()
    assert decision.prediction is not None
    # One vote each is a tie: the exit's own label.
    assert decision.prediction.label.tolist() == [-1, -1, -1, -1]
    assert decision.prediction.exit_index.tolist() == [2, 1, 2, 2]
    assert decision.prediction.logits[[0, 3]].tolist() == [head[0].tolist()] * 2
    mean = softmax(as_sure(1, 4, 2)[:, 0]).mean(axis=0)
    assert softmax(decision.prediction.logits[2]) == pytest.approx(mean, abs=1e-6)


def test_what_is_given_is_nobody_elses_to_write_in() -> None:
    columns = state_of([rule("voting", votes=6)], THREE)
    said = HeadOutput(saying("a")[0])
    given = judge(columns, said, 0, NUM_EXITS).prediction
    assert given is not None
    assert not np.shares_memory(given.logits, said.logits)
