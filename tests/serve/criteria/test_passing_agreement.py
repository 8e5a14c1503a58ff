"""A row that is alone fares the same whoever runs it, and whoever comes meanwhile."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serve.engine.core import EngineCore
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.executor import ModelShape
from serve.engine.row import Answer, Outcome
from serve.engine.scheduler import BatchLimits
from serve.engine.undisturbed import UNDISTURBED_S
from serve.rules import ExitRule
from tests.serve.criteria.test_glance import TEMPERATURES, THOROUGH, some_logits
from tests.serve.support.fake_runner import FakeRunner, PassingFakeRunner, fake_row
from tests.serve.support.rule_strategies import rules_of, traits_of


def nobody() -> bool:
    return False


class Lone:
    """A row alone in a model of five exits, whose heads and costs are drawn at random."""

    def __init__(self, rule: ExitRule, seed: int, num_labels: int) -> None:
        random = Random(seed)
        self.rule, self.traits = rule, traits_of("single_label")
        if num_labels == 2 and not hasattr(rule, "thresholds"):
            self.traits = replace(self.traits, labels=("a", "b"))
        self.said = [some_logits(random, len(self.traits.labels)) for _ in self.traits.exits]
        seconds = [random.choice([0.1, 0.3, 0.6, 2]) * UNDISTURBED_S for _ in self.said]
        self.costs = random.choice([[0.0] * len(self.said), seconds])
        self.should_yield = [random.random() < 0.2 for _ in range(99)]

    def outcome(
        self, kind: type[FakeRunner], should_yield: Callable[[], bool]
    ) -> tuple[object, ...]:
        runner = kind(len(self.said), lambda key, index: self.said[index])
        costs = CostModel.of([SegmentCost(fixed_s=seconds) for seconds in self.costs])
        core = EngineCore(
            runner,
            ModelShape(self.traits, TEMPERATURES, costs=costs),
            BatchLimits(),
            lambda: 0.0,
            lambda stats: None,
            should_yield,
        )
        core.add([fake_row(1, rule=self.rule, admitted_s=0.0)])
        outcomes: list[Outcome] = []
        with np.errstate(all="ignore"):
            while core:
                outcomes += core.turn()
        ((_, result),) = outcomes
        assert [run.exit_index for run in runner.runs] == list(range(len(runner.runs)))
        if not isinstance(result, Answer):
            return type(result), str(result), len(runner.runs)
        logits, *rest = result
        return repr(logits.tolist()), repr(rest), len(runner.runs)


@THOROUGH
@given(
    rule=rules_of("single_label").filter(lambda rule: rule.rule != "learned"),
    seed=st.integers(0, 2**32),
    num_labels=st.sampled_from([2, 3]),
)
def test_row_that_passes_exits_fares_as_one_that_is_judged_at_every_exit(
    rule: ExitRule, seed: int, num_labels: int
) -> None:
    model = Lone(rule, seed, num_labels)
    judged = model.outcome(FakeRunner, lambda: True)
    assert model.outcome(FakeRunner, nobody) == judged
    assert model.outcome(PassingFakeRunner, nobody) == judged
    moments = iter(model.should_yield)
    assert model.outcome(PassingFakeRunner, lambda: next(moments)) == judged
