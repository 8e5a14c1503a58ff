"""Measures, on this machine, what a text's layers cost and what asking an exit adds."""

import time
from collections.abc import Callable
from statistics import median
from typing import TypeAlias

import numpy as np

from serve.classifier.active_exits import ExitCosts
from serve.engine.core import EngineCore
from serve.engine.executor import ModelShape
from serve.engine.row import Row
from serve.engine.scheduler import BatchLimits
from serve.rules import CompiledRule, EntropyRule, ExitRule, PatienceRule
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner

TYPICAL_TOKENS = 32
_ROUNDS = 15

Runner: TypeAlias = CpuRunner | CudaRunner


def measure_exit_costs(runner: Runner, shape: ModelShape, max_tokens: int) -> ExitCosts:
    """Time one text of typical length through all layers, with every exit asked and with none.

    Args:
        runner: with all exits.
        shape: of the same exits.
        max_tokens: longest input.
    """
    ids = np.full((1, min(TYPICAL_TOKENS, max_tokens)), shape.pad_id, np.int64)
    unasked = runner.presenting((len(runner) - 1,))
    # One core for all rounds, as in a server: making it takes as long as asking several exits.
    core = EngineCore(
        runner, shape, BatchLimits(), time.monotonic, lambda stats: None, lambda: False
    )
    rule = shape.compile(_asks_every_exit(shape))
    marks_s, asked_s, unasked_s = [], [], []
    # In turns, so that a busy moment of the machine meets all three alike.
    for _ in range(_ROUNDS):
        marks_s.append(_segment_times_s(runner, ids))
        asked_s.append(_seconds(lambda: _answer(core, rule, ids)))
        unasked_s.append(_seconds(lambda: unasked.start(ids, np.ones_like(ids), 0 * ids)))
    shares = np.median(marks_s, axis=0)
    segments_s = shares / shares.sum() * median(unasked_s)
    visit_s = max(0.0, median(asked_s) - median(unasked_s)) / len(runner)
    return ExitCosts(tuple(segments_s.tolist()), visit_s)


def _asks_every_exit(shape: ModelShape) -> ExitRule:
    """Return a rule that looks at every exit and lets a row leave at the last one only."""
    if shape.traits.task == "regression":
        return PatienceRule(patience=len(shape.exits), tolerance=1.0)
    return EntropyRule(threshold=0)


def _segment_times_s(runner: Runner, ids: np.ndarray) -> list[float]:
    """Return the seconds in each segment."""
    mask = np.ones_like(ids)
    marks = [time.perf_counter()]
    output = runner.start(ids, mask, 0 * ids)
    marks.append(time.perf_counter())
    for index in range(1, len(runner)):
        output = runner.advance(index, output.hidden, np.arange(1), mask)
        marks.append(time.perf_counter())
    return np.diff(marks).tolist()


def _answer(core: EngineCore, rule: CompiledRule, ids: np.ndarray) -> None:
    """Run one row that asks every exit and never leaves early through the engine's core."""
    core.add([Row(ids[0], 0 * ids[0], rule, admitted_s=time.monotonic())])
    while core:
        core.step()


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
