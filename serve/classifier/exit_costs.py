"""What a text costs that is alone in the engine: its layers, and asking exits for an answer."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from timeit import timeit
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.classifier.table_exit import TableExit
from serve.engine.core import EngineCore
from serve.engine.row import Row
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.engine.warm_up import segment_times_s
from serve.rules import CompiledRule, EntropyRule, ExitRule, PatienceRule
from serve.rules.table import NgramTable
from serve.rules.traits import Traits
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner

_ROUNDS, _FEWEST_ROUNDS = 15, 5
MOST_NOISE = 0.1  # a busier machine is no reason to be slower than asked by more
_ENOUGH_S = 0.5  # a slow model is measured in fewer rounds

Runner: TypeAlias = CpuRunner | CudaRunner


@dataclass(frozen=True, slots=True)
class ExitCosts:
    """What one text costs that is alone in the engine.

    Attributes:
        segment_s: (exits,) seconds from one exit to the next.
        visit_s: seconds for asking an exit: reading its logits, judging, calling again.
        slow_visit_s: the same of rules that need more than one exit's logits, see
            `serve.engine.fast_path`.
        noise: share by which two times measured here may differ by chance alone.
        table_s: seconds for asking the table; None if the model has none.
        small_s: seconds until each exit of the small model in front, by layer; empty without one.
    """

    segment_s: tuple[float, ...]
    visit_s: float
    slow_visit_s: float
    noise: float = 0.0
    table_s: float | None = None
    small_s: Mapping[int, float] = field(default_factory=dict)

    def until_exits_s(self, rule: CompiledRule) -> NDArray[np.float64]:
        """Return (layers,) seconds until an answer at each of `Traits.layers`.

        Exits before the first that the rule needs are not asked.
        """
        visit_s = self.slow_visit_s if rule.stay_gaps is None else self.visit_s
        asked = np.maximum(np.arange(len(self.segment_s)) - rule.first_heard, 0) + 1
        times_s = np.cumsum(self.segment_s) + visit_s * asked
        table_s = [] if self.table_s is None else [self.table_s]
        before_s = sum(table_s) if rule.table is not None else 0.0
        small_s = [before_s + each for each in self.small_s.values()]
        if small_s and rule.small:
            before_s = small_s[rule.small.last(tuple(self.small_s))]
        return np.array([*table_s, *small_s, *(before_s + times_s)])

    def until_exits_ms(self, rule: CompiledRule) -> list[float]:
        """Return the same in milliseconds."""
        times_ms: list[float] = (1e3 * self.until_exits_s(rule)).tolist()
        return times_ms


def measure_exit_costs(
    runner: Runner, shape: ModelShape, num_tokens: int, table: NgramTable | None = None
) -> ExitCosts:
    """Time one text through all layers, with every exit asked and with none.

    The runner and the shape have all exits; the shape has no costs.
    """
    ids = np.full((1, num_tokens), shape.pad_id, np.int64)
    unasked = runner.presenting((len(runner) - 1,))
    # One core for all rounds, as in a server: making it takes as long as asking several exits.
    core = EngineCore(
        runner, shape, BatchLimits(), time.monotonic, lambda stats: None, lambda: False
    )
    rule = shape.compile(_asks_every_exit(shape))
    timed: list[Callable[[], object]] = [
        lambda: unasked.start(ids, np.ones_like(ids), 0 * ids).logits,
        lambda: _answer(core, rule, ids, fast_path=True),
        lambda: _answer(core, rule, ids, fast_path=False),
    ]
    marks_s: list[list[float]] = []
    taken_s: list[list[float]] = []
    began, waited_s = time.perf_counter(), _waited_s()
    # In turns, so that a busy moment of the machine meets all alike.
    while len(taken_s) < _ROUNDS:
        marks_s.append(segment_times_s(runner, 1, num_tokens))
        taken_s.append([timeit(call, number=1) for call in timed])
        if len(taken_s) >= _FEWEST_ROUNDS and time.perf_counter() > began + _ENOUGH_S:
            break
    shares = np.median(marks_s, axis=0)
    unasked_s, *asked_s = map(median, zip(*taken_s, strict=True))
    segments_s = shares / shares.sum() * unasked_s
    visit_s, slow_visit_s = (max(0.0, each - unasked_s) / len(runner) for each in asked_s)
    waited = (_waited_s() - waited_s) / (time.perf_counter() - began)
    noise = min(MOST_NOISE, max(waited, _noise([unasked for unasked, *_ in taken_s])))
    table_s = _table_s(table, shape.traits, ids[0]) if table else None
    return ExitCosts(tuple(segments_s.tolist()), visit_s, slow_visit_s, noise, table_s)


def _table_s(table: NgramTable, traits: Traits, ids: NDArray[np.int64]) -> float:
    look = TableExit(table, traits).look
    return median(timeit(lambda: look(ids), number=10) / 10 for _ in range(_ROUNDS))


def _noise(times_s: list[float]) -> float:
    """Return by which share of it the median of such times may be off.

    Two standard errors of a median, which a few slow rounds do not change: 2 x 1.25 x 1.48 times
    the median deviation, over the root of the rounds.
    """
    middle = median(times_s)
    deviation = median([abs(each - middle) for each in times_s])
    return 3.7 * deviation / (middle * math.sqrt(len(times_s)))


def _waited_s() -> float:
    """Return how long this process has waited for a core; 0 where the system does not say.

    A machine that is busy all the time is slow evenly, which the times do not tell.
    """
    found = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # the thread has ended
            found += int(path.read_text().split()[1])
    return found / 1e9


def _asks_every_exit(shape: ModelShape) -> ExitRule:
    """Return a rule that looks at every exit and lets a row leave at the last one only."""
    if shape.traits.task == "regression":
        return PatienceRule(patience=len(shape.exits), tolerance=1.0)
    return EntropyRule(threshold=0)


def _answer(core: EngineCore, rule: CompiledRule, ids: np.ndarray, fast_path: bool) -> None:
    """Run one row that asks every exit and never leaves early through the engine's core."""
    core.uses_fast_path = fast_path
    core.add([Row(ids[0], 0 * ids[0], rule, admitted_s=time.monotonic())])
    while core:
        core.step()
