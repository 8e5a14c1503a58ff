"""What becomes of deadlines, by a simulated clock and queue."""

from typing import NamedTuple

import pytest

from serve.classifier.degrading import Degrading
from serve.classifier.request import ModelRequest
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.engine import Backlog
from serve.engine.row import Priority
from serve.errors import DeadlineExceeded
from serve.policy.applied import AppliedPolicy
from serve.policy.document import Policy
from serve.policy.faster_rungs import FasterRungs
from serve.rules import CompiledRule, NeverRule
from serve.tokenization.tokenizer import Text
from tests.serve.support.fake_runner import fake_row
from tests.serve.support.ladders import served
from tests.support.tiny import DEPTH

OVERLOAD = {"queue_ms": 100, "target": {"max_disagreement": 0.03}}
POLICY = {"default": {"target": {"max_disagreement": 0.01}}, "overload": OVERLOAD}


class Engine:
    """What `Degrading` asks of an engine."""

    costs = CostModel.of([SegmentCost(fixed_s=0.1)] * DEPTH)

    def __init__(self) -> None:
        self.now_s, self.rows, self.wait_s, self.queue_s = 100.0, 1, 0.5, 0.0

    def clock(self) -> float:
        return self.now_s

    def wait(self, client: str, priority: Priority) -> tuple[int, float]:
        return self.rows, self.wait_s

    @property
    def backlog(self) -> Backlog:
        return Backlog(self.rows, self.rows, self.queue_s, self.queue_s)


class Asking(NamedTuple):
    """Requests under a policy with `overload`."""

    engine: Engine
    degrading: Degrading
    applied: AppliedPolicy

    def ask(self, timeout_s: float, priority: Priority = Priority.NORMAL) -> ModelRequest:
        """Plan a request, which may be refused."""
        deadline_s = self.engine.now_s + timeout_s
        request = ModelRequest([Text("w1")], deadline_s=deadline_s, priority=priority)
        assert self.applied.faster
        self.degrading.plan(request, self.applied.exit_for(None), self.applied.faster)
        request.rows = [fake_row(1, 2, NeverRule())]
        return request

    def rule(self, timeout_s: float) -> CompiledRule:
        """Return the rule of a request."""
        assert self.applied.faster
        chosen = self.applied.exit_for(None)
        path = self.applied.faster.path(chosen, None, None)
        assert path
        return self.degrading.in_time(self.ask(timeout_s), chosen.rule, path, [2])

    def take(self, seconds: float) -> None:
        """Let a request of normal priority take so long in the end."""
        request = self.ask(60.0)
        self.engine.now_s += seconds
        self.degrading.ended(request, [])


@pytest.fixture
def asking() -> Asking:
    engine = Engine()
    applied = AppliedPolicy(Policy.model_validate(POLICY), served())
    return Asking(engine, Degrading(engine), applied)  # type: ignore[arg-type]


def test_the_depth_is_what_the_wait_leaves_time_for(asking: Asking) -> None:
    # Half a second of the queue, and a tenth for each of four layers.
    depths = [asking.rule(timeout_s).last + 1 for timeout_s in (1.0, 0.85, 0.75, 0.55)]
    assert depths == [4, 3, 2, 2]


def test_what_cannot_be_in_time_is_refused_but_not_what_goes_first(asking: Asking) -> None:
    with pytest.raises(DeadlineExceeded, match="what waits before this request"):
        asking.ask(0.4)
    assert asking.ask(0.4, Priority.HIGH)


def test_what_the_estimate_leaves_out_is_learned(asking: Asking) -> None:
    assert asking.ask(1.0)
    for _ in range(20):
        asking.take(1.9)  # a second more than the queue and all layers
    with pytest.raises(DeadlineExceeded):
        asking.ask(1.0)


def test_it_counts_only_where_something_waits_and_is_forgotten(asking: Asking) -> None:
    for _ in range(20):
        asking.take(1.9)
    asking.engine.rows = 0
    assert asking.rule(0.5).last == DEPTH - 1
    asking.engine.rows = 1
    asking.engine.now_s += 30
    assert asking.rule(0.95).last == DEPTH - 1


def test_a_wrong_estimate_does_not_refuse_for_ever(asking: Asking) -> None:
    for _ in range(20):
        asking.take(1.9)
    refused = 0
    for _ in range(100):
        try:
            asking.ask(0.8)
            break
        except DeadlineExceeded:
            refused += 1
    assert 0 < refused < 100


def test_requests_that_take_long_by_themselves_teach_nothing(asking: Asking) -> None:
    for _ in range(20):
        asking.take(0.5 + 0.4)  # as estimated: the queue, and all layers
        low = asking.ask(60.0, Priority.LOW)
        asking.engine.now_s += 10
        asking.degrading.ended(low, [])
    assert asking.rule(0.95).last == DEPTH - 1


def candidate_for(queue_ms: float) -> FasterRungs:
    policy = {**POLICY, "overload": {**OVERLOAD, "queue_ms": queue_ms}}
    faster = AppliedPolicy(Policy.model_validate(policy), served()).faster
    assert faster
    return faster


def test_the_next_rollout_leaves_the_level_of_the_live_arm_as_it_is(asking: Asking) -> None:
    live, asking.engine.queue_s = asking.applied.faster, 0.15
    assert live
    assert asking.degrading.level(live) == 1
    asking.engine.queue_s = 0.08  # neither so long that it rises, nor so short that it falls
    for queue_ms in (1000, 2000, 3000):
        asking.engine.now_s += 0.02
        assert asking.degrading.level(candidate_for(queue_ms)) == 0
        assert asking.degrading.level(live) == 1


def test_each_arm_of_a_rollout_moves_by_its_own_bound(asking: Asking) -> None:
    candidate = candidate_for(10)
    live, asking.engine.queue_s = asking.applied.faster, 0.05
    assert live
    for _ in range(3):
        asking.engine.now_s += 0.06
        levels = asking.degrading.level(candidate), asking.degrading.level(live)
        assert levels == (1, 0)
