import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.classifier import exit_choice
from serve.classifier.exit_choice import Active, Candidate, cheapest_exits
from serve.classifier.exit_costs import ExitCosts
from serve.rules import ConfidenceRule, EntropyRule, ExitRule, NeverRule, PatienceRule
from serve.rules.replay import Logits, Recording
from tests.support.traits import two_labels

RULES: list[ExitRule] = [
    EntropyRule(threshold=0.3),
    ConfidenceRule(threshold=0.8),
    PatienceRule(patience=1),
    EntropyRule(threshold=0.5, min_layer=2),
    NeverRule(),
]


def recorded(num_exits: int, num_rows: int = 40, seed: int = 0) -> Logits:
    """Two-label logits, surer from exit to exit."""
    generator = np.random.default_rng(seed)
    sureness = np.linspace(0.5, 4, num_exits)[:, None, None]
    return (generator.standard_normal((num_exits, num_rows, 2)) * sureness).astype(np.float32)


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
    found = cheapest_exits(free, RULES[0], anything)
    assert set(free.recording.taken(RULES[0]).exits) <= set(found)


def test_dear_visits_leave_the_last_exit_alone() -> None:
    assert cheapest_exits(candidate(recorded(5), visit_s=1.0), RULES[0], anything) == (4,)


def test_an_exit_nobody_leaves_at_is_given_up() -> None:
    recording = np.zeros((3, 10, 2), np.float32)
    recording[1:, :, 1] = 9
    found = cheapest_exits(candidate(recording, visit_s=1e-5), EntropyRule(threshold=0.1), anything)
    assert found == (1, 2)


def test_what_is_not_allowed_is_not_chosen() -> None:
    def first_exit_stays(active: Active) -> bool:
        return 0 in active

    found = cheapest_exits(candidate(recorded(4), visit_s=1.0), RULES[0], first_exit_stays)
    assert found == (0, 3)


@settings(max_examples=60, deadline=None)
@given(
    num_exits=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    visit_s=st.floats(0, 2e-3),
    rule=st.sampled_from(RULES[:3] + RULES[4:]),
    segment_s=st.lists(st.floats(1e-4, 3e-3), min_size=6, max_size=6),
)
def test_no_subset_is_cheaper(
    num_exits: int, seed: int, visit_s: float, rule: ExitRule, segment_s: list[float]
) -> None:
    every = candidate(recorded(num_exits, seed=seed), visit_s, segment_s[:num_exits])
    found_s = every.expected_s(rule, cheapest_exits(every, rule, anything))
    for size in range(num_exits):
        for chosen in combinations(range(num_exits - 1), size):
            assert found_s <= by_hand(every, rule, (*chosen, num_exits - 1)) + 1e-12


def by_hand(every: Candidate, rule: ExitRule, active: Active) -> float:
    """Mean time, one row at a time, in plain Python."""
    times_s = []
    for row in range(every.recording.logits.shape[1]):
        seconds, done, label, streak = 0.0, -1, -1, 0
        for exit_index in active:
            seconds += sum(every.costs.segment_s[done + 1 : exit_index + 1]) + every.costs.visit_s
            done = exit_index
            logits = [float(x) for x in every.recording.logits[exit_index, row]]
            total = sum(math.exp(x) for x in logits)
            shares = [math.exp(x) / total for x in logits]
            now = shares.index(max(shares))
            streak = streak + 1 if now == label else 0
            label = now
            if leaves(rule, shares, streak):
                break
        times_s.append(seconds)
    return sum(times_s) / len(times_s)


def leaves(rule: ExitRule, shares: list[float], streak: int) -> bool:
    if isinstance(rule, EntropyRule):
        return -sum(p * math.log(p) for p in shares if p) < rule.threshold
    if isinstance(rule, ConfidenceRule):
        return max(shares) >= rule.threshold
    return isinstance(rule, PatienceRule) and streak >= rule.patience


@pytest.mark.parametrize("allowed", [anything, lambda active: 2 in active])
def test_many_exits_are_given_up_one_by_one(
    monkeypatch: pytest.MonkeyPatch, allowed: Callable[[Active], bool]
) -> None:
    every = candidate(recorded(6), visit_s=4e-4)
    exact = cheapest_exits(every, RULES[0], allowed)
    monkeypatch.setattr(exit_choice, "MAX_EXACT", 3)
    found = cheapest_exits(every, RULES[0], allowed)
    assert allowed(found)
    full_s = every.expected_s(RULES[0], tuple(range(6)))
    assert every.expected_s(RULES[0], exact) <= every.expected_s(RULES[0], found) < full_s
