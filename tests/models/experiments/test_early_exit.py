"""What early exits are worth, against a few lines of numpy."""

import numpy as np
import pytest

from models.experiments.early_exit import at_depth, by_exit, layers_within
from models.quality.recorded import Recorded
from models.quality.rule_families import ENTROPY
from serve.rules.traits import Traits
from tests.support.recordings import said


@pytest.fixture
def hand_made() -> Recorded:
    """Four exits and a thousand texts; later exits are surer and right more often."""
    draw = np.random.default_rng(0)
    gold = draw.integers(2, size=1000)
    margin = np.stack([draw.normal((2 * gold - 1) * depth, 1.5) for depth in (1, 2, 3, 4)])
    logits = np.stack([np.zeros_like(margin), margin], axis=-1)
    return said(logits, Traits((1, 2, 3, 4), ("no", "yes")), gold)


def test_quality_by_exit_is_accuracy(hand_made: Recorded) -> None:
    expected = (hand_made.logits.argmax(axis=-1) == hand_made.gold).mean(axis=1)
    assert by_exit(hand_made) == pytest.approx(expected)


def test_quality_at_the_ends_is_that_of_the_first_and_the_last_exit(hand_made: Recorded) -> None:
    first, *_, last = by_exit(hand_made)
    assert at_depth(hand_made, ENTROPY, 1.0) == pytest.approx(first)
    assert at_depth(hand_made, ENTROPY, 4.0) == pytest.approx(last)
    assert first < at_depth(hand_made, ENTROPY, 2.0) < 1


def test_the_depth_at_a_loss_is_of_texts_that_did_not_choose_the_threshold(
    hand_made: Recorded,
) -> None:
    share, rows = 0.02, np.arange(hand_made.num_rows)
    margins = np.abs(hand_made.logits[..., 1])  # of two labels as good as entropy
    answers = hand_made.logits.argmax(axis=-1)

    def left(threshold: float, chosen: np.ndarray) -> tuple[float, float]:
        leaves = margins[:, chosen] > threshold
        leaves[-1] = True
        exits = leaves.argmax(axis=0)
        other = answers[exits, chosen] != answers[-1, chosen]
        return float(exits.mean() + 1), float(other.mean())

    found = []
    for tuning, measured in ((rows[::2], rows[1::2]), (rows[1::2], rows[::2])):
        candidates = np.quantile(margins[:-1, tuning], np.linspace(0, 1, 32))
        allowed = [t for t in candidates if left(t, tuning)[1] <= share]
        found.append(left(min(allowed), measured))
    within = layers_within(hand_made, ENTROPY, share)
    assert within == pytest.approx(np.mean(found, axis=0), abs=0.01)
    assert layers_within(hand_made, ENTROPY, 0.0).layers > within.layers
