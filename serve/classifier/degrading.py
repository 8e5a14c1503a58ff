"""What one model gives up while more comes than it can answer."""

import math
from collections.abc import Sequence
from typing import Final

from serve.classifier.classification import Classification
from serve.engine.engine import Engine
from serve.engine.row import Answer, Priority
from serve.errors import DeadlineExceeded
from serve.policy.faster_rungs import FasterRungs
from serve.policy.resolution import ChosenExit
from serve.policy.target import CAUSES, Cause
from serve.rules.criterion import Reason

# A request may wait for this share of its time. The rest is for its own run, and for what the
# estimate of the wait does not know.
_MOST_WAIT: Final = 0.5


class Degrading:
    """Moves requests along the ladder by the time that each of them waits.

    Attributes:
        counted: degraded answers so far. Written on the event loop alone.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        """Take the engines whose queues count, one after the other."""
        self._engines = engines
        self.counted: dict[Cause, int] = dict.fromkeys(CAUSES, 0)

    def level(
        self, faster: FasterRungs, client: str = "", priority: Priority = Priority.NORMAL
    ) -> int:
        """Return how many rungs a client's requests move now. Any thread.

        From the policy's bound on, the rung is the faster the longer the wait; from twice the
        bound on, it is the fastest. A queue of low priority alone moves none.
        """
        wait_s = self._wait_s(client, min(priority, Priority.NORMAL))
        beyond = wait_s / (faster.overload.queue_ms / 1000) - 1
        return min(faster.most, max(0, math.ceil(beyond * faster.most)))

    def plan(
        self, request: Classification, chosen: ChosenExit, faster: FasterRungs
    ) -> tuple[ChosenExit, bool]:
        """Return what a request gets now, and whether it may move at all.

        Raises:
            DeadlineExceeded: the request would wait for more than its share of the time it has.
        """
        path = faster.path(chosen, request.asked.exit_choice, request.asked.degrade)
        if not path:
            return chosen, False
        if faster.overload.deadline == "cap" and request.deadline_s < math.inf:
            free_s = request.deadline_s - self._engines[0].clock()
            if self._wait_s(request.client.identity, request.priority) > _MOST_WAIT * free_s:
                raise DeadlineExceeded(
                    "the queue before this request takes more than half of its timeout_ms; allow "
                    "more time, or try again later"
                )
        return path.at(self.level(faster, request.client.identity, request.priority)), True

    def _wait_s(self, client: str, priority: Priority) -> float:
        return sum(engine.wait_s(client, priority) for engine in self._engines)

    def causes(self, chosen: ChosenExit, answers: Sequence[Answer]) -> tuple[Cause, ...]:
        """Count the degraded answers among those of a request, and return why they are."""
        late = sum([answer.reason is Reason.DEADLINE for answer in answers])
        numbers = (len(answers) if chosen.moved else 0, late)
        found = [(cause, num) for cause, num in zip(CAUSES, numbers, strict=True) if num]
        for cause, num in found:
            self.counted[cause] += num
        return tuple(cause for cause, _ in found)
