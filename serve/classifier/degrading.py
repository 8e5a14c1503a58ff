"""What one model gives up while more comes than it can answer."""

import math
import threading
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from serve.classifier.request import ModelRequest
from serve.engine.engine import Engine
from serve.engine.load_level import LoadLevel
from serve.engine.row import Answer, Priority
from serve.errors import DeadlineExceeded
from serve.policy.chosen_exit import ChosenExit
from serve.policy.faster_rungs import FasterRungs, Path
from serve.rules import CompiledRule
from serve.rules.reason import Reason

# Why an answer is degraded: a faster rung took the place of the one that was asked for, or there
# was no time to go on.
Cause: TypeAlias = Literal["overload", "deadline"]
CAUSES: Final[tuple[Cause, ...]] = ("overload", "deadline")

# The estimate of the queue takes some 20 us.
_LOOK_EVERY_S: Final = 0.01
# What of the time until a deadline may be planned: the rest is for what the estimate leaves out.
_PLANNED: Final = 0.9


class Degrading:
    """Moves requests along the ladder by the time that the queue takes.

    Attributes:
        counted: degraded answers so far. Written on the event loop alone.
    """

    def __init__(self, engine: Engine) -> None:
        """Take the engine whose queue counts."""
        self._engine, self._load = engine, LoadLevel()
        self._looked_s, self._lock = -math.inf, threading.Lock()
        self.counted: dict[Cause, int] = dict.fromkeys(CAUSES, 0)

    def level(self, faster: FasterRungs) -> int:
        """Return how many rungs requests move now. Any thread."""
        now_s = self._engine.clock()
        if now_s >= self._looked_s + _LOOK_EVERY_S:
            with self._lock:
                self._looked_s = now_s = self._engine.clock()
                bound_s = faster.overload.queue_ms / 1000
                self._load.show(self._engine.backlog.seconds, bound_s, faster.most, now_s)
        return self._load.level

    def path(
        self, request: ModelRequest, chosen: ChosenExit, faster: FasterRungs
    ) -> tuple[ChosenExit, Path | None]:
        """Return what a request gets now, and where it may go; None if it stays as it is."""
        path = faster.path(chosen, request.exit_choice, request.degrade)
        return (path.at(self.level(faster)), path) if path else (chosen, None)

    def in_time(
        self, request: ModelRequest, rule: CompiledRule, path: Path, lengths: Sequence[int]
    ) -> CompiledRule:
        """Return a rule that ends where the time of a request would, but not before the floor.

        Args:
            request: what is asked.
            rule: what it gets.
            path: where it may go.
            lengths: tokens of its rows.

        Raises:
            DeadlineExceeded: the queue alone takes longer.
        """
        if request.deadline_s == math.inf:
            return rule
        free_s = _PLANNED * (request.deadline_s - self._engine.clock())
        if request.priority is not Priority.HIGH:
            free_s -= self._engine.wait_s(request.client)
        if free_s <= 0:
            raise DeadlineExceeded(
                "timeout_ms is less than what waits before this request takes; allow more time, or "
                "try again later"
            )
        depth = self._engine.costs.reach(0, len(lengths), max(lengths), free_s)
        last = max(depth - 1, path.floor)
        return path.cut(rule, last) if last < rule.last else rule

    def causes(self, chosen: ChosenExit, answers: Sequence[Answer]) -> tuple[Cause, ...]:
        """Count the degraded answers among those of a request, and return why they are."""
        late = sum([answer.reason is Reason.DEADLINE for answer in answers])
        numbers = (len(answers) if chosen.moved else 0, late)
        found = [(cause, num) for cause, num in zip(CAUSES, numbers, strict=True) if num]
        for cause, num in found:
            self.counted[cause] += num
        return tuple(cause for cause, _ in found)
