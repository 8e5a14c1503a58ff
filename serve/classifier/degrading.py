"""What one model gives up while more comes than it can answer."""

import math
import threading
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from serve.classifier.request import ModelRequest, Wait
from serve.engine.engine import Engine
from serve.engine.load_level import LoadLevel
from serve.engine.row import Answer, Priority
from serve.errors import DeadlineExceeded
from serve.policy.chosen_exit import ChosenExit
from serve.policy.faster_rungs import FasterRungs, Path
from serve.policy.overload import Overload
from serve.rules import CompiledRule
from serve.rules.reason import Reason

# Why an answer is degraded: a faster rung took the place of the one that was asked for, or there
# was no time to go on.
Cause: TypeAlias = Literal["overload", "deadline"]
CAUSES: Final[tuple[Cause, ...]] = ("overload", "deadline")

# The estimate of the queue takes some 20 us.
_LOOK_EVERY_S: Final = 0.01
# What the estimate leaves out follows what requests have shown it to be: soon upwards, slowly
# downwards, so that about nine of ten have shown less. Without requests it halves in some seconds.
_UP: Final = 0.3
_DOWN: Final = 0.03
_HALVES_S: Final = 5.0
_MOST_LEFT_OUT_S: Final = 1.0
# Levels that are kept: the arms of a rollout may have another `overload` each.
_ARMS: Final = 2


class _Level:
    """How far requests of one policy move, and when that was looked at."""

    def __init__(self) -> None:
        self.load, self.looked_s = LoadLevel(), -math.inf


class Degrading:
    """Moves requests along the ladder by the time that the queue takes.

    Attributes:
        counted: degraded answers so far. Written on the event loop alone.
    """

    def __init__(self, engine: Engine) -> None:
        """Take the engine whose queue counts."""
        self._engine, self._lock = engine, threading.Lock()
        self._levels: dict[tuple[Overload, int], _Level] = {}
        self._left_out_s, self._learned_s = 0.0, 0.0
        self.counted: dict[Cause, int] = dict.fromkeys(CAUSES, 0)

    def level(self, faster: FasterRungs) -> int:
        """Return how many rungs requests move now. Any thread."""
        now_s, level = self._engine.clock(), self._levels.get((faster.overload, faster.most))
        if level is None or now_s >= level.looked_s + _LOOK_EVERY_S:
            with self._lock:
                level = self._level_of(faster)
                level.looked_s = now_s = self._engine.clock()
                bound_s = faster.overload.queue_ms / 1000
                level.load.show(self._engine.backlog.urgent_s, bound_s, faster.most, now_s)
        return level.load.level

    def _level_of(self, faster: FasterRungs) -> _Level:
        levels, key = self._levels, (faster.overload, faster.most)
        level = levels.pop(key) if key in levels else _Level()
        levels[key] = level  # at the end, as the one that was looked at last
        for old in list(levels)[:-_ARMS]:
            del levels[old]
        return level

    def plan(
        self, request: ModelRequest, chosen: ChosenExit, faster: FasterRungs
    ) -> tuple[ChosenExit, Path | None]:
        """Return what a request gets now, and where it may go; None if it stays as it is.

        Raises:
            DeadlineExceeded: what waits before it takes longer than it has time.
        """
        path = faster.path(chosen, request.exit_choice, request.degrade)
        if not path:
            return chosen, None
        if request.deadline_s < math.inf and faster.overload.deadline == "cap":
            request.wait = self._wait(request)
        return path.at(self.level(faster)), path

    def _wait(self, request: ModelRequest) -> Wait:
        """Return what a request waits for, with what such estimates leave out lately."""
        first = request.priority is Priority.HIGH
        rows, seconds = (0, 0.0) if first else self._engine.wait(request.client, request.priority)
        if not rows:
            return Wait(0, self._engine.clock())
        now_s = self._engine.clock()
        wait = Wait(rows, now_s + seconds)
        if wait.until_s + self._left_out(now_s) >= request.deadline_s:
            self._learn(0.0, now_s)  # else a wrong estimate could refuse every request, and stay
            raise DeadlineExceeded(
                "what waits before this request takes longer than its timeout_ms; allow more time, "
                "or try again later"
            )
        return wait

    def in_time(
        self, request: ModelRequest, rule: CompiledRule, path: Path, lengths: Sequence[int]
    ) -> CompiledRule:
        """Return a rule that ends where the time of a request would, but not before the floor.

        Args:
            request: what is asked.
            rule: what it gets.
            path: where it may go.
            lengths: tokens of its rows.
        """
        if not request.wait:
            return rule
        num_rows, until_s = request.wait
        left_out_s = self._left_out(self._engine.clock()) if num_rows else 0.0
        free_s = request.deadline_s - until_s - left_out_s
        costs, size = self._engine.costs, (num_rows + len(lengths), max(lengths))
        last = max(costs.reach(0, *size, free_s) - 1, path.floor)
        return path.cut(rule, last) if last < rule.last else rule

    def ended(self, request: ModelRequest, answers: Sequence[Answer | None]) -> None:
        """Learn from a request how much longer it has taken than was estimated, its own time aside.

        While the event loop is late with answers it is as late with what arrives, of which nothing
        else tells. The engine's part of the time is known.
        """
        if not request.wait or not request.wait.rows or request.priority is not Priority.NORMAL:
            return
        now_s, costs, rows = self._engine.clock(), self._engine.costs, request.rows
        done = [(row, answer) for row, answer in zip(rows, answers, strict=False) if answer]
        behind_s = now_s - max([row.started_s + a.compute_s for row, a in done], default=now_s)
        depth = sum([a.exit_index + 1 for _, a in done]) / max(1, len(done)) or len(costs)
        full_s = costs.remaining_s(0, len(rows), max([row.num_tokens for row in rows]))
        own_s = full_s * depth / len(costs)
        self._learn(now_s + behind_s - own_s - request.wait.until_s, now_s)

    def _left_out(self, now_s: float) -> float:
        return self._left_out_s * math.exp2((self._learned_s - now_s) / _HALVES_S)

    def _learn(self, shown_s: float, now_s: float) -> None:
        known_s = self._left_out(now_s)
        gap_s = min(max(0.0, shown_s), _MOST_LEFT_OUT_S) - known_s
        self._left_out_s = known_s + (_UP if gap_s > 0 else _DOWN) * gap_s
        self._learned_s = now_s

    def causes(self, chosen: ChosenExit, answers: Sequence[Answer]) -> tuple[Cause, ...]:
        """Count the degraded answers among those of a request, and return why they are."""
        late = sum([answer.reason is Reason.DEADLINE for answer in answers])
        numbers = (len(answers) if chosen.moved else 0, late)
        found = [(cause, num) for cause, num in zip(CAUSES, numbers, strict=True) if num]
        for cause, num in found:
            self.counted[cause] += num
        return tuple(cause for cause, _ in found)
