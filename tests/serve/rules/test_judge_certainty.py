"""Rules that look at one exit: strictness, extremes, thresholds per exit."""

import math
from typing import Any

import numpy as np
import pytest

from serve.rules import EntropyRule
from serve.rules.head_output import HeadOutput
from serve.rules.reason import Reason
from serve.rules.signals import confidence, entropy, margin, normalized_entropy, softmax
from serve.rules.traits import Traits
from tests.serve.support.judging import NAN, NUM_EXITS, THREE, judged, left_at, rule, saying

SAME = np.tile(np.array([2.0, 0.0, -1.0], np.float32), (NUM_EXITS, 1, 1))
FIRST, LAST = 0, NUM_EXITS - 1
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


def test_the_last_exit_answers_whatever_it_has_learned_of_itself() -> None:
    learned = Traits(THREE.exits, THREE.labels, learned=True)
    errors = [0.9] * 5 + [0.1]
    heads = [
        HeadOutput(head, np.array([e], np.float32)) for head, e in zip(SAME, errors, strict=True)
    ]
    ((index, reason, *_),) = judged([rule("learned", threshold=0.5)], heads, learned)
    assert (index, reason) == (LAST, Reason.FINAL)


def test_a_head_that_gives_no_error_is_never_believed() -> None:
    learned = Traits(THREE.exits, THREE.labels, learned=True)
    assert left_at(rule("learned", threshold=1.0), SAME, learned) == LAST


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


@pytest.mark.parametrize("gap", [0, 12, 17.5, 89, 104, 1e4])
def test_the_surer_a_head_the_tighter_the_threshold_it_passes(gap: float) -> None:
    logits = np.tile(np.array([gap, 0.0], np.float32), (NUM_EXITS, 1, 1))
    two = Traits(THREE.exits, ("no", "yes"))
    q = math.exp(-gap)
    exact = math.log1p(q) + gap * q / (1 + q)
    for name, ceiling in (("entropy", 1.0), ("normalized_entropy", math.log(2))):
        above = min(exact / ceiling * 1.001 + 1e-6, entropy_most(name))
        assert left_at(rule(name, threshold=above), logits, two) == (FIRST if gap else LAST)
        assert (
            left_at(rule(name, threshold=max(0, exact / ceiling * 0.999 - 1e-6)), logits, two)
            == LAST
        )
        assert left_at(rule(name, threshold=0), logits, two) == LAST


def entropy_most(name: str) -> float:
    return math.log(2) if name == "entropy" else 1.0


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


def test_each_exit_has_a_threshold_of_its_own() -> None:
    signal = float(entropy(SAME[0])[0])
    for passing in range(NUM_EXITS):
        thresholds = [0.0] * NUM_EXITS
        thresholds[passing] = signal + 0.01
        each = rule("entropy", threshold=thresholds)
        assert left_at(each, SAME) == passing
        # A row with one threshold for all keeps it in their company.
        both = judged([each, rule("entropy", threshold=signal + 0.01)], np.repeat(SAME, 2, axis=1))
        assert [left.index for left in both] == [passing, FIRST]


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


def test_only_listed_labels_leave_early_and_only_as_the_answer() -> None:
    listed = rule("classes", thresholds={"b": 0.9, "c": 0.5})
    assert left_at(listed, saying("aabaaa")) == 2
    assert left_at(listed, saying("aaaaaa")) == LAST
    weak = saying("bbbbbb", sureness=1)
    assert left_at(listed, weak) == LAST
    # b is beyond its threshold, but a leads, and a is not listed.
    close = np.tile(np.array([1.0, 0.9, 0.0], np.float32), (NUM_EXITS, 1, 1))
    assert softmax(close[0])[0, 1] > 0.3
    assert left_at(rule("classes", thresholds={"b": 0.3}), close) == LAST
    assert left_at(rule("classes", thresholds={"a": 0.3}), close) == FIRST


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
