from collections.abc import Callable, Sequence

import numpy as np
import pytest

from serve.classifier import exit_choice
from serve.classifier.exit_choice import Active, Candidate, cheapest_exits
from serve.classifier.exit_costs import ExitCosts
from serve.rules import EntropyRule, NeverRule
from serve.rules.replay import Logits, Recording
from tests.support.traits import two_labels

RULE = EntropyRule(threshold=0.3)


def recorded(num_exits: int) -> Logits:
    """Return two-label logits, surer from exit to exit."""
    generator = np.random.default_rng(0)
    sureness = np.linspace(0.5, 4, num_exits)[:, None, None]
    return (generator.standard_normal((num_exits, 40, 2)) * sureness).astype(np.float32)


def candidate(
    logits: Logits, visit_s: float, segment_s: Sequence[float] | None = None
) -> Candidate:
    num_exits = len(logits)
    costs = ExitCosts(tuple(segment_s or [1e-3] * num_exits), visit_s, visit_s)
    traits = two_labels(range(1, num_exits + 1))
    return Candidate(Recording(traits, (1.0,) * num_exits, logits), costs)


def anything(_active: Active) -> bool:
    return True


def test_free_visits_use_every_exit_that_any_row_leaves_at() -> None:
    free = candidate(recorded(5), visit_s=0)
    found = cheapest_exits(free, RULE, anything)
    assert set(free.recording.taken(RULE).exits) <= set(found)


def test_dear_visits_leave_the_last_exit_alone() -> None:
    assert cheapest_exits(candidate(recorded(5), visit_s=1.0), RULE, anything) == (4,)


def test_a_text_pays_for_its_layers_and_for_each_exit_that_is_asked() -> None:
    recording = np.zeros((3, 10, 2), np.float32)
    recording[1:, :5, 1] = 9  # half of the texts leave at the second exit
    known = candidate(recording, visit_s=0.1, segment_s=[1.0, 1.0, 1.0])
    assert known.expected_s(EntropyRule(threshold=0.1), (1, 2)) == pytest.approx(2.65)
    assert known.expected_s(EntropyRule(threshold=0.1), (0, 1, 2)) == pytest.approx(2.75)
    assert known.expected_s(NeverRule(), (2,)) == pytest.approx(3.1)


@pytest.mark.parametrize("allowed", [anything, lambda active: 2 in active])
def test_many_exits_are_given_up_one_by_one(
    monkeypatch: pytest.MonkeyPatch, allowed: Callable[[Active], bool]
) -> None:
    every = candidate(recorded(6), visit_s=4e-4)
    exact = cheapest_exits(every, RULE, allowed)
    monkeypatch.setattr(exit_choice, "MAX_EXACT", 3)
    found = cheapest_exits(every, RULE, allowed)
    assert allowed(found)
    full_s = every.expected_s(RULE, tuple(range(6)))
    assert every.expected_s(RULE, exact) <= every.expected_s(RULE, found) < full_s
