"""Any mix of rules, in any company, does to each row what its rule alone does, by definition."""

import math
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve.criteria.judge import Decision, HeadOutput, Reason, judge
from serve.criteria.multipart import probabilities
from serve.criteria.rule_state import RuleState
from serve.rules import ExitRule
from serve.rules.traits import Task, Traits
from tests.serve.support.rule_reference import Follower, Step
from tests.serve.support.rule_strategies import EXITS, rules_of, traits_of

TEMPERATURES = (1.0, 1.5, 0.7, 1.0, 2.0)
TASKS: tuple[Task, ...] = ("single_label", "multi_label", "token", "regression")
# Rules that contradict themselves are drawn and thrown away, which a busy machine is slow at.
THOROUGH = settings(
    max_examples=max(150, settings().max_examples),
    deadline=None,
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
class Company:
    """Rows in one batch, at exits of their own, and their columns."""

    rows: list[Travelling]
    columns: RuleState
    random: Random = field(repr=False)

    def step(self, traits: Traits) -> None:
        """Some rows come by their next exit, are compared with the reference, and may leave."""
        chosen = sorted(self.random.sample(range(len(self.rows)), self._how_many()))
        at = np.array(chosen)
        rows = [self.rows[i] for i in chosen]
        width = max(map(length, self.rows)) + self.random.choice([0, 0, 1, 3])
        verdict = self._judge(at, rows, width)
        for i, row in enumerate(rows):
            expected = row.follower.step(
                row.heads[row.depth],
                row.depth,
                TEMPERATURES[row.depth],
                row.uncertainty[row.depth],
                row.counted,
            )
            if not expected.doubtful:
                compare(verdict, i, row, expected, traits)
            row.depth += 1
            row.gone = verdict.reasons[i] != Reason.STAYS
        self._compact()

    def _how_many(self) -> int:
        return self.random.choice([len(self.rows), self.random.randint(1, len(self.rows))])

    def _judge(self, at: np.ndarray, rows: list[Travelling], width: int) -> Decision:
        said = padded(rows, width, self.random)
        depths = [row.depth for row in rows]
        together = len(set(depths)) == 1 and self.random.random() < 0.7
        index: Any = depths[0] if together else np.array(depths)
        temperature = np.array(TEMPERATURES, np.float32)[depths]
        temperature = float(temperature[0]) if together else temperature
        if len(at) == len(self.rows) and self.random.random() < 0.5:
            return judge(self.columns, said, index, len(EXITS), temperature)
        part = self.columns.take(at)
        verdict = judge(part, said, index, len(EXITS), temperature)
        self.columns.put(at, part)
        return verdict

    def _compact(self) -> None:
        stay = np.flatnonzero([not row.gone for row in self.rows])
        self.columns = self.columns.take(stay)
        self.rows = [self.rows[i] for i in stay]


def compare(verdict: Decision, i: int, row: Travelling, expected: Step, traits: Traits) -> None:
    told = (row.rule, row.depth, row.heads, row.counted)
    assert Reason(verdict.reasons[i]).label == expected.reason, told
    assert verdict.signals[i] == pytest.approx(expected.signal, abs=1e-5, nan_ok=True), told
    if verdict.given is None:
        assert expected.head == row.depth, told
        assert expected.label == -1, told
        assert getattr(row.rule, "ensemble", "none") == "none", told
        return
    assert verdict.given.exit_index[i] == expected.head, told
    assert verdict.given.label[i] == expected.label, told
    assert_alike(verdict.given.logits[i], expected.p, traits.task)


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
        Company(
            [travelling(rule, traits, random) for rule in rules],
            RuleState.of(rules, traits),
            random,
        )
        for rules in groups
    ]
    with np.errstate(all="ignore"):
        while batches:
            if len(batches) > 1 and random.random() < 0.4:
                batches = [together(batches)]
            for batch in batches:
                batch.step(traits)
            batches = [batch for batch in batches if batch.rows]


def together(batches: list[Company]) -> Company:
    rows = [row for batch in batches for row in batch.rows]
    columns = RuleState.concatenate([batch.columns for batch in batches])
    return Company(rows, columns, batches[0].random)
