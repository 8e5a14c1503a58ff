"""Any mix of rules, with any batch mates, does to each row what its rule does by definition."""

import math
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve.rules import ExitRule
from serve.rules.criterion import HeadOutput, Reason
from serve.rules.judge import Decision, RuleState, judge
from serve.rules.signals import probabilities
from serve.rules.traits import Task, Traits
from tests.serve.support.judging import state_of
from tests.serve.support.rule_reference import Follower, Step
from tests.serve.support.rule_strategies import EXITS, rules_of, traits_of

TEMPERATURES = (1.0, 1.5, 0.7, 1.0, 2.0)
TASKS: tuple[Task, ...] = ("single_label", "multi_label", "token", "regression")
# Rules that contradict themselves are drawn and thrown away, which a busy machine is slow at.
THOROUGH = settings(
    max_examples=max(150, settings().max_examples),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
STRANGE = (math.nan, math.inf, -math.inf)


@dataclass
class Travelling:
    """A row on its way: what every exit will say of it, and where it is."""

    rule: ExitRule
    heads: list[Any]  # per exit (labels,), or (tokens, labels)
    uncertainty: list[float]
    counted: list[bool] | None
    follower: Follower
    depth: int = 0
    gone: bool = False


def some_logit(random: Random) -> float:
    if random.random() < 0.02:
        return random.choice(STRANGE)
    if random.random() < 0.5:
        return float(random.randint(-2, 2))
    return float(np.float32(random.gauss(0, 2.5)))


def travelling(rule: ExitRule, traits: Traits, random: Random) -> Travelling:
    tokens = random.choice([1, 1, 2, 3, 5]) if traits.task == "token" else 0

    def head() -> Any:
        if tokens:
            return [[some_logit(random) for _ in traits.labels] for _ in range(tokens)]
        return [some_logit(random) for _ in traits.labels]

    heads = [head()]
    while len(heads) < len(EXITS):
        # Often the same again, so that exits agree, and tie.
        heads.append(heads[-1] if random.random() < 0.4 else head())
    counted = [random.random() < 0.8 for _ in range(tokens)] if tokens else None
    uncertainty = [float(np.float32(random.random())) for _ in EXITS]
    return Travelling(rule, heads, uncertainty, counted, Follower(rule, traits))


def padded(rows: list[Travelling], width: int, random: Random) -> HeadOutput:
    """Return what the heads say, each row at its own exit, with rubbish for padding."""
    uncertainty = np.array([row.uncertainty[row.depth] for row in rows], np.float32)
    if rows[0].counted is None:
        return HeadOutput(np.array([row.heads[row.depth] for row in rows], np.float32), uncertainty)
    labels = len(rows[0].heads[0][0])
    logits = np.full((len(rows), width, labels), random.choice([0.0, 3.0, math.nan]), np.float32)
    counted = np.zeros((len(rows), width), np.bool_)
    for i, row in enumerate(rows):
        assert row.counted is not None
        logits[i, : len(row.counted)] = row.heads[row.depth]
        counted[i, : len(row.counted)] = row.counted
    return HeadOutput(logits, uncertainty, counted)


def length(row: Travelling) -> int:
    return len(row.counted or ())


@dataclass
class Batch:
    """Rows in one batch at one exit, and their state."""

    rows: list[Travelling]
    state: RuleState
    random: Random = field(repr=False)

    def step(self, traits: Traits) -> None:
        """The rows reach their next exit, are compared with the reference, and may leave."""
        width = max(map(length, self.rows)) + self.random.choice([0, 0, 1, 3])
        head, depth = padded(self.rows, width, self.random), self.rows[0].depth
        decision = judge(self.state, head, depth, len(EXITS), TEMPERATURES[depth])
        for i, row in enumerate(self.rows):
            expected = row.follower.step(
                row.heads[depth], depth, TEMPERATURES[depth], row.uncertainty[depth], row.counted
            )
            if not expected.doubtful:
                compare(decision, i, row, expected, traits)
            row.depth += 1
            row.gone = decision.reasons[i] != Reason.STAYS
        stay = np.flatnonzero([not row.gone for row in self.rows])
        self.state = self.state.take(stay)
        self.rows = [self.rows[i] for i in stay]


def compare(decision: Decision, i: int, row: Travelling, expected: Step, traits: Traits) -> None:
    told = (row.rule, row.depth, row.heads, row.counted)
    assert Reason(decision.reasons[i]).label == expected.reason, told
    assert decision.signals[i] == pytest.approx(expected.signal, abs=1e-5, nan_ok=True), told
    if decision.prediction is None:
        assert expected.head == row.depth, told
        assert expected.label == -1, told
        assert getattr(row.rule, "ensemble", "none") == "none", told
        return
    assert decision.prediction.exit_index[i] == expected.head, told
    assert decision.prediction.label[i] == expected.label, told
    assert_alike(decision.prediction.logits[i], expected.p, traits.task)


def assert_alike(logits: np.ndarray, p: Any, task: Task) -> None:
    if task == "regression":
        assert logits.tolist() == pytest.approx(p, nan_ok=True)
    elif task == "token":
        for own, expected in zip(logits, p, strict=False):
            assert_alike(own, expected, "single_label")
    elif p is None:
        assert not np.isfinite(logits.max())
    else:
        found = probabilities(task, logits)
        assert found.tolist() == pytest.approx(p, abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("task", TASKS)
@THOROUGH
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_rows_in_company_follow_the_definition_of_their_rules(
    task: Task, data: st.DataObject, seed: int
) -> None:
    random, traits = Random(seed), traits_of(task)
    groups = data.draw(st.lists(st.lists(rules_of(task), min_size=1, max_size=5), min_size=1,
                                max_size=3), label="groups")  # fmt: skip
    batches = [
        Batch(
            [travelling(rule, traits, random) for rule in rules],
            state_of(rules, traits),
            random,
        )
        for rules in groups
    ]
    with np.errstate(all="ignore"):
        while batches:
            by_depth = [
                [batch for batch in batches if batch.rows[0].depth == depth]
                for depth in {batch.rows[0].depth for batch in batches}
            ]
            batches = [
                batch
                for own in by_depth
                for batch in ([together(own)] if random.random() < 0.4 else own)
            ]
            for batch in batches:
                if random.random() < 0.7:
                    batch.step(traits)
            batches = [batch for batch in batches if batch.rows]


def together(batches: list[Batch]) -> Batch:
    rows = [row for batch in batches for row in batch.rows]
    state = RuleState.concatenate([batch.state for batch in batches])
    return Batch(rows, state, batches[0].random)
