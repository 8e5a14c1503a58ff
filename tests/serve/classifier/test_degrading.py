"""How far requests move by what each of them waits."""

from typing import NamedTuple

import pytest

from serve.classifier.degrading import Degrading
from serve.engine.row import Priority
from serve.policy.applied import AppliedPolicy
from serve.policy.document import Policy
from serve.policy.faster_rungs import FasterRungs
from tests.serve.support.ladders import served

POLICY = {
    "default": {"target": {"max_disagreement": 0.005}},
    "overload": {"queue_ms": 100, "target": {"max_disagreement": 0.03}},
}


class Engine(NamedTuple):
    """What `Degrading` asks of an engine."""

    waits: dict[tuple[str, Priority], float]

    def wait_s(self, client: str, priority: Priority) -> float:
        return self.waits.get((client, priority), 0.0)


def rungs() -> FasterRungs:
    faster = AppliedPolicy(Policy.model_validate(POLICY), served()).faster
    assert faster
    assert faster.most == 2
    return faster


@pytest.mark.parametrize(
    ("wait_s", "level"), [(0, 0), (0.1, 0), (0.101, 1), (0.15, 1), (0.151, 2), (0.2, 2), (9, 2)]
)
def test_the_longer_the_wait_the_faster_the_rung(wait_s: float, level: int) -> None:
    degrading = Degrading([Engine({("", Priority.NORMAL): wait_s})])  # type: ignore[list-item]
    assert degrading.level(rungs()) == level


def test_a_client_moves_by_its_own_wait_and_low_priority_by_that_of_normal() -> None:
    waits = {("busy", Priority.NORMAL): 0.2, ("quiet", Priority.LOW): 9.0}
    degrading, faster = Degrading([Engine(waits)]), rungs()  # type: ignore[list-item]
    levels = {
        (client, priority): degrading.level(faster, client, priority)
        for client in ("busy", "quiet")
        for priority in Priority
    }
    moved = {key for key, level in levels.items() if level}
    assert moved == {("busy", Priority.NORMAL), ("busy", Priority.LOW)}
