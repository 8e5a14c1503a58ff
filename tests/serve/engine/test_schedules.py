"""DESIGN's promises about answers, over random schedules; a row's content decides its answer.

`pytest tests/serve/engine/test_schedules.py --hypothesis-profile soak` tries very many.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.engine.core import EngineCore
from serve.engine.cost_model import GUESS, CostModel, SegmentCost
from serve.engine.row import Answer, Outcome, Priority, Row
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.errors import Cancelled, DeadlineExceeded, ModelFailure
from serve.rules import ConfidenceRule, EntropyRule, ExitRule, LayerRule, NeverRule, PatienceRule
from serve.rules.criterion import Reason
from tests.serve.support.fake_runner import FakeRunner
from tests.serve.support.fake_runner import fake_row as row_for
from tests.serve.support.rule_strategies import rules_of, traits_of
from tests.support.traits import two_labels

EXITS = (1, 2, 3, 4)
TEMPERATURES = (1.0, 1.3, 0.8, 1.0)
COSTS = (
    GUESS,
    SegmentCost(fixed_s=1e-3, per_token_s=1e-6),
    SegmentCost(fixed_s=1e-6, per_token_s=1e-4),
)

SHAPE = ModelShape(two_labels(EXITS), TEMPERATURES)
# Five exits and three labels, which every kind of rule can follow.
EVERY_RULE = ModelShape(traits_of("single_label"), (1.0, 1.3, 0.8, 1.0, 1.0))

# Hundreds in all; more if the profile says so.
THOROUGH = settings(max_examples=max(300, settings().max_examples))
fake_row = partial(row_for, traits=SHAPE.traits, temperatures=TEMPERATURES)

rules = st.one_of(
    st.builds(EntropyRule, threshold=st.floats(0, 0.69)),
    st.builds(ConfidenceRule, threshold=st.floats(0.5, 1)),
    st.builds(PatienceRule, patience=st.integers(1, 3)),
    st.builds(LayerRule, layer=st.sampled_from([2, 3])),
    st.builds(NeverRule, max_layer=st.integers(2, 4)),
)
fates = st.fixed_dictionaries(
    {
        "length": st.integers(1, 12),
        "rule": rules,
        "priority": st.sampled_from(Priority),
        "timeout_s": st.one_of(st.just(math.inf), st.floats(0, 0.03)),
        "arrives": st.integers(0, 10),
        "leaves": st.one_of(st.none(), st.integers(0, 30)),
    }
)
bounds = st.builds(
    BatchLimits,
    max_rows=st.integers(1, 6),
    max_tokens=st.integers(12, 60),
    max_hold_passes=st.floats(0, 4),
    in_flight=st.integers(1, 3),
)
plans = st.lists(fates, min_size=1, max_size=16)


@cache
def heads(key: int, index: int, num_labels: int = 2) -> tuple[float, ...]:
    """Return what the head says of a row: its own, and sometimes nothing."""
    generator = np.random.default_rng(1000 * key + index)
    if generator.random() < 0.03 and index < 2:
        return (math.nan,) * num_labels
    return tuple(generator.normal(0, 2, num_labels).astype(np.float32).tolist())


class Limited:
    """Wraps a fake runner whose device has memory for a few rows only, and may fail at random."""

    def __init__(self, runner: FakeRunner, most_rows: int, fails: Callable[[], bool]) -> None:
        self._runner, self._most_rows, self._fails = runner, most_rows, fails

    def __len__(self) -> int:
        return len(self._runner)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._runner, name)

        def checked(*args: Any) -> Any:
            if name != "join" and len(args[-2]) > self._most_rows:
                raise RuntimeError("Failed to allocate memory for requested buffer of size 9")
            if self._fails():
                raise RuntimeError("a segment failed")
            return call(*args)

        return checked


def new_core(
    limits: BatchLimits,
    clock: Any,
    most_rows: int = 99,
    should_yield: Callable[[], bool] = lambda: True,
    shape: ModelShape = SHAPE,
    fails: Callable[[], bool] = lambda: False,
) -> EngineCore:
    runner = FakeRunner(len(shape.exits), partial(heads, num_labels=len(shape.traits.labels)))
    limited: Any = Limited(runner, most_rows, fails)
    return EngineCore(limited, shape, limits, clock, lambda stats: None, should_yield)


def alone(key: int, length: int, rule: ExitRule) -> Answer:
    core = new_core(BatchLimits(), lambda: 0.0)
    core.add([fake_row(key, length, rule, admitted_s=0.0)])
    outcomes: list[Outcome] = []
    while core:
        outcomes += core.step()
    (outcome,) = outcomes
    assert isinstance(outcome.result, Answer)
    return outcome.result


def run(
    core: EngineCore,
    plan: list[dict[str, Any]],
    clock: list[float],
    tick_s: float,
    row_of: Callable[..., Row] = fake_row,
) -> Any:
    """Let rows come and clients leave as planned; return the rows and all outcomes."""
    rows = [
        row_of(key, fate["length"], fate["rule"], priority=fate["priority"])
        for key, fate in enumerate(plan, 1)
    ]
    outcomes: list[Outcome] = []
    step = 0
    while step <= 10 or core:
        for row, fate in zip(rows, plan, strict=True):
            row.cancelled = fate["leaves"] is not None and fate["leaves"] <= step
            if fate["arrives"] == step:
                row.admitted_s, row.deadline_s = clock[0], clock[0] + fate["timeout_s"]
                core.add([row])
        clock[0] += tick_s
        outcomes += core.step()
        step += 1
    return rows, outcomes


@THOROUGH
@given(
    plan=plans,
    limits=bounds,
    cost=st.sampled_from(COSTS),
    tick_s=st.sampled_from([1e-5, 1e-3, 6e-3]),
    most_rows=st.sampled_from([99, 3]),
    fails=st.booleans(),
)
def test_every_row_gets_the_one_answer_it_would_get_alone(
    plan: list[dict[str, Any]],
    limits: BatchLimits,
    cost: SegmentCost,
    tick_s: float,
    most_rows: int,
    fails: bool,
) -> None:
    """Or the first exits of it if its deadline comes, or an error if its client leaves.

    Where segments fail, every row gets one outcome: an error if its own batch has failed.
    """
    clock, random = [0.0], Random(len(plan))
    shape = replace(SHAPE, costs=CostModel([cost] * len(EXITS)))
    core = new_core(limits, lambda: clock[0], most_rows, lambda: random.random() < 0.4, shape,
                    lambda: fails and random.random() < 0.05)  # fmt: skip
    rows, outcomes = run(core, plan, clock, tick_s)
    assert sorted(outcome.row.tag for outcome in outcomes) == [row.tag for row in rows]
    for row, result in outcomes:
        if fails and isinstance(result, ModelFailure):
            continue
        if most_rows == 99 or limits.max_rows <= 2 * most_rows:
            check(row, plan[row.tag - 1], result)


def check(row: Row, fate: dict[str, Any], result: object) -> None:
    if isinstance(result, Cancelled):
        assert fate["leaves"] is not None
        return
    if isinstance(result, DeadlineExceeded):
        assert row.deadline_s < math.inf
        return
    expected = alone(row.tag, fate["length"], fate["rule"])
    if isinstance(result, Answer) and result.reason is not Reason.DEADLINE:
        assert (result.exit_index, result.reason) == (expected.exit_index, expected.reason)
        assert result.logits.tolist() == expected.logits.tolist()
        return
    # By the deadline: an exit before its own, or an error if that exit gave no number.
    assert row.deadline_s < math.inf
    if isinstance(result, Answer):
        assert result.exit_index < expected.exit_index
        assert result.logits.tolist() == list(heads(row.tag, result.exit_index))


@THOROUGH
@given(
    plan=st.lists(st.tuples(fates, rules_of("single_label")), min_size=1, max_size=8),
    limits=bounds,
    tick_s=st.sampled_from([1e-5, 1e-3]),
    seed=st.integers(0, 999),
)
def test_outcomes_are_the_same_with_and_without_the_fast_path(
    plan: list[tuple[dict[str, Any], ExitRule]], limits: BatchLimits, tick_s: float, seed: int
) -> None:
    own = [fate | {"rule": rule, "timeout_s": math.inf, "leaves": None} for fate, rule in plan]
    row_of = partial(row_for, traits=EVERY_RULE.traits, temperatures=EVERY_RULE.temperatures)
    results = []
    for uses_fast_path in (True, False):
        clock, random = [0.0], Random(seed)
        should_yield = partial(lambda random: random.random() < 0.2, random)
        core = new_core(limits, lambda clock=clock: clock[0],  # type: ignore[misc]
                        should_yield=should_yield, shape=EVERY_RULE)  # fmt: skip
        core.uses_fast_path = uses_fast_path
        _, outcomes = run(core, own, clock, tick_s, row_of)
        results.append({outcome.row.tag: told(outcome.result) for outcome in outcomes})
    assert results[0] == results[1]


def told(result: object) -> object:
    """Return everything that an outcome says but its times."""
    if not isinstance(result, Answer):
        return str(result)
    exits = result.exit_index, result.reason, result.head_index, result.label
    return exits, result.logits.tolist(), repr(result.signal)
